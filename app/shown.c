/* SPDX-License-Identifier: MIT */
#include "app/shown.h"

#include "app/text.h"
#include "base/strings.h"

#include <string.h>
#include <unistd.h>

void app_shown_begin(struct app_shown *s, FILE *f)
{
    *s = (struct app_shown){.f = f, .terminal = isatty(fileno(f)) == 1};
}

static bool put_byte(const struct app_shown *s, char byte)
{
    return fprintf(s->f, "\\x%02x", (unsigned char)byte) > 0;
}

/* A control character, by its number. */
static bool put_control(const struct app_shown *s, const char *c, size_t n)
{
    return n == 1 ? put_byte(s, *c) : fprintf(s->f, "\\u%04x", app_control_code(c, n)) > 0;
}

static bool put_return(struct app_shown *s)
{
    const bool good = !s->returned || put_byte(s, '\r');
    s->returned = false;
    return good;
}

/* A whole character. */
static bool put_character(struct app_shown *s, const char *c, size_t n)
{
    char text[5] = {0};
    memcpy(text, c, n);
    if (*c == '\n') {
        s->returned = false;
        return putc('\n', s->f) != EOF;
    }
    if (!put_return(s))
        return false;
    if (*c == '\r') {
        s->returned = true;
        return true;
    }
    const bool control = *c == '\0' || (*c != '\t' && app_control_bytes(text) > 0);
    return control ? put_control(s, c, n) : fwrite(c, 1, n, s->f) == n;
}

/* Bytes that are no character. */
static bool put_bytes(struct app_shown *s, const char *c, size_t n)
{
    bool good = put_return(s);
    for (size_t i = 0; good && i < n; i++)
        good = put_byte(s, c[i]);
    return good;
}

/* Completes what the last piece began, as far as this one goes. Returns the bytes that it took. */
static size_t complete(struct app_shown *s, const char *text, size_t n, bool *good)
{
    size_t i = 0;
    while (s->n_begun > 0 && i < n && *good) {
        size_t fits;
        s->begun[s->n_begun++] = text[i++];
        const enum wnw__utf8 what = wnw__utf8_scan(s->begun, s->n_begun, &fits);
        const bool whole = what == WNW_UTF8_WHOLE;
        if (what == WNW_UTF8_OPEN)
            continue;
        *good = whole ? put_character(s, s->begun, s->n_begun) : put_bytes(s, s->begun, s->n_begun - 1);
        i -= !whole; /* the last byte begins something else */
        s->n_begun = 0;
    }
    return i;
}

bool app_shown_write(struct app_shown *s, const char *text, size_t n)
{
    bool good = true;
    if (!s->terminal)
        return fwrite(text, 1, n, s->f) == n;
    for (size_t i = complete(s, text, n, &good); good && i < n;) {
        size_t fits;
        const enum wnw__utf8 what = wnw__utf8_scan(text + i, n - i, &fits);
        if (what == WNW_UTF8_OPEN) {
            memcpy(s->begun, text + i, fits);
            s->n_begun = fits;
            break;
        }
        good = what == WNW_UTF8_WHOLE ? put_character(s, text + i, fits) : put_bytes(s, text + i, fits);
        i += fits;
    }
    return good;
}

bool app_shown_end(struct app_shown *s)
{
    const bool good = s->n_begun > 0 ? put_bytes(s, s->begun, s->n_begun) : put_return(s);
    s->n_begun = 0;
    return good;
}
