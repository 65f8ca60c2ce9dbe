/* SPDX-License-Identifier: MIT */
/* Ranks of scores, which compare where scores do not: between heads, and between compressions. */
#ifndef WNW_METHOD_RANK_H
#define WNW_METHOD_RANK_H

#include <stdint.h>

/* rank[i] = how many of score[n] are higher than score[i]: 0 for the best, the same for equal ones. sorted[n] is scratch.
 * Scores must not be NaN. O(n log n). */
void wnw__ranks(const float *score, int32_t n, float *rank, float *sorted);

#endif
