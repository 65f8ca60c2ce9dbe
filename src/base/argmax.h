/* SPDX-License-Identifier: MIT */
/* The index of the largest value: the likeliest token of logits. */
#ifndef WNW_BASE_ARGMAX_H
#define WNW_BASE_ARGMAX_H

#include <stdint.h>

/* The first of equal values wins, NaN never does unless x[0] is one. n >= 1. */
static inline int32_t wnw__argmax(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

#endif
