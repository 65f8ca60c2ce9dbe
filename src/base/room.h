/* SPDX-License-Identifier: MIT */
/*
 * How much room a cache has for entries. The cache and devices around others grow heads by it, and programs compute with it what
 * a cache will take.
 */
#ifndef WNW_BASE_ROOM_H
#define WNW_BASE_ROOM_H

#include <stdint.h>

/* The capacity of a head grows in blocks of 32 entries. With the ggml attention a block has 256 entries,
 * because that attention pads its key range to a multiple of 256 (as llama.cpp does, so that both split the
 * keys alike). */
#define WNW_CACHE_GROWTH      32
#define WNW_CACHE_GROWTH_GGML 256

/* First entries of a head that stay in f16 where there is a tail; none in layers with a sliding window. */
#define WNW_CACHE_FIRST 64

/* On a device around a GPU a head grows in such steps, since its kernels want 256 keys at a time. So does a layer in libllama's
 * layout, because libllama's views end at multiples of it. */
#define WNW_DEVICE_STEP 256

static inline int64_t wnw__room_in_steps(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

/* Entries that a head on a device, which grows in such steps, has room for beyond the n that it holds: an eighth, and at least a step. */
static inline int64_t wnw__device_spare(int64_t n, int64_t step)
{
    return n / 8 > step ? n / 8 : step;
}

/* The most rows that a head with n entries gets on a device, with its spare room and in whole steps of any length. */
static inline int64_t wnw__device_most_rows(int64_t n)
{
    return n + n / 8 + 2 * WNW_DEVICE_STEP;
}

#endif
