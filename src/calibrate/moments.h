/* SPDX-License-Identifier: MIT */
/* Means and covariances of many rows of vectors at once, in double precision. */
#ifndef WNW_CALIBRATE_MOMENTS_H
#define WNW_CALIBRATE_MOMENTS_H

#include "base/err.h"

#include <stddef.h>

/* Of every row n vectors of d elements. A covariance is about the mean, divided by n, and stored as its lower
 * triangle, row by row: d (d + 1) / 2 elements. */
struct wnw__moments {
    int32_t n_row, d;
    int64_t n;          /* vectors of every row */
    double *mean, *cov; /* [n_row][d], [n_row][wnw__triangle(d)], owned */
};

static inline size_t wnw__triangle(int32_t d)
{
    return (size_t)d * ((size_t)d + 1) / 2;
}

int wnw__moments_new(struct wnw__moments *m, int32_t n_row, int32_t d);
void wnw__moments_free(struct wnw__moments *m);
/* Forgets all vectors. */
void wnw__moments_reset(struct wnw__moments *m);

/* Combines row i with `more` vectors of this mean[d] and cov[triangle], which came after the m->n that it
 * has. When this was done to every row, the caller adds `more` to m->n. */
void wnw__moments_merge(struct wnw__moments *m, int32_t i, int64_t more, const double *mean,
                        const double *cov);
/* Computes mean[d] and cov[triangle] of x[n], vectors with a stride of `stride` floats, n > 0. */
void wnw__moments_of(const float *x, size_t stride, int32_t n, int32_t d, double *mean, double *cov);

/* Writes to out[d] the direction, of length 1, along which the squares of a row's vectors are largest on
 * average: their first right singular vector. Its sign is that of their mean: sum of mean[c] out[c] >= 0. Zeros
 * if all vectors are 0. room has 2 d^2 elements. Returns the share of the squares that lies along it, 0 .. 1. */
double wnw__moments_direction(const struct wnw__moments *m, int32_t i, double *out, double *room);

#endif
