/* SPDX-License-Identifier: MIT */
/* Text of tokens as they are generated. */
#include "app/stream.h"

#include "app/console.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_WINDOW = 24, STREAM_OVERLAP = 4 }; /* tokens; see app_stream_add */

/* Adds bytes to the text and writes them to the echo. */
static int let_out(struct app_stream *st, const char *s, size_t len)
{
    const size_t before = st->text.len;
    if (!app_text_add_utf8(&st->text, s, len))
        return app_fail(APP_FAILED, "out of memory for the answer");
    if (st->echo && st->text.len > before) {
        /* The error is reported at once, because generating the rest of an unreadable answer would be in
         * vain. */
        const size_t n = st->text.len - before;
        errno = 0;
        if (fwrite(st->text.s + before, 1, n, st->echo) != n || fflush(st->echo) != 0)
            return app_stdout_failed();
    }
    return APP_OK;
}

static int push_id(struct app_stream *st, int32_t token)
{
    if (st->n == st->cap) {
        const int32_t cap = st->cap > 0 ? st->cap * 2 : 256;
        int32_t *grown = realloc(st->ids, (size_t)cap * sizeof *grown);
        if (!grown)
            return app_fail(APP_FAILED, "out of memory for the answer");
        st->ids = grown;
        st->cap = cap;
    }
    st->ids[st->n++] = token;
    return APP_OK;
}

int app_stream_add(struct app_stream *st, int32_t token)
{
    int rc = push_id(st, token);
    if (rc != APP_OK)
        return rc;
    /* The text of a token depends on its neighbours (blanks, split characters), so a window of tokens is
     * turned into text and only the new part of that text is shown. */
    char *text;
    int status = wnw_detokenize(st->model, st->ids + st->base, st->n - st->base, &text);
    if (status != WNW_OK)
        return app_fail_status(status);
    const size_t len = strlen(text);
    const size_t whole = app_utf8_whole(text, len);
    if (whole > st->done) {
        rc = let_out(st, text + st->done, whole - st->done);
        st->done = whole;
    }
    wnw_free(text);
    if (rc != APP_OK || whole < len || st->n - st->base < STREAM_WINDOW)
        return rc;
    st->base = st->n - STREAM_OVERLAP;
    status = wnw_detokenize(st->model, st->ids + st->base, STREAM_OVERLAP, &text);
    if (status != WNW_OK)
        return app_fail_status(status);
    st->done = strlen(text);
    wnw_free(text);
    return APP_OK;
}

int app_stream_end(struct app_stream *st)
{
    char *text;
    const int status = wnw_detokenize(st->model, st->ids + st->base, st->n - st->base, &text);
    if (status != WNW_OK)
        return app_fail_status(status);
    const size_t len = strlen(text);
    const int rc = len > st->done ? let_out(st, text + st->done, len - st->done) : APP_OK;
    st->done = len;
    wnw_free(text);
    return rc;
}

void app_stream_clear(struct app_stream *st)
{
    free(st->ids);
    free(st->text.s);
    *st = (struct app_stream){0};
}
