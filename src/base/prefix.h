/* SPDX-License-Identifier: MIT */
/* How much two texts, or two lists of tokens, have in common at their beginning. */
#ifndef WNW_BASE_PREFIX_H
#define WNW_BASE_PREFIX_H

#include <stddef.h>
#include <stdint.h>

static inline size_t wnw__common_bytes(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n])
        n++;
    return n;
}

static inline int32_t wnw__common_tokens(const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b)
{
    int32_t n = 0;
    while (n < n_a && n < n_b && a[n] == b[n])
        n++;
    return n;
}

#endif
