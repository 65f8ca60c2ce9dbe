/* SPDX-License-Identifier: MIT */
/*
 * A conversation. Every user turn renders all of it; what was handed out as tokens before must be the beginning of that text,
 * and only the rest is tokenised. Where a template writes earlier turns differently than before, the tokens that the new text
 * still begins with stay, and the turn says how many these are.
 */
#include "base/err.h"
#include "base/strings.h"
#include "text/layout.h"
#include "text/text.h"
#include "winnow_chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wnw_chat {
    const wnw_model *m;
    struct wnw__template t;
    char *source; /* owned: what t.source points to where the caller gave it */
    bool special, verbatim;
    wnw_chat_message *messages; /* [n], roles and contents owned */
    int32_t n, cap;
    char *document;          /* of the last turn, owned */
    struct wnw__mark border; /* after it */
    char *begin;             /* of the answer that comes next, owned */
    bool asked;              /* the last message is the user's */
    int32_t *tokens;         /* [n_tokens] handed out and answered, owned */
    int32_t n_tokens, cap_tokens;
    char *text; /* [n_text] their text, owned */
    size_t n_text, cap_text;
    struct wnw__mark *marks; /* [n_mark] ascending: where pieces of tokens began; owned */
    int32_t n_mark, cap_mark;
    int32_t n_prefix; /* of the first prompt */
};

/* ---- Growing ---- */

static int no_memory(void)
{
    return wnw__fail(WNW_E_NOMEM, "no memory for the conversation");
}

static int add_message(wnw_chat *c, const char *role, char *content)
{
    char *copy = strdup(role);
    if (c->n == c->cap) {
        const int32_t cap = c->cap * 2 + 8;
        wnw_chat_message *more = realloc(c->messages, (size_t)cap * sizeof *more);
        if (more) {
            c->messages = more;
            c->cap = cap;
        }
    }
    if (!copy || !content || c->n == c->cap) {
        free(copy);
        free(content);
        return no_memory();
    }
    c->messages[c->n++] = (wnw_chat_message){copy, content};
    return WNW_OK;
}

static void drop_message(wnw_chat *c)
{
    c->n--;
    free((char *)c->messages[c->n].role);
    free((char *)c->messages[c->n].content);
}

/* Makes room for these numbers of tokens, bytes and marks in all, so that what follows cannot fail. */
static int make_room(wnw_chat *c, int32_t n_tokens, size_t n_text, int32_t n_mark)
{
    if (n_tokens >= c->cap_tokens || !c->tokens) {
        int32_t *more = realloc(c->tokens, ((size_t)n_tokens + 1) * sizeof *more);
        if (!more)
            return no_memory();
        c->tokens = more;
        c->cap_tokens = n_tokens + 1;
    }
    if (n_text >= c->cap_text || !c->text) {
        char *more = realloc(c->text, n_text + 1);
        if (!more)
            return no_memory();
        c->text = more;
        c->cap_text = n_text + 1;
    }
    if (n_mark >= c->cap_mark) {
        struct wnw__mark *more = realloc(c->marks, ((size_t)n_mark + 8) * sizeof *more);
        if (!more)
            return no_memory();
        c->marks = more;
        c->cap_mark = n_mark + 8;
    }
    return WNW_OK;
}

static void add_mark(wnw_chat *c, size_t text, int32_t tokens)
{
    if (c->n_mark == 0 || c->marks[c->n_mark - 1].tokens < tokens)
        c->marks[c->n_mark++] = (struct wnw__mark){text, tokens};
}

/* ---- Opening ---- */

/* A role goes into control tokens in some templates, so it must not bring one. */
static bool is_role(const char *s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return *s && !s[strspn(s, letters)];
}

