/* SPDX-License-Identifier: MIT */
#include "base/utf8.h"

/* Bytes of a sequence with this first byte; 0 if none begins with it. */
static size_t length_of(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4)
        return 0;
    return c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* The narrower ranges shut out overlong forms, surrogates and code points past U+10FFFF. */
static bool second_fits(unsigned char first, unsigned char c)
{
    const unsigned char lo = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned char hi = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return c >= lo && c <= hi;
}

enum wnw__utf8 wnw__utf8_scan(const char *s, size_t len, size_t *n)
{
    const unsigned char first = (unsigned char)*s;
    const size_t want = length_of(first);
    *n = 1;
    if (want == 0)
        return WNW_UTF8_BAD;
    while (*n < want && *n < len &&
           (*n == 1 ? second_fits(first, (unsigned char)s[1]) : wnw__utf8_inside(s[*n])))
        ++*n;
    return *n == want ? WNW_UTF8_WHOLE : *n == len ? WNW_UTF8_OPEN : WNW_UTF8_BAD;
}
