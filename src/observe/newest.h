/* SPDX-License-Identifier: MIT */
/* Recorders of the newest generated token. No policy asks for them: they serve to study heads and layers. What is borrowed stays
 * until the next pass. */
#ifndef WNW_NEWEST_H
#define WNW_NEWEST_H

#include "forward/recorder.h"

/* ---- "newest": its attention, the softmax of every query head over all entries (newest.c) ---- */

struct wnw__newest;

/* Rows [n_head][*n] of layer il. The row of a query head holds the probability of each entry that its KV head
 * held when the token was read, the token's own entry last; it is 0 after a head's entries and outside a
 * sliding window. Returns NULL and *n = 0 if the newest token was not generated or if entries have moved
 * since. Borrowed. */
const float *wnw__newest_rows(const struct wnw__newest *w, int32_t il, int32_t *n);

/* ---- "outputs": the queries that its attention read, and the output of every head before the output projection; and
 * "states": its hidden state after every layer (newest_states.c) ---- */

struct wnw__outputs;
struct wnw__states;

/* The queries after RoPE and the outputs in front of the projection in layer il, both [n_head][d]; *out is the
 * output. Returns NULL and *out = NULL if the newest token was not generated, or if entries have changed since.
 * Borrowed. */
const float *wnw__outputs_of(const struct wnw__outputs *w, int32_t il, const float **out);

/* The hidden state [n_embd] after layer il: the residual stream, in front of the next layer's norm. Returns NULL if
 * the newest token was not generated or if entries have moved since. Borrowed. */
const float *wnw__states_of(const struct wnw__states *w, int32_t il);

#endif
