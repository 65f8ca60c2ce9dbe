/* SPDX-License-Identifier: MIT */
/* How well two measurements agree about an order. */
#ifndef WNW_BASE_RANK_CORRELATION_H
#define WNW_BASE_RANK_CORRELATION_H

#include "base/err.h"

/* Spearman's rank correlation of a[n] and b[n], -1 .. 1: the correlation of their ranks, where equal numbers
 * have the mean of their ranks. 0 where all of one side are equal, and for n < 2. a and b have no NaN.
 * E_NOMEM. */
int wnw__rank_correlation(double *out, const double *a, const double *b, int32_t n);

#endif
