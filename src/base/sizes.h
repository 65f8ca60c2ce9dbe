/* SPDX-License-Identifier: MIT */
/*
 * Sums and products of sizes that files say. Where the true result has more than 64 bits, it is WNW_SIZE_TOO_LARGE, and so is
 * everything that is computed from that: one comparison at the end finds it.
 */
#ifndef WNW_BASE_SIZES_H
#define WNW_BASE_SIZES_H

#include <stdint.h>

#define WNW_SIZE_TOO_LARGE UINT64_MAX

static inline uint64_t wnw__size_add(uint64_t a, uint64_t b)
{
    return b > WNW_SIZE_TOO_LARGE - a ? WNW_SIZE_TOO_LARGE : a + b;
}

static inline uint64_t wnw__size_mul(uint64_t a, uint64_t b)
{
    if (a == 0 || b == 0)
        return 0;
    return a == WNW_SIZE_TOO_LARGE || b > WNW_SIZE_TOO_LARGE / a ? WNW_SIZE_TOO_LARGE : a * b;
}

/* The next multiple of `unit`, which is a power of two. */
static inline uint64_t wnw__size_round_up(uint64_t a, uint64_t unit)
{
    const uint64_t up = wnw__size_add(a, unit - 1);
    return up == WNW_SIZE_TOO_LARGE ? WNW_SIZE_TOO_LARGE : up / unit * unit;
}

#endif
