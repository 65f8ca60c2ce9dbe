/* SPDX-License-Identifier: MIT */
/* KeyDiff: a scorer of its own, and one of the numbers from which gates predict scores. */
#ifndef WNW_KEYDIFF_H
#define WNW_KEYDIFF_H

#include "policy/part.h"

/* Fills s[n] with the scores of the keys k[n][d] of a head. mu[d] is scratch memory. */
void wnw__keydiff(const float *k, int32_t n, int32_t d, float *s, float *mu);

#endif
