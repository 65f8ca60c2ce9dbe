/* SPDX-License-Identifier: MIT */
/*
 * Policies with +sampled observe what some tokens of a prompt attend to while the model repeats them. The server feeds them after the
 * slot's tokens, before the last batch of the prompt, and removes them again. So the prompt's logits come from its own last batch.
 * A prompt that comes in one batch has no sample.
 */
#ifndef WNW_SERVE_SAMPLE_H
#define WNW_SERVE_SAMPLE_H

#include "serve/batches.h"
#include "serve/watched.h"

/* Feeds a sample of each slot whose prompt ends with the batch that is about to run, and whose rule looks at one. Where it cannot be had,
 * the slot has none. */
void serve_sample_feed(struct serve_watched *w, const struct serve_batch *b);

#endif
