/* SPDX-License-Identifier: MIT */
#include "base/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void wnw__base64_write(char *to, const void *from, size_t n)
{
    const uint8_t *b = from;
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const uint32_t x =
            (uint32_t)b[i] << 16 | (left > 1 ? (uint32_t)b[i + 1] << 8 : 0) | (left > 2 ? b[i + 2] : 0);
        *to++ = alphabet[x >> 18];
        *to++ = alphabet[x >> 12 & 63];
        *to++ = '=';
        *to++ = '=';
        if (left > 1)
            to[-2] = alphabet[x >> 6 & 63];
        if (left > 2)
            to[-1] = alphabet[x & 63];
    }
    *to = '\0';
}

/* The number of a character; -1 for any other. */
static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool wnw__base64_read(void *to, size_t n, const char *text, size_t len)
{
    uint8_t *b = to;
    if (len != WNW_BASE64_LENGTH(n))
        return false;
    for (size_t i = 0; i < n; i += 3, text += 4) {
        const size_t left = n - i < 3 ? n - i : 3;
        uint32_t x = 0;
        for (size_t k = 0; k < 4; k++) {
            const int v = k <= left ? value_of(text[k]) : text[k] == '=' ? 0 : -1;
            if (v < 0)
                return false;
            x = x << 6 | (uint32_t)v;
        }
        for (size_t k = 0; k < 3; k++) {
            const uint8_t byte = (uint8_t)(x >> (16 - 8 * k));
            if (k < left)
                b[i + k] = byte;
            else if (byte != 0) /* bits that no byte has */
                return false;
        }
    }
    return true;
}
