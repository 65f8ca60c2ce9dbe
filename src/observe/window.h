/* SPDX-License-Identifier: MIT */
/* Recorder of the newest queries of every layer, after RoPE (window.c), and the attention that scorers see of them
 * (window_attend.c). */
#ifndef WNW_WINDOW_RECORDER_H
#define WNW_WINDOW_RECORDER_H

#include "forward/recorder.h"

/* One ring per attention that reads a layer's entries, a layer's own first. Position p is row p % cap; the ring holds
 * positions end - n .. end - 1. */
struct wnw__window {
    struct wnw__shape model;
    float *q; /* [n_ring][cap][n_head][d] */
    struct wnw__window_layer {
        int32_t n, end;
    } * layers; /* [n_layer] */
    int32_t n_layer, n_ring, cap, n_ctx;
    size_t row;     /* floats of one position: n_head * d */
    bool generated; /* queries of generated tokens are kept too */
};

/* The queries [n_head][d] of a position that the ring of the layer's own attention holds. Borrowed. */
static inline const float *wnw__window_at(const struct wnw__window *w, int32_t il, int32_t pos)
{
    const size_t ring = (size_t)wnw__shape_readers_before(&w->model, il);
    return w->q + (ring * (size_t)w->cap + (size_t)(pos % w->cap)) * w->row;
}

/* Queries of consecutive positions, after RoPE, from the recorder that kept them. */
struct wnw__window_queries {
    const void *of;
    /* The query [n_head][d] of a position in layer il. */
    const float *(*at)(const void *of, int32_t il, int32_t pos);
    int32_t n, end; /* positions end - n .. end - 1; n > 0 */
};
/* Buffers of a source, the first ones, that the following uses. */
enum { WNW_WINDOW_BUFFERS = 4 };
/* Sets n_window, window_attn and window_queries of *obs: the attention of the queries over the entries of its layer, in
 * float32, with one softmax per query. Uses the buffers of what is filling. */
int wnw__window_attend(struct wnw__source *s, const struct wnw__window_queries *queries, const bool *heads,
                       struct wnw_observation *obs);

#endif