static int check_params(const wnw_prompt_params *p, bool has_template)
{
    if (p->n_messages < 0 || (p->n_messages > 0 && !p->messages))
        return wnw__fail(WNW_E_ARG, "a prompt of %d earlier turns without any", (int)p->n_messages);
    for (int32_t i = 0; i < p->n_messages; i++)
        if (!p->messages[i].role || !p->messages[i].content)
            return wnw__fail(WNW_E_ARG, "message %d of the prompt has no role or no content", (int)i);
        else if (!is_role(p->messages[i].role))
            return wnw__fail(
                WNW_E_ARG, "message %d of the prompt has the role '%.40s'; use letters, digits, '_' and '-'",
                (int)i, p->messages[i].role);
    if (!has_template && (p->system || p->n_messages > 0))
        return wnw__fail(WNW_E_ARG,
                         "there is no chat template to put a system message or earlier turns in; choose "
                         "one with --chat NAME");
    if (p->system && p->n_messages > 0 && strcmp(p->messages[0].role, "system") == 0)
        return wnw__fail(WNW_E_ARG, "the prompt has two system messages; give one");
    return WNW_OK;
}

static int open_chat(wnw_chat *c, const wnw_prompt_params *p)
{
    WNW_TRY(wnw__template_find(&c->t, c->m, p));
    WNW_TRY(check_params(p, c->t.source != NULL));
    if (p->chat || p->jinja) { /* the caller's text, which may be gone when the next turn comes */
        c->source = strdup(c->t.source);
        if (!c->source)
            return no_memory();
        c->t.source = c->source;
    }
    if (p->system)
        WNW_TRY(add_message(c, "system", strdup(p->system)));
    for (int32_t i = 0; i < p->n_messages; i++)
        WNW_TRY(add_message(c, p->messages[i].role, strdup(p->messages[i].content)));
    return WNW_OK;
}

int wnw_chat_open(wnw_chat **out, const wnw_model *m, const wnw_prompt_params *params)
{
    wnw_prompt_params own = wnw_prompt_default_params();
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(m);
    WNW_TRY(WNW_SIZED_TAKE(wnw_prompt_params, &own, params));
    wnw_chat *c = calloc(1, sizeof *c);
    if (!c)
        return no_memory();
    c->m = m;
    c->special = own.special;
    c->verbatim = own.verbatim;
    const int rc = open_chat(c, &own);
    if (rc != WNW_OK) {
        wnw_chat_free(c);
        return rc;
    }
    *out = c;
    return WNW_OK;
}

void wnw_chat_free(wnw_chat *c)
{
    if (!c)
        return;
    while (c->n > 0)
        drop_message(c);
    wnw__template_clear(&c->t);
    free(c->source);
    free(c->messages);
    free(c->document);
    free(c->begin);
    free(c->tokens);
    free(c->text);
    free(c->marks);
    free(c);
}

/* ---- What stays of the tokens ---- */

static size_t common_bytes(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t i = 0;
    while (i < n_a && i < n_b && a[i] == b[i])
        i++;
    return i;
}

/* Walks from the mark over tokens whose texts are within the first n bytes, to the last border between characters. */
static int refine(struct wnw__mark *at, const wnw_chat *c, size_t n)
{
    struct wnw__mark next = *at;
    while (next.tokens < c->n_tokens && next.text < n) {
        char *piece;
        WNW_TRY(wnw_token_piece(c->m, c->tokens[next.tokens], &piece));
        /* A blank that the vocabulary put before a text is not in it. */
        const char *s = piece + (*piece == ' ' && c->text[next.text] != ' ');
        const size_t len = strlen(s);
        const bool same = len <= n - next.text && memcmp(s, c->text + next.text, len) == 0;
        free(piece);
        if (!same)
            return WNW_OK;
        next.text += len;
        next.tokens++;
        if (next.text == c->n_text || !wnw__utf8_inside(c->text[next.text]))
            *at = next;
    }
    return WNW_OK;
}

/* The last border between tokens up to which the new text is that of before. */
static int find_kept(struct wnw__mark *kept, const wnw_chat *c, const struct wnw__rendered *r)
{
    const size_t n = common_bytes(c->text, c->n_text, r->text, r->n);
    *kept = (struct wnw__mark){c->n_text, c->n_tokens};
    if (n == c->n_text)
        return WNW_OK;
    *kept = (struct wnw__mark){0};
    for (int32_t i = 0; i < c->n_mark && c->marks[i].text <= n; i++)
        *kept = c->marks[i];
    return refine(kept, c, n);
}

/* ---- Turns ---- */

/* Lays the conversation out. Some templates put a blank before an answer that the model has generated itself: where the
 * answer's tokens do not stay with it, its text is tried without. */
