/* SPDX-License-Identifier: MIT */
/* Factors of small symmetric matrices. */
#ifndef WNW_CHOLESKY_H
#define WNW_CHOLESKY_H

#include <stdbool.h>
#include <stdint.h>

/* Replaces the lower triangle of a[n][n] by L with L L^T = a; the rest is not touched. False if a is not
 * positive definite or has a NaN. */
bool wnw__cholesky(double *a, int32_t n);

#endif
