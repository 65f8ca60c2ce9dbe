/* SPDX-License-Identifier: MIT */
/* A number that is brought between two bounds. */
#ifndef WNW_BASE_CLAMP_H
#define WNW_BASE_CLAMP_H

#include <stdint.h>

/* x, or the bound that it is beyond; `least` is looked at first. */
static inline int64_t wnw__clamp(int64_t x, int64_t least, int64_t most)
{
    if (x < least)
        return least;
    return x > most ? most : x;
}

#endif
