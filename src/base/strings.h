/* SPDX-License-Identifier: MIT */
/* Text as bytes: numbers in it, whole characters, base64, and the name that a mistyped word meant. */
#ifndef WNW_BASE_STRINGS_H
#define WNW_BASE_STRINGS_H

#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- Numbers ----
 * They have a point, regardless of the host program's locale: recipes, profiles and messages read the same everywhere. Only the
 * calling thread's locale is changed, and set back. */

/* The thread's own locale while another is in use. */
struct wnw__locale {
    locale_t plain, before;
};
/* From here to wnw__locale_end the calling thread reads and writes as in the C locale. */
void wnw__locale_begin(struct wnw__locale *l);
void wnw__locale_end(struct wnw__locale *l);

/* strtod, snprintf and vsnprintf in the C locale. */
double wnw__to_double(const char *text, char **end);
int wnw__format(char *out, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int wnw__vformat(char *out, size_t size, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

/* ---- Names ---- */

/* Whether text[len] is this name. Most names differ in their first letters, so that nobody counts the rest. */
static inline bool wnw__is_name(const char *text, size_t len, const char *name)
{
    for (size_t i = 0; i < len; i++)
        if (name[i] == '\0' || name[i] != text[i])
            return false;
    return name[len] == '\0';
}

/* ---- Characters: texts that are cut anywhere begin and end with whole ones again ---- */

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
    const size_t whole = 2 + (size_t)(first >= 0xe0) + (size_t)(first >= 0xf0);
    return back < whole ? len - back : len;
}

/* ---- Base64: bytes as text of the alphabet A-Z a-z 0-9 + / with = at the end (RFC 4648, section 4) ---- */

/* Characters of the text of n bytes, without the NUL. */
#define WNW_BASE64_LENGTH(n) (((size_t)(n) + 2) / 3 * 4)

/* Writes the text of from[n] and a NUL to `to`, which has room for WNW_BASE64_LENGTH(n) + 1. */
void wnw__base64_write(char *to, const void *from, size_t n);
/* Reads text[len] into to[n]. False unless it is the text of exactly n bytes, as wnw__base64_write writes it. */
bool wnw__base64_read(void *to, size_t n, const char *text, size_t len);

/* ---- Names ----
 * The known name that a mistyped word meant is the one at the smallest edit distance (letters that are inserted, left out or
 * replaced), the first of several. At most a third of the longer word, rounded up, may be wrong. In a short word two letters
 * may be wrong. At least one letter of the name must be right. */

/* Starts with .word and .len set, and is then shown every name. */
struct wnw__guess {
    const char *word;
    size_t len;
    const char *best; /* NULL while no name is near enough */
    int distance;
};
void wnw__guess_name(struct wnw__guess *g, const char *name);

/* The same for a list of names, which ends with NULL. */
const char *wnw__nearest(const char *word, const char *const *names);

#endif
