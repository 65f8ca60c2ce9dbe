/* SPDX-License-Identifier: MIT */
/* Recorder of the newest queries of every layer, after RoPE, and the attention that scorers see of them. */
#ifndef WNW_WINDOW_RECORDER_H
#define WNW_WINDOW_RECORDER_H

#include "forward/recorder.h"

/* One ring per layer. Position p is row p % cap; the ring holds positions end - n .. end - 1. */
struct wnw__window {
    float *q; /* [n_layer][cap][n_head][d] */
    struct wnw__window_layer {
        int32_t n, end;
    } * layers; /* [n_layer] */
    int32_t n_layer, cap;
    size_t row;     /* floats of one position: n_head * d */
    bool generated; /* queries of generated tokens are kept too */
};

/* The queries [n_head][d] of a position that the ring holds. Borrowed. */
static inline const float *wnw__window_at(const struct wnw__window *w, int32_t il, int32_t pos)
{
    return w->q + ((size_t)il * (size_t)w->cap + (size_t)(pos % w->cap)) * w->row;
}

#endif
