/* SPDX-License-Identifier: MIT */
/* FNV-1a, 64 bits: tells contents apart that nobody has forged. */
#ifndef WNW_BASE_HASH_H
#define WNW_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define WNW_HASH_START UINT64_C(0xcbf29ce484222325)

/* The hash of the bytes behind those that h is the hash of. */
static inline uint64_t wnw__hash(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}

#endif
