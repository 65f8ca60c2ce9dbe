/* SPDX-License-Identifier: MIT */
/*
 * The second pass of policies that judge the cache by what other tokens look for in it: tokens are fed behind
 * what was read, column statistics (columns.h) of the entries that were there before are taken, and the
 * tokens are dropped again. Afterwards the session is as it was, to the bit.
 *
 *     CONTEXT  the tokens read, once more (KVCompose, arXiv 2509.05165, task-agnostic)
 *     TASK     each task on the bare cache (the same, the questions alone)
 *     BOTH     the tokens read, once more, and each task behind them (the same, task-aware)
 *     REPEAT   chunk by chunk, an instruction to repeat, the chat template's tail, which ends the user's
 *              turn, and the chunk (KVzip, arXiv 2505.23416); the forward pass sees everything, the
 *              statistics' softmax only the header, the chunk and the repeat input. Chunks begin behind the
 *              header
 *     REPEAT_SINKS  the same, but the softmax sees 4 sinks of the header (kvpress)
 *     REPEAT_ALL    the same, and the header is part of the first chunk
 */
#ifndef WNW_SECOND_PASS_H
#define WNW_SECOND_PASS_H

#include "base/err.h"
#include "winnow_method.h"

struct wnw__second_pass {
    int32_t n_layer;
    int32_t n_queries;
    int32_t *n;  /* [n_layer] entries of the longest head */
    float **sum; /* [n_layer] [n_head][n], NULL for sliding-window layers */
    float **max; /* the same */
};

/* May write a sentence to warning[256]. */
int wnw__second_pass_run(struct wnw__second_pass **out, wnw_session *s, wnw_second_pass kind, char *warning);
void wnw__second_pass_free(struct wnw__second_pass *p);

#endif
