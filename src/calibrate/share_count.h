/* SPDX-License-Identifier: MIT */
/* How the best entries of a model spread over its heads, for head budgets. Rows are KV heads of all layers that
 * count. */
#ifndef WNW_SHARE_COUNT_H
#define WNW_SHARE_COUNT_H

#include "base/err.h"

/* Counts how many of each row's n entries are among the best[i] entries of highest score[n_row][n] of all rows.
 * Of equal scores that of the lower row comes first, then the earlier. best[n_best] does not rise.
 * count[n_best][n_row]. E_NOMEM. */
int wnw__share_count(int32_t *count, const float *score, int32_t n_row, int32_t n, const int64_t *best,
                     int32_t n_best);

/* What two ways of sharing out have in common: the sum of the smaller of a[n] and b[n] after each was divided by its
 * own sum; 1 = they are the same, 0 = no row has a part of both. Two lists of zeros are the same. */
double wnw__share_overlap(const double *a, const double *b, int32_t n);

#endif
