/* SPDX-License-Identifier: MIT */
/* Recorder of the newest queries of every layer, after RoPE (window.c), and the attention that scorers see of them
 * (window_attend.c). */
#ifndef WNW_WINDOW_RECORDER_H
#define WNW_WINDOW_RECORDER_H

#include "forward/recorder.h"

/* One ring per layer. Position p is row p % cap; the ring holds positions end - n .. end - 1. */
struct wnw__window {
    float *q; /* [n_layer][cap][n_head][d] */
    struct wnw__window_layer {
        int32_t n, end;
    } * layers; /* [n_layer] */
    int32_t n_layer, cap, n_ctx;
    size_t row;     /* floats of one position: n_head * d */
    bool generated; /* queries of generated tokens are kept too */
};

/* The queries [n_head][d] of a position that the ring holds. Borrowed. */
static inline const float *wnw__window_at(const struct wnw__window *w, int32_t il, int32_t pos)
{
    return w->q + ((size_t)il * (size_t)w->cap + (size_t)(pos % w->cap)) * w->row;
}

/* Queries of consecutive positions, after RoPE, from whoever kept them. */
struct wnw__window_queries {
    const void *of;
    /* The query [n_head][d] of a position in layer il. */
    const float *(*at)(const void *of, int32_t il, int32_t pos);
    int32_t n, end; /* positions end - n .. end - 1; n > 0 */
};
/* Sets n_window, window_attn and window_queries of *obs: the attention of the queries over the entries of its layer, in
 * float32, with one softmax per query. Uses the buffers of what is filling. */
int wnw__window_attend(struct wnw__source *s, const struct wnw__window_queries *queries, const bool *heads,
                       wnw_observation *obs);

#endif
