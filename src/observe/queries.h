/* SPDX-License-Identifier: MIT */
/* Recorder of every prompt query, after RoPE. */
#ifndef WNW_QUERIES_H
#define WNW_QUERIES_H

#include "forward/recorder.h"

struct wnw__queries {
    int32_t n_layer;
    size_t row; /* floats of one position: n_head * d */
    struct wnw__queries_layer {
        float *q; /* [n][n_head][d] at positions end - n .. end - 1; NULL while there are none */
        int32_t n, end, cap;
    } * layers; /* [n_layer] */
};

#endif
