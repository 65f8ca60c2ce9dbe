/* SPDX-License-Identifier: MIT */
/* What gates on hidden states (profile/input_gate.h) make of hidden states. */
#ifndef WNW_INPUT_GATE_SCORE_H
#define WNW_INPUT_GATE_SCORE_H

#include "profile/input_gate.h"

#include <stddef.h>

/* Tokens whose scores are computed together. A token's score may depend on its place among them, in the last bits. */
enum { WNW_INPUT_BLOCK = 32 };

/* Floats of scratch for a block. */
size_t wnw__input_gate_room(const struct wnw__input_gate *g, const struct wnw__shape *shape);
/* out[n_head_kv][WNW_INPUT_BLOCK] = scores of x[n][n_embd] in layer il, n <= WNW_INPUT_BLOCK. */
void wnw__input_gate_score(const struct wnw__input_gate *g, const struct wnw__shape *shape, int32_t il,
                           const float *x, int32_t n, float *room, float *out);

#endif
