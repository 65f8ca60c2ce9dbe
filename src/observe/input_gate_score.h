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

/* Gates of a layer that are asked about n tokens. Blocks of tokens are taken by turns, so that scores do not depend on how many
 * threads there are. */
struct wnw__input_asked {
    const struct wnw__input_gate *g;
    const struct wnw__shape *shape;
    int32_t il;
    const float *x; /* [n][stride]; n_embd of each row are read */
    size_t stride;
    int64_t n;
    float *room;  /* [n_thread][wnw__input_asked_room] */
    int n_thread; /* that have scratch; others of the nth do nothing */
    /* Takes scores[n_head_kv][WNW_INPUT_BLOCK] of tokens first .. first+n-1. */
    void (*keep)(void *user, int64_t first, int32_t n, const float *scores);
    void *user;
};

/* Floats of scratch for a thread. */
size_t wnw__input_asked_room(const struct wnw__input_gate *g, const struct wnw__shape *shape);
/* Does the share of thread ith of nth. */
void wnw__input_ask(const struct wnw__input_asked *a, int ith, int nth);

#endif