static int lay_out(struct wnw__layout *l, struct wnw__mark *kept, const wnw_chat *c,
                   const struct wnw__talk *talk)
{
    struct wnw__layout other;
    struct wnw__mark other_kept;
    WNW_TRY(wnw__layout_make(l, &c->t, talk));
    WNW_TRY(find_kept(kept, c, &l->r));
    wnw_chat_message *answer = talk->n > 1 ? &c->messages[talk->n - 2] : NULL;
    if (kept->tokens == c->n_tokens || !answer || answer->content[0] != ' ')
        return WNW_OK;
    answer->content++;
    int rc = wnw__layout_make(&other, &c->t, talk);
    answer->content--;
    WNW_TRY(rc);
    rc = find_kept(&other_kept, c, &other.r);
    if (rc == WNW_OK && other_kept.tokens > kept->tokens) {
        const struct wnw__layout was = *l;
        *l = other;
        other = was;
        *kept = other_kept;
    }
    wnw__layout_clear(&other);
    return rc;
}

static int build(wnw_prompt *out, struct wnw__mark *kept, size_t *border, const wnw_chat *c,
                 const struct wnw__talk *talk)
{
    struct wnw__layout l = {0};
    int rc = lay_out(&l, kept, c, talk);
    out->n_prefix = c->n_prefix;
    if (rc == WNW_OK) {
        *border = *border == SIZE_MAX || l.border < kept->text ? kept->text : l.border;
        const struct wnw__turn turn = {.m = c->m,
                                       .kept = *kept,
                                       .before = kept->tokens > 0 ? c->tokens[kept->tokens - 1] : -1,
                                       .border = *border,
                                       .special = c->special};
        rc = wnw__turn_tokenize(out, &turn, &l);
    }
    wnw__layout_clear(&l);
    return rc;
}

/* Makes the conversation one that has handed out the prompt's tokens. */
static int commit(wnw_chat *c, const wnw_prompt *p, const struct wnw__mark *kept, size_t border,
                  const struct wnw__talk *talk)
{
    char *begin = strdup(talk->begin), *document = strdup(talk->document);
    const int rc =
        begin && document ? make_room(c, p->n_past + p->n_tokens, p->n_text, c->n_mark + 2) : no_memory();
    if (rc != WNW_OK) {
        free(begin);
        free(document);
        return rc;
    }
    while (c->n_mark > 0 && c->marks[c->n_mark - 1].tokens > kept->tokens)
        c->n_mark--;
    memcpy(c->tokens + p->n_past, p->tokens, (size_t)p->n_tokens * sizeof *c->tokens);
    memcpy(c->text, p->text, p->n_text + 1);
    c->n_tokens = p->n_past + p->n_tokens;
    c->n_text = p->n_text;
    c->n_prefix = p->n_prefix;
    c->border = (struct wnw__mark){border, p->n_past + p->n_context};
    add_mark(c, kept->text, kept->tokens);
    add_mark(c, c->border.text, c->border.tokens);
    free(c->begin);
    free(c->document);
    c->begin = begin;
    c->document = document;
    c->asked = true;
    return WNW_OK;
}

/* Adds the message of a turn, and takes it back on failure. */
static int ask(wnw_prompt *out, wnw_chat *c, struct wnw__talk *talk, bool parted)
{
    struct wnw__mark kept = {0};
    size_t border = parted ? 0 : SIZE_MAX;
    WNW_TRY(add_message(c, "user", wnw__talk_content(talk->document, talk->question, talk->verbatim)));
    talk->messages = c->messages;
    talk->n = c->n;
    int rc = build(out, &kept, &border, c, talk);
    if (rc == WNW_OK)
        rc = commit(c, out, &kept, border, talk);
    if (rc != WNW_OK)
        drop_message(c);
    return rc;
}

/* Asks another question in place of the last one. */
static int ask_again(wnw_prompt *out, wnw_chat *c, struct wnw__talk *talk)
{
    const wnw_chat_message last = c->messages[c->n - 1];
    const int32_t n_tokens = c->n_tokens;
    const size_t n_text = c->n_text;
    char *document = strdup(c->document);
    if (!document)
        return no_memory();
    talk->document = document;
    c->n--;
    c->n_tokens = c->border.tokens;
    c->n_text = c->border.text;
    const int rc = ask(out, c, talk, *document != '\0'); /* else the turn begins where it is to be parted */
    free(document);
    if (rc == WNW_OK) {
        free((char *)last.role);
        free((char *)last.content);
        return WNW_OK;
    }
    c->messages[c->n++] = last; /* its place is still there */
    c->n_tokens = n_tokens;
    c->n_text = n_text;
    return rc;
}

