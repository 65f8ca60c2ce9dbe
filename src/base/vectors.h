/* SPDX-License-Identifier: MIT */
/* Arithmetic on vectors and small matrices: the largest element, the length, factors, ranks, orders of qsort. */
#ifndef WNW_BASE_VECTORS_H
#define WNW_BASE_VECTORS_H

#include "base/err.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* The index of the largest of x[n], n >= 1: the likeliest token of logits. The first of equal values wins, NaN
 * never does unless x[0] is one. */
static inline int32_t wnw__argmax(const float *x, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

/* ||x||_2 of x[d], added up in double from the first element to the last. */
static inline double wnw__norm(const float *x, int32_t d)
{
    double sum = 0;
    for (int32_t c = 0; c < d; c++)
        sum += (double)x[c] * (double)x[c];
    return sqrt(sum);
}

/* Replaces the lower triangle of a[n][n] by L with L L^T = a; the rest is not touched. False if a is not
 * positive definite or has a NaN. */
bool wnw__cholesky(double *a, int32_t n);

/* Spearman's rank correlation of a[n] and b[n], -1 .. 1: the correlation of their ranks, where equal numbers
 * have the mean of their ranks. 0 where all of one side are equal, and for n < 2. a and b have no NaN.
 * E_NOMEM. */
int wnw__rank_correlation(double *out, const double *a, const double *b, int32_t n);

/* For qsort: ascending order of numbers, or of structs whose first member is the number. */
int wnw__ascending_f64(const void *a, const void *b);
int wnw__ascending_i32(const void *a, const void *b);
int wnw__ascending_u64(const void *a, const void *b);
int wnw__ascending_size(const void *a, const void *b);

#endif
