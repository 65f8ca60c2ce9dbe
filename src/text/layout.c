/* SPDX-License-Identifier: MIT */
/*
 * The places are found in the rendered text, because templates trim or change the messages. So are the bytes that came from
 * messages, which are not parsed for control tokens (decision 047).
 */
#include "text/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *wnw__talk_content(const char *document, const char *question, bool verbatim)
{
    const char *between = *document && *question && !verbatim ? "\n\n" : "";
    const size_t n = strlen(document) + strlen(between) + strlen(question) + 1;
    char *s = malloc(n);
    if (s)
        snprintf(s, n, "%s%s%s", document, between, question);
    return s;
}

static bool has_system(const struct wnw__talk *talk)
{
    return strcmp(talk->messages[0].role, "system") == 0;
}

/* Renders the messages with another content of the last one. */
static int render_with(struct wnw__rendered *out, const struct wnw__template *t, const struct wnw__talk *talk,
                       const char *content)
{
    wnw_chat_message *other = malloc((size_t)talk->n * sizeof *other);
    if (!other)
        return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    memcpy(other, talk->messages, (size_t)talk->n * sizeof *other);
    other[talk->n - 1].content = content;
    const int rc = wnw__render(out, t, other, talk->n, talk->n - 1);
    free(other);
    return rc;
}

/* ---- The border between document and question ---- */

/* Finds where the document ends in the content as the template writes it, for templates that change more than
 * the ends of a message: the rendered document alone begins the rendered whole. */
static int border_by_document(size_t *border, const struct wnw__template *t, const struct wnw__talk *talk,
                              const struct wnw__rendered *r)
{
    struct wnw__rendered alone = {0};
    WNW_TRY(render_with(&alone, t, talk, talk->document));
    const size_t n = wnw__trimmed_length(alone.text + alone.first, alone.end - alone.first);
    int rc = WNW_OK;
    if (n <= r->end - r->first && memcmp(alone.text + alone.first, r->text + r->first, n) == 0)
        *border = r->first + n;
    else
        rc = wnw__fail(WNW_E_UNSUPPORTED,
                       "the chat template changes the message so that the document's end is lost; "
                       "use --raw, or --chat NAME");
    wnw__rendered_clear(&alone);
    return rc;
}

static int find_border(size_t *border, const struct wnw__template *t, const struct wnw__talk *talk,
                       const struct wnw__rendered *r)
{
    const char *got = r->text + r->first, *content = talk->messages[talk->n - 1].content;
    const size_t n_got = r->end - r->first, n = strlen(content), n_document = strlen(talk->document);
    if (n_document == 0 || !*talk->question) {
        *border = n_document == 0 ? r->first : r->end;
        return WNW_OK;
    }
    if (n_got == n && memcmp(got, content, n) == 0) {
        *border = r->first + n_document;
        return WNW_OK;
    }
    const size_t lead = strspn(content, wnw__space), len = wnw__trimmed_length(content, n) - lead;
    if (n_got == len && memcmp(got, content + lead, len) == 0) {
        const size_t left = n_document > lead ? n_document - lead : 0;
        *border = r->first + (left < len ? left : len);
        return WNW_OK;
    }
    return border_by_document(border, t, talk, r);
}

/* ---- Templates around the messages themselves ---- */

/* Finds the byte where the text of the first turn begins in the rendered text. */
static int find_head(size_t *n_head, const struct wnw__template *t, const struct wnw__talk *talk,
                     const struct wnw__rendered *r)
{
    *n_head = r->first;
    for (int32_t i = has_system(talk); i < talk->n - 1; i++) {
        struct wnw__rendered turn;
        const int rc = wnw__render(&turn, t, talk->messages, talk->n, i);
        if (rc != WNW_OK && rc != WNW_E_UNSUPPORTED)
            return rc;
        if (rc == WNW_OK && turn.first < r->first)
            *n_head = turn.first;
        wnw__rendered_clear(&turn);
        if (rc == WNW_OK)
            break;
    }
    return WNW_OK;
}

/* Refuses a template that leaves the system message out: the model would seem to ignore that message. */
static int check_system(const struct wnw__template *t, const struct wnw__talk *talk,
                        const struct wnw__rendered *r)
{
    struct wnw__rendered shown = {0};
    const char *system = talk->messages[0].content;
    if (!has_system(talk) || !*system || strstr(r->text, system))
        return WNW_OK;
    const int rc = wnw__render(&shown, t, talk->messages, talk->n, 0);
    wnw__rendered_clear(&shown);
    if (rc == WNW_E_UNSUPPORTED)
        return wnw__fail(rc, "the chat template leaves the system message out; give none, or choose another "
                             "template with --chat NAME");
    return rc;
}

static int lay_out(struct wnw__layout *l, const struct wnw__template *t, const struct wnw__talk *talk)
{
    WNW_TRY(wnw__render(&l->r, t, talk->messages, talk->n, talk->n - 1));
    WNW_TRY(check_system(t, talk, &l->r));
    WNW_TRY(find_border(&l->border, t, talk, &l->r));
    return find_head(&l->n_head, t, talk, &l->r);
}

/* ---- Messages verbatim ---- */

/* Replaces a message while the template is rendered. */
enum { STAND_IN = 48 };