int wnw_chat_user(wnw_prompt **out, wnw_chat *c, const char *document, const char *question,
                  const char *begin)
{
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(c);
    struct wnw__talk talk = {.document = document ? document : "",
                             .question = question ? question : "",
                             .begin = begin ? begin : "",
                             .verbatim = c->verbatim};
    const bool again = c->asked && !document;
    if (c->asked && document)
        return wnw__fail(WNW_E_ARG, "the conversation waits for an answer; add it before the next turn");
    if (!c->verbatim && !*talk.document && !*talk.question && !(again && *c->document))
        return wnw__fail(WNW_E_ARG, "the prompt is empty: give a document, a question or both");
    wnw_prompt *prompt = calloc(1, sizeof *prompt);
    if (!prompt)
        return no_memory();
    const int rc = again ? ask_again(prompt, c, &talk) : ask(prompt, c, &talk, document || c->n_tokens == 0);
    if (rc != WNW_OK) {
        wnw_prompt_free(prompt);
        return rc;
    }
    *out = prompt;
    return WNW_OK;
}

/* ---- Answers ---- */

static int check_answer(const wnw_chat *c)
{
    return c->asked ? WNW_OK
                    : wnw__fail(WNW_E_ARG, "there is no question to answer; add a user's turn first");
}

/* Adds what the model said after the beginning that it was given. */
static int add_answer(wnw_chat *c, const char *text)
{
    const size_t n = strlen(c->begin) + strlen(text) + 1;
    char *content = malloc(n);
    if (content)
        snprintf(content, n, "%s%s", c->begin, text);
    WNW_TRY(add_message(c, "assistant", content));
    c->asked = false;
    return WNW_OK;
}

int wnw_chat_answer_text(wnw_chat *c, const char *text)
{
    WNW_REQUIRE(c);
    WNW_REQUIRE(text);
    WNW_TRY(check_answer(c));
    return add_answer(c, text);
}

static int check_ids(const wnw_chat *c, const int32_t *tokens, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= wnw__vocab_size(c->m))
            return wnw__fail(WNW_E_RANGE, "token %d of the answer is %d, the vocabulary has 0 to %d", (int)i,
                             (int)tokens[i], (int)wnw__vocab_size(c->m) - 1);
    return n < 0 ? wnw__fail(WNW_E_RANGE, "an answer of %d tokens", (int)n) : WNW_OK;
}

/* The caller frees *all and *said in any case. */
static int take_answer(wnw_chat *c, const int32_t *tokens, int32_t n, char **all, char **said)
{
    WNW_TRY(wnw__detokenize_all(c->m, tokens, n, all));
    WNW_TRY(wnw_detokenize(c->m, tokens, n, said));
    const size_t length = strlen(*all);
    WNW_TRY(make_room(c, c->n_tokens + n, c->n_text + length, c->n_mark + 1));
    WNW_TRY(add_answer(c, *said));
    add_mark(c, c->n_text, c->n_tokens);
    memcpy(c->text + c->n_text, *all, length + 1);
    c->n_text += length;
    if (n > 0)
        memcpy(c->tokens + c->n_tokens, tokens, (size_t)n * sizeof *tokens);
    c->n_tokens += n;
    return WNW_OK;
}

int wnw_chat_answer(wnw_chat *c, const int32_t *tokens, int32_t n)
{
    char *all = NULL, *said = NULL;
    WNW_REQUIRE(c);
    WNW_REQUIRE(tokens || n < 1);
    WNW_TRY(check_answer(c));
    WNW_TRY(check_ids(c, tokens, n));
    const int rc = take_answer(c, tokens, n, &all, &said);
    free(all);
    free(said);
    return rc;
}

const int32_t *wnw_chat_tokens(const wnw_chat *c, int32_t *n)
{
    if (n)
        *n = c ? c->n_tokens : 0;
    return c ? c->tokens : NULL;
}
