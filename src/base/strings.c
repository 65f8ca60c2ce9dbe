/* SPDX-License-Identifier: MIT */
#include "base/strings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Numbers ---- */

void wnw__locale_begin(struct wnw__locale *l)
{
    /* The C locale is built into the C library, so that no file is read. Without it the thread keeps its own. */
    l->plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    l->before = l->plain ? uselocale(l->plain) : (locale_t)0;
}

void wnw__locale_end(struct wnw__locale *l)
{
    if (!l->plain)
        return;
    uselocale(l->before);
    freelocale(l->plain);
}

double wnw__to_double(const char *text, char **end)
{
    struct wnw__locale l;
    wnw__locale_begin(&l);
    const double v = strtod(text, end);
    wnw__locale_end(&l);
    return v;
}

int wnw__vformat(char *out, size_t size, const char *fmt, va_list ap)
{
    struct wnw__locale l;
    wnw__locale_begin(&l);
    const int n = vsnprintf(out, size, fmt, ap);
    wnw__locale_end(&l);
    return n;
}

int wnw__format(char *out, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = wnw__vformat(out, size, fmt, ap);
    va_end(ap);
    return n;
}

/* ---- Characters ---- */

/* Bytes of a sequence with this first byte; 0 if none begins with it. */
static size_t length_of(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c < 0xc2 || c > 0xf4)
        return 0;
    if (c < 0xe0)
        return 2;
    if (c < 0xf0)
        return 3;
    return 4;
}

/* The narrower ranges shut out overlong forms, surrogates and code points past U+10FFFF. */
static bool second_fits(unsigned char first, unsigned char c)
{
    switch (first) {
    case 0xe0:
        return c >= 0xa0 && c <= 0xbf;
    case 0xed:
        return c >= 0x80 && c <= 0x9f;
    case 0xf0:
        return c >= 0x90 && c <= 0xbf;
    case 0xf4:
        return c >= 0x80 && c <= 0x8f;
    default:
        return c >= 0x80 && c <= 0xbf;
    }
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
    if (*n == want)
        return WNW_UTF8_WHOLE;
    if (*n == len)
        return WNW_UTF8_OPEN;
    return WNW_UTF8_BAD;
}

/* ---- Base64 ---- */

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
    if (c == '+')
        return 62;
    if (c == '/')
        return 63;
    return -1;
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
            const int end = text[k] == '=' ? 0 : -1, v = k <= left ? value_of(text[k]) : end;
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

/* ---- Names ---- */

/* Edit distance, computed with one row of the matrix; above `most` it is any number above `most`. Words longer than the row get no
 * suggestion. Most names of a list are far from a word, which their lengths or a few of its letters show: no later row of the matrix has a
 * number below the least of this one. */
static int edit_distance(const char *a, size_t na, const char *b, size_t nb, int most)
{
    int row[65];
    if (na > 64 || nb > 64 || abs((int)na - (int)nb) > most)
        return most + 1;
    for (size_t j = 0; j <= nb; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0], least = (int)i;
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            const int above = row[j];
            int best = diagonal + (a[i - 1] != b[j - 1]);
            best = best < above + 1 ? best : above + 1;
            best = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
            row[j] = best;
            least = best < least ? best : least;
            diagonal = above;
        }
        if (least > most)
            return most + 1;
    }
    return row[nb];
}

/* Letters of a name that may be wrong; below 0 where no word means it. */
static int most_wrong(const struct wnw__guess *g, size_t len)
{
    const int third = (int)(((g->len > len ? g->len : len) + 2) / 3);
    int most = third > 2 ? third : 2;
    if (most >= (int)len)
        most = (int)len - 1;
    return g->best && most >= g->distance ? g->distance - 1 : most;
}

void wnw__guess_name(struct wnw__guess *g, const char *name)
{
    const size_t len = strlen(name);
    const int most = most_wrong(g, len), d = edit_distance(g->word, g->len, name, len, most);
    if (d > most)
        return;
    g->best = name;
    g->distance = d;
}

const char *wnw__nearest(const char *word, const char *const *names)
{
    struct wnw__guess g = {.word = word, .len = strlen(word)};
    for (int i = 0; names[i]; i++)
        wnw__guess_name(&g, names[i]);
    return g.best;
}
