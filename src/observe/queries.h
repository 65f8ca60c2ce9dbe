/* SPDX-License-Identifier: MIT */
/* Every query of a prompt, rounded to f16 where that will do (decision 103): back to float32, for recorders. */
#ifndef WNW_QUERIES_H
#define WNW_QUERIES_H

#include "winnow_method.h"

/* Whether queries that are recorded for these needs may be rounded. */
static inline bool wnw__queries_rounded(uint32_t flags)
{
    return (flags & WNW_NEED_EVERY_QUERY) == WNW_NEED_QUERIES_F16;
}
/* Converts n rows of d numbers from f16. False: one of them was beyond what f16 holds. */
bool wnw__queries_widen(const void *from, int64_t n, int32_t d, float *to);
/* The error that says so of a layer. */
int wnw__queries_beyond(int32_t il);

#endif
