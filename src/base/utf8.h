/* SPDX-License-Identifier: MIT */
/* Texts that are cut anywhere begin and end with whole characters again. */
#ifndef WNW_BASE_UTF8_H
#define WNW_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

enum wnw__utf8 {
    WNW_UTF8_WHOLE, /* a character */
    WNW_UTF8_OPEN,  /* the beginning of one, which more bytes may complete */
    WNW_UTF8_BAD    /* bytes that no character begins with, or that are no character with what follows */
};
/* What the first *n bytes of s[len] are; len > 0. */
enum wnw__utf8 wnw__utf8_scan(const char *s, size_t len, size_t *n);

static inline bool wnw__utf8_inside(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* Bytes at the beginning of s[len] that continue a character. */
static inline size_t wnw__utf8_start(const char *s, size_t len)
{
    size_t n = 0;
    while (n < len && n < 3 && wnw__utf8_inside(s[n]))
        n++;
    return n;
}

/* Length of s[len] without a character that is cut off at its end. */
static inline size_t wnw__utf8_end(const char *s, size_t len)
{
    size_t back = 1;
    while (back < 4 && back < len && wnw__utf8_inside(s[len - back]))
        back++;
    if (len == 0 || (unsigned char)s[len - back] < 0xc0)
        return len;
    const unsigned char first = (unsigned char)s[len - back];
    const size_t whole = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    return back < whole ? len - back : len;
}

#endif