static int render_stand_ins(struct wnw__rendered *out, const struct wnw__template *t,
                            const struct wnw__talk *talk, char (*names)[STAND_IN])
{
    wnw_chat_message *other = malloc((size_t)talk->n * sizeof *other);
    if (!other)
        return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    for (int32_t i = 0; i < talk->n; i++) {
        snprintf(names[i], STAND_IN, "################################%d", (int)i);
        other[i] = (wnw_chat_message){talk->messages[i].role, names[i]};
    }
    const int rc = wnw__render(out, t, other, talk->n, talk->n - 1);
    free(other);
    return rc;
}

/* Puts the contents in the places of their markers. Each marker is there once and in order. */
static int replace_stand_ins(struct wnw__layout *l, const struct wnw__rendered *r,
                             const struct wnw__talk *talk, char (*names)[STAND_IN])
{
    size_t n = r->n, at = 0;
    for (int32_t i = 0; i < talk->n; i++)
        n += strlen(talk->messages[i].content);
    l->r.text = malloc(n + 1);
    l->r.input = malloc((size_t)talk->n * sizeof *l->r.input);
    if (!l->r.text || !l->r.input)
        return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    bool same = r->n_input == talk->n;
    for (int32_t i = 0; same && i < talk->n; i++) {
        const wnw_bytes *b = &r->input[i];
        const size_t len = strlen(talk->messages[i].content), n_words = b->from - at;
        same =
            b->to - b->from == strlen(names[i]) && memcmp(r->text + b->from, names[i], b->to - b->from) == 0;
        memcpy(l->r.text + l->r.n, r->text + at, n_words);
        memcpy(l->r.text + l->r.n + n_words, talk->messages[i].content, len);
        l->r.first = l->r.n + n_words;
        l->r.n = l->r.end = l->r.first + len;
        l->r.input[l->r.n_input++] = (wnw_bytes){l->r.first, l->r.end};
        at = b->to;
    }
    if (!same)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "the chat template does not write every message once, as it is; choose another with "
                         "--chat NAME, or --raw");
    memcpy(l->r.text + l->r.n, r->text + at, r->n - at);
    l->r.n += r->n - at;
    l->r.text[l->r.n] = '\0';
    return WNW_OK;
}

static int lay_out_verbatim(struct wnw__layout *l, const struct wnw__template *t,
                            const struct wnw__talk *talk)
{
    struct wnw__rendered r = {0};
    char(*names)[STAND_IN] = calloc((size_t)talk->n, sizeof *names);
    int rc =
        names ? render_stand_ins(&r, t, talk, names) : wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    if (rc == WNW_OK)
        rc = replace_stand_ins(l, &r, talk, names);
    if (rc == WNW_OK) {
        l->n_head = l->r.input[has_system(talk) && talk->n > 1].from;
        l->border = l->r.first + strlen(talk->document);
    }
    wnw__rendered_clear(&r);
    free(names);
    return rc;
}

/* ---- Without a template ---- */

/* Messages follow each other as text, a blank line between two of them. */
static int lay_out_raw(struct wnw__layout *l, const struct wnw__talk *talk)
{
    size_t n = 1;
    for (int32_t i = 0; i < talk->n; i++)
        n += strlen(talk->messages[i].content) + 2;
    l->r.text = malloc(n);
    l->r.input = malloc(sizeof *l->r.input);
    if (!l->r.text || !l->r.input)
        return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    for (int32_t i = 0; i < talk->n; i++) {
        const bool parted = i > 0 && strcmp(talk->messages[i].role, "user") == 0;
        l->r.first = l->r.n + (parted ? 2 : 0);
        l->r.n += (size_t)snprintf(l->r.text + l->r.n, n - l->r.n, "%s%s", parted ? "\n\n" : "",
                                   talk->messages[i].content);
    }
    l->r.end = l->r.n;
    l->r.input[0] = (wnw_bytes){0, l->r.n};
    l->r.n_input = 1;
    l->border = l->r.first + strlen(talk->document);
    return WNW_OK;
}

/* ---- All of them ---- */

void wnw__layout_clear(struct wnw__layout *l)
{
    wnw__rendered_clear(&l->r);
    *l = (struct wnw__layout){0};
}

/* Adds the beginning of the answer, which is no template's. */
static int add_begin(struct wnw__layout *l, const char *begin)
{
    const size_t n = strlen(begin);
    l->tail_end = l->r.n;
    if (n == 0)
        return WNW_OK;
    char *text = realloc(l->r.text, l->r.n + n + 1);
    if (!text)
        return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    l->r.text = text;
    wnw_bytes *input = realloc(l->r.input, ((size_t)l->r.n_input + 1) * sizeof *input);
    if (!input)
        return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    l->r.input = input;
    memcpy(text + l->r.n, begin, n + 1);
    input[l->r.n_input++] = (wnw_bytes){l->r.n, l->r.n + n};
    l->r.n += n;
    return WNW_OK;
}

int wnw__layout_make(struct wnw__layout *out, const struct wnw__template *t, const struct wnw__talk *talk)
{
    *out = (struct wnw__layout){0};
    int rc;
    if (!t->source)
        rc = lay_out_raw(out, talk);
    else
        rc = talk->verbatim ? lay_out_verbatim(out, t, talk) : lay_out(out, t, talk);
    if (rc == WNW_OK)
        rc = add_begin(out, talk->begin);
    if (rc != WNW_OK)
        wnw__layout_clear(out);
    return rc;
}
