/* SPDX-License-Identifier: MIT */
/* UTF-8 and the text of a growing answer. */
#include "app/app.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_WINDOW = 24, STREAM_OVERLAP = 4 }; /* tokens; see cli_stream_add */

bool cli_text_reserve(struct cli_text *t, size_t len)
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

bool cli_text_add(struct cli_text *t, const char *s, size_t len)
{
    if (len > SIZE_MAX / 4 - t->len ||
        (t->len + len + 1 > t->cap && !cli_text_reserve(t, (t->len + len + 1) * 2)))
        return false;
    if (len > 0)
        memcpy(t->s + t->len, s, len);
    t->len += len;
    t->s[t->len] = '\0';
    return true;
}

/* Bytes a sequence with this first byte has; 0 if no sequence starts so. */
static size_t sequence_length(unsigned char c)
{
    if (c < 0x80)
        return 1;
    if (c >= 0xc2 && c <= 0xdf)
        return 2;
    if (c >= 0xe0 && c <= 0xef)
        return 3;
    if (c >= 0xf0 && c <= 0xf4)
        return 4;
    return 0;
}

static bool second_byte_fits(unsigned char first, unsigned char c)
{
    /* The narrower ranges shut out overlong forms, surrogates and code points past U+10FFFF. */
    const unsigned char lo = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned char hi = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    return c >= lo && c <= hi;
}

/* Bytes of the longest well-formed beginning of a sequence at s; *whole says whether it is a full one. */
static size_t scan_sequence(const char *s, size_t len, bool *whole)
{
    const unsigned char *u = (const unsigned char *)s;
    const size_t want = sequence_length(u[0]);
    size_t n = want > 0 ? 1 : 0;
    while (n > 0 && n < want && n < len && (n == 1 ? second_byte_fits(u[0], u[1]) : (u[n] & 0xc0) == 0x80))
        n++;
    *whole = want > 0 && n == want;
    return n;
}

bool cli_text_add_utf8(struct cli_text *t, const char *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        bool whole;
        const size_t n = scan_sequence(s + i, len - i, &whole);
        if (!(whole ? cli_text_add(t, s + i, n) : cli_text_add(t, "\xef\xbf\xbd", 3)))
            return false;
        i += n > 0 ? n : 1;
    }
    return true;
}

bool cli_text_repair(struct cli_text *t)
{
    struct cli_text fixed = {0};
    size_t good = 0;
    bool whole = true;
    while (good < t->len) {
        const size_t n = scan_sequence(t->s + good, t->len - good, &whole);
        if (!whole)
            break;
        good += n;
    }
    if (good == t->len)
        return true;
    if (!cli_text_add(&fixed, t->s, good) || !cli_text_add_utf8(&fixed, t->s + good, t->len - good)) {
        free(fixed.s);
        return false;
    }
    free(t->s);
    *t = fixed;
    return true;
}

void cli_note_warning(wnw_log_level level, const char *text, void *user)
{
    struct cli_text *notes = user;
    if (level != WNW_LOG_WARN)
        return;
    if (notes->len > 0)
        cli_text_add(notes, "\n", 1);
    cli_text_add_utf8(notes, text, strlen(text));
}

size_t cli_utf8_whole(const char *s, size_t len)
{
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        const char *from = s + len - back;
        if (((unsigned char)*from & 0xc0) == 0x80)
            continue;
        bool whole;
        const size_t n = scan_sequence(from, back, &whole);
        /* An incomplete sequence is worth waiting for only if all its bytes so far fit. */
        return !whole && n == back ? len - back : len;
    }
    return len;
}

/* Moves bytes into the text and to the echo. */
static int let_out(struct cli_stream *st, const char *s, size_t len)
{
    const size_t before = st->text.len;
    if (!cli_text_add_utf8(&st->text, s, len))
        return cli_fail(CLI_FAILED, "out of memory for the answer");
    if (st->echo && st->text.len > before) {
        /* Said at once: nobody waits for the rest of an answer that cannot be read. */
        const size_t n = st->text.len - before;
        errno = 0;
        if (fwrite(st->text.s + before, 1, n, st->echo) != n || fflush(st->echo) != 0)
            return cli_stdout_failed();
    }
    return CLI_OK;
}

static int push_id(struct cli_stream *st, int32_t token)
{
    if (st->n == st->cap) {
        const int32_t cap = st->cap > 0 ? st->cap * 2 : 256;
        int32_t *grown = realloc(st->ids, (size_t)cap * sizeof *grown);
        if (!grown)
            return cli_fail(CLI_FAILED, "out of memory for the answer");
        st->ids = grown;
        st->cap = cap;
    }
    st->ids[st->n++] = token;
    return CLI_OK;
}

int cli_stream_add(struct cli_stream *st, int32_t token)
{
    int rc = push_id(st, token);
    if (rc != CLI_OK)
        return rc;
    /* The text of a token depends on its neighbours (blanks, split characters), so a window of tokens is
     * turned into text and only what is new is let out. */
    char *text;
    int status = wnw_detokenize(st->model, st->ids + st->base, st->n - st->base, &text);
    if (status != WNW_OK)
        return cli_fail_status(status);
    const size_t len = strlen(text);
    const size_t whole = cli_utf8_whole(text, len);
    if (whole > st->done) {
        rc = let_out(st, text + st->done, whole - st->done);
        st->done = whole;
    }
    wnw_free(text);
    if (rc != CLI_OK || whole < len || st->n - st->base < STREAM_WINDOW)
        return rc;
    st->base = st->n - STREAM_OVERLAP;
    status = wnw_detokenize(st->model, st->ids + st->base, STREAM_OVERLAP, &text);
    if (status != WNW_OK)
        return cli_fail_status(status);
    st->done = strlen(text);
    wnw_free(text);
    return CLI_OK;
}

int cli_stream_end(struct cli_stream *st)
{
    char *text;
    const int status = wnw_detokenize(st->model, st->ids + st->base, st->n - st->base, &text);
    if (status != WNW_OK)
        return cli_fail_status(status);
    const size_t len = strlen(text);
    const int rc = len > st->done ? let_out(st, text + st->done, len - st->done) : CLI_OK;
    st->done = len;
    wnw_free(text);
    return rc;
}

void cli_stream_clear(struct cli_stream *st)
{
    free(st->ids);
    free(st->text.s);
    *st = (struct cli_stream){0};
}
