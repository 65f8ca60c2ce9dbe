/* SPDX-License-Identifier: MIT */
/* Growing text and UTF-8. */
#include "app/text.h"
#include "base/strings.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool app_text_reserve(struct app_text *t, size_t len)
{
    if (len < t->cap)
        return true;
    char *grown = len < SIZE_MAX / 2 ? realloc(t->s, len + 1) : NULL;
    if (!grown)
        return false;
    t->s = grown;
    t->cap = len + 1;
    return true;
}

bool app_text_add(struct app_text *t, const char *s, size_t len)
{
    if (len > SIZE_MAX / 4 - t->len ||
        (t->len + len + 1 > t->cap && !app_text_reserve(t, (t->len + len + 1) * 2)))
        return false;
    if (len > 0)
        memcpy(t->s + t->len, s, len);
    t->len += len;
    t->s[t->len] = '\0';
    return true;
}

bool app_text_vput(struct app_text *t, const char *fmt, va_list ap)
{
    char *text;
    const int n = vasprintf(&text, fmt, ap);
    const bool good = n >= 0 && app_text_add(t, text, (size_t)n);
    if (n >= 0)
        free(text);
    return good;
}

bool app_text_put(struct app_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const bool good = app_text_vput(t, fmt, ap);
    va_end(ap);
    return good;
}

/* Adds s and counts the invalid sequences; *first becomes the place of the first one. */
static bool add_counted(struct app_text *t, const char *s, size_t len, size_t *n_bad, size_t *first)
{
    *n_bad = *first = 0;
    for (size_t i = 0; i < len;) {
        size_t n;
        const bool whole = wnw__utf8_scan(s + i, len - i, &n) == WNW_UTF8_WHOLE;
        if (!whole && (*n_bad)++ == 0)
            *first = i;
        if (!(whole ? app_text_add(t, s + i, n) : app_text_add(t, "\xef\xbf\xbd", 3)))
            return false;
        i += n;
    }
    return true;
}

bool app_text_add_utf8(struct app_text *t, const char *s, size_t len)
{
    size_t n_bad, first;
    return add_counted(t, s, len, &n_bad, &first);
}

bool app_text_repair_counted(struct app_text *t, size_t *n_bad, size_t *first)
{
    struct app_text fixed = {0};
    size_t good = 0, n;
    *n_bad = *first = 0;
    while (good < t->len && wnw__utf8_scan(t->s + good, t->len - good, &n) == WNW_UTF8_WHOLE)
        good += n;
    if (good == t->len)
        return true;
    if (!app_text_add(&fixed, t->s, good) || !add_counted(&fixed, t->s + good, t->len - good, n_bad, first)) {
        free(fixed.s);
        return false;
    }
    *first += good;
    free(t->s);
    *t = fixed;
    return true;
}

bool app_text_repair(struct app_text *t)
{
    size_t n_bad, first;
    return app_text_repair_counted(t, &n_bad, &first);
}

void app_note_warning(wnw_log_level level, const char *text, void *user)
{
    struct app_text *notes = user;
    if (level != WNW_LOG_WARN)
        return;
    if (notes->len > 0)
        app_text_add(notes, "\n", 1);
    app_text_add_utf8(notes, text, strlen(text));
}

/* ---- Control characters ---- */

size_t app_control_bytes(const char *s)
{
    const unsigned char *u = (const unsigned char *)s;
    if (u[0] < 0x20 || u[0] == 0x7f)
        return u[0] != '\0';
    if (u[0] == 0xc2)
        return u[1] >= 0x80 && u[1] < 0xa0 ? 2 : 0;
    return u[0] == 0xe2 && ((u[1] == 0x80 && u[2] >= 0xaa && u[2] <= 0xae) ||
                            (u[1] == 0x81 && u[2] >= 0xa6 && u[2] <= 0xa9))
               ? 3
               : 0;
}

unsigned app_control_code(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    if (n == 1)
        return u[0];
    if (n == 2)
        return (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
    return (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
}

size_t app_control_step(const char *s, bool *control)
{
    const size_t n = app_control_bytes(s);
    size_t fits;
    *control = n > 0;
    if (n > 0)
        return n;
    const bool whole = wnw__utf8_scan(s, strnlen(s, 4), &fits) == WNW_UTF8_WHOLE;
    *control = !whole && (unsigned char)*s >= 0x80 && (unsigned char)*s < 0xa0;
    return whole ? fits : 1;
}

void app_hide_controls(char *s, bool lines)
{
    char *to = s;
    while (*s) {
        bool control;
        const size_t n = app_control_step(s, &control);
        if (control && !(lines && *s == '\n'))
            *to++ = '?';
        else {
            memmove(to, s, n);
            to += n;
        }
        s += n;
    }
    *to = '\0';
}
