/* SPDX-License-Identifier: MIT */
/* The length of a row of numbers. */
#ifndef WNW_BASE_NORM_H
#define WNW_BASE_NORM_H

#include <math.h>
#include <stdint.h>

/* ||x||_2 of x[d], added up in double from the first element to the last. */
static inline double wnw__norm(const float *x, int32_t d)
{
    double sum = 0;
    for (int32_t c = 0; c < d; c++)
        sum += (double)x[c] * (double)x[c];
    return sqrt(sum);
}

#endif
