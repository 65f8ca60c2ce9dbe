/* SPDX-License-Identifier: MIT */
/* Numbers in bytes that somebody else has written, read from the first on, as this machine has them. */
#ifndef WNW_BASE_BYTES_H
#define WNW_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct wnw__bytes {
    const uint8_t *at, *end;
    bool short_of; /* more was asked for than there is: what came from then on is 0 */
};

static inline struct wnw__bytes wnw__bytes_of(const void *from, size_t n)
{
    return (struct wnw__bytes){.at = from, .end = (const uint8_t *)from + n};
}

static inline size_t wnw__bytes_left(const struct wnw__bytes *b)
{
    return (size_t)(b->end - b->at);
}

/* The next n bytes; NULL where there are fewer. */
static inline const uint8_t *wnw__bytes_take(struct wnw__bytes *b, uint64_t n)
{
    const uint8_t *at = b->at;
    if (b->short_of || n > wnw__bytes_left(b)) {
        b->short_of = true;
        return NULL;
    }
    b->at += n;
    return at;
}

static inline uint32_t wnw__bytes_u32(struct wnw__bytes *b)
{
    uint32_t x = 0;
    const uint8_t *at = wnw__bytes_take(b, sizeof x);
    if (at)
        memcpy(&x, at, sizeof x);
    return x;
}

static inline uint64_t wnw__bytes_u64(struct wnw__bytes *b)
{
    uint64_t x = 0;
    const uint8_t *at = wnw__bytes_take(b, sizeof x);
    if (at)
        memcpy(&x, at, sizeof x);
    return x;
}

#endif
