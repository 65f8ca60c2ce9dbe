/* SPDX-License-Identifier: MIT */
/*
 * Policies with +sampled look at what some tokens of a prompt attend to while the model repeats them. They are fed before the last batch of
 * a prompt, behind what the slot has, and removed again, so that the logits of the prompt are those of its own last batch. Prompts that
 * come in one batch have none.
 */
#ifndef WNW_SERVE_SAMPLE_H
#define WNW_SERVE_SAMPLE_H

#include "serve/batches.h"
#include "serve/watched.h"

/* Whether samples can be fed to the context: not where layers are recurrent, whose states cannot go back. */
bool serve_sample_can(const struct serve_watched *w);
/* Feeds a sample of each slot whose prompt ends with the batch that is about to run, and whose rule looks at one. Where it cannot be had,
 * the slot has none. */
void serve_sample_feed(struct serve_watched *w, const struct serve_batch *b);
/* Gives back a slot's. */
void serve_sample_drop(struct serve_watched *w, int32_t seq);

#endif
