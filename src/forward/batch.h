/* SPDX-License-Identifier: MIT */
/* What one forward pass reads: rows, one per token, cut into one slice per sequence. */
#ifndef WNW_BATCH_H
#define WNW_BATCH_H

#include "forward/recorder.h"

/* The next n_row > 0 tokens of one sequence, at positions n_past, n_past + 1, ... Borrowed. */
struct wnw__slice {
    struct wnw__cache *cache;
    struct wnw__recurrent *recurrent;       /* forward/executor.h */
    const struct wnw__recorders *recorders; /* NULL = none */
    int32_t n_row, n_past;
    bool generated;        /* as in struct wnw__record_pass */
    const uint8_t *masked; /* as in struct wnw__attend_slice */
};

/* The rows of all slices, one slice after the other. The pass takes them through layers from .. to - 1. */
struct wnw__batch {
    const struct wnw__slice *slice; /* [n_slice], each of another sequence */
    int32_t n_slice, n_row;         /* n_row: the sum over the slices, at most the engine's n_ubatch */
    int32_t from, to;
    const int32_t *token; /* [n_row], read if from = 0 */
    float *hidden;        /* [n_row][n_embd]: read if from > 0, written if to < n_layer */
    /* [n_out] ascending rows whose logits are wanted, 1 <= n_out <= n_row. Used if to = n_layer. If n_out =
     * n_row, the logits of all rows are wanted and out_row is not read. */
    const int32_t *out_row;
    int32_t n_out;
};

#endif
