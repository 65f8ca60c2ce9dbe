/* SPDX-License-Identifier: MIT */
#include "text/text.h"

#include "base/strings.h"

#include <stdlib.h>
#include <string.h>

void wnw__stream_free(struct wnw__stream *st)
{
    free(st->text);
    *st = (struct wnw__stream){0};
}

static int put(struct wnw__stream *st, const char *s, size_t n)
{
    if (st->cap - st->n < n + 1) {
        const size_t cap = st->cap * 2 + n + 64;
        char *more = realloc(st->text, cap);
        if (!more)
            return wnw__fail(WNW_E_NOMEM, "no memory for a text of %zu bytes", cap);
        st->text = more;
        st->cap = cap;
    }
    memcpy(st->text + st->n, s, n);
    st->n += n;
    st->text[st->n] = '\0';
    return WNW_OK;
}

/* Puts the whole characters of s[n]; the beginning of one at the end waits. A NUL, which would hide stop strings, is no
 * text. */
static int put_characters(struct wnw__stream *st, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t n_now;
        const enum wnw__utf8 what = wnw__utf8_scan(s + i, n - i, &n_now);
        if (what == WNW_UTF8_OPEN) {
            st->n_open = n_now;
            memcpy(st->open, s + i, n_now);
            return WNW_OK;
        }
        WNW_TRY(what == WNW_UTF8_WHOLE && s[i] ? put(st, s + i, n_now) : put(st, "\xef\xbf\xbd", 3));
        i += n_now;
    }
    return WNW_OK;
}

/* ---- Stop strings ---- */

/* Length of the longest beginning of a stop string, not the whole, with which the text ends. */
static size_t n_undecided(const struct wnw__stream *st)
{
    size_t most = 0;
    for (int32_t k = 0; k < st->n_stop; k++)
        for (size_t n = strlen(st->stop[k]) - 1; n > most; n--)
            if (n <= st->n - st->ready && memcmp(st->text + st->n - n, st->stop[k], n) == 0)
                most = n;
    return most;
}

/* Cuts the text before the first stop string at or after `from`. */
static void find_stop(struct wnw__stream *st)
{
    const char *first = NULL;
    for (int32_t k = 0; k < st->n_stop; k++) {
        const char *at = strstr(st->text + st->ready, st->stop[k]);
        first = at && (!first || at < first) ? at : first;
    }
    if (!first)
        return;
    st->stopped = true;
    st->n = (size_t)(first - st->text);
    st->text[st->n] = '\0';
    st->n_open = 0;
}

int wnw__stream_add(struct wnw__stream *st, const char *bytes, size_t n)
{
    if (st->stopped || n == 0)
        return WNW_OK;
    const size_t n_open = st->n_open;
    char *all = malloc(n_open + n);
    if (!all)
        return wnw__fail(WNW_E_NOMEM, "no memory for a text of %zu bytes", n_open + n);
    memcpy(all, st->open, n_open);
    memcpy(all + n_open, bytes, n);
    st->n_open = 0;
    const int rc = put_characters(st, all, n_open + n);
    free(all);
    WNW_TRY(rc);
    if (st->text)
        find_stop(st);
    st->ready = st->stopped || !st->text ? st->n : st->n - n_undecided(st);
    return WNW_OK;
}

int wnw__stream_end(struct wnw__stream *st)
{
    if (st->n_open > 0)
        WNW_TRY(put(st, "\xef\xbf\xbd", 3));
    st->n_open = 0;
    st->ready = st->n;
    return WNW_OK;
}
