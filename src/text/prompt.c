/* SPDX-License-Identifier: MIT */
/*
 * Prompts: messages in a chat template, cut in two pieces behind the document. The place of the cut is found
 * in the rendered text, because templates trim or change the messages. So are the bytes that came from messages, which
 * are not parsed for control tokens (decision 047); this is the one place that decides on that.
 */
#include "base/sized.h"
#include "text/render.h"
#include "text/tokens_marked.h"

#include <llama.h>

#include <stdlib.h>
#include <string.h>

/* The conversation: a system message if there is one, earlier turns, and the user's message last. */
struct conversation {
    wnw_chat_message *messages; /* [n], owned; the texts are borrowed */
    int32_t n;
    int32_t first_turn; /* index of the first message that is not the system's */
    char *content;      /* of the last message: document, blank line, question; owned */
    const char *document;
    size_t n_document;
    bool has_question;
};

static char *join(const char *a, const char *b, const char *c)
{
    const size_t na = strlen(a), nb = strlen(b), nc = strlen(c);
    char *s = malloc(na + nb + nc + 1);
    if (s) {
        memcpy(s, a, na);
        memcpy(s + na, b, nb);
        memcpy(s + na + nb, c, nc + 1);
    }
    return s;
}

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

static int gather(struct conversation *c, const wnw_prompt_params *p)
{
    const char *question = p->question ? p->question : "";
    *c = (struct conversation){.document = p->document ? p->document : "", .has_question = *question != '\0'};
    c->n_document = strlen(c->document);
    if (!*c->document && !*question)
        return wnw__fail(WNW_E_ARG, "the prompt is empty: give a document, a question or both");
    c->content = join(c->document, *c->document && *question ? "\n\n" : "", question);
    c->messages = calloc((size_t)p->n_messages + 2, sizeof *c->messages);
    if (!c->content || !c->messages)
        return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    if (p->system)
        c->messages[c->n++] = (wnw_chat_message){"system", p->system};
    for (int32_t i = 0; i < p->n_messages; i++)
        c->messages[c->n++] = p->messages[i];
    c->messages[c->n++] = (wnw_chat_message){"user", c->content};
    c->first_turn = strcmp(c->messages[0].role, "system") == 0 ? 1 : 0;
    return WNW_OK;
}

static void conversation_clear(struct conversation *c)
{
    free(c->messages);
    free(c->content);
}

/* ---- The border between the two pieces ---- */

/* Finds where the document ends in the content as the template writes it, for templates that change more than
 * the ends of a message: the rendered document alone begins the rendered whole. */
static int border_by_document(size_t *border, const struct wnw__template *t, const struct conversation *c,
                              const struct wnw__rendered *r)
{
    struct wnw__rendered alone = {0};
    char *document = strdup(c->document);
    const char *content = c->messages[c->n - 1].content;
    if (!document)
        return wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    c->messages[c->n - 1].content = document;
    int rc = wnw__render(&alone, t, c->messages, c->n, c->n - 1);
    c->messages[c->n - 1].content = content;
    free(document);
    if (rc != WNW_OK)
        return rc;
    const size_t n = wnw__trimmed_length(alone.text + alone.first, alone.end - alone.first);
    if (n <= r->end - r->first && memcmp(alone.text + alone.first, r->text + r->first, n) == 0)
        *border = r->first + n;
    else
        rc = wnw__fail(WNW_E_UNSUPPORTED,
                       "the chat template changes the message so that the document's end is lost; "
                       "use --raw, or --chat NAME");
    wnw__rendered_clear(&alone);
    return rc;
}

static int find_border(size_t *border, const struct wnw__template *t, const struct conversation *c,
                       const struct wnw__rendered *r)
{
    const char *got = r->text + r->first;
    const size_t n_got = r->end - r->first, n = strlen(c->content);
    if (c->n_document == 0 || !c->has_question) {
        *border = c->n_document == 0 ? r->first : r->end;
        return WNW_OK;
    }
    if (n_got == n && memcmp(got, c->content, n) == 0) {
        *border = r->first + c->n_document;
        return WNW_OK;
    }
    const size_t lead = strspn(c->content, wnw__space), len = wnw__trimmed_length(c->content, n) - lead;
    if (n_got == len && memcmp(got, c->content + lead, len) == 0) {
        const size_t n_document = c->n_document > lead ? c->n_document - lead : 0;
        *border = r->first + (n_document < len ? n_document : len);
        return WNW_OK;
    }
    return border_by_document(border, t, c, r);
}

/* ---- Tokens ---- */

/* The bytes of messages in text[from, to), counted from `from`. Returns NULL if memory runs out; else released with
 * free. */
static struct wnw__bytes *plain_in(size_t *n, const wnw_prompt *p, size_t from, size_t to)
{
    struct wnw__bytes *out = malloc(((size_t)p->n_plain + 1) * sizeof *out);
    *n = 0;
    for (int32_t i = 0; out && i < p->n_plain; i++) {
        const size_t first = p->plain[i].from > from ? p->plain[i].from : from,
                     end = p->plain[i].to < to ? p->plain[i].to : to;
        if (first < end)
            out[(*n)++] = (struct wnw__bytes){first - from, end - from};
    }
    return out;
}

/* Tokenises bytes [from, to) of the prompt's text, no token over `cut`. A part that does not begin the text goes on
 * behind a token that is no special one. */
static int tokenize_part(int32_t **tokens, int32_t *n, int32_t *n_at_cut, const wnw_model *m,
                         const wnw_prompt *p, size_t from, size_t to, size_t cut)
{
    struct wnw__marked in = {
        .text = p->text + from, .n = to - from, .cut = &cut, .n_cut = 1, .follows = from > 0, .before = -1};
    struct wnw__bytes *plain = plain_in(&in.n_plain, p, from, to);
    in.plain = plain;
    *tokens = NULL;
    const int rc = plain ? wnw__tokenize_marked(m, &in, tokens, n, n_at_cut)
                         : wnw__fail(WNW_E_NOMEM, "no memory for the prompt");
    free(plain);
    return rc;
}

static int tokenize_pieces(wnw_prompt *out, const wnw_model *m, size_t border)
{
    const struct llama_vocab *vocab = llama_model_get_vocab(m->vocab);
    const int32_t bos = llama_vocab_bos(vocab);
    int32_t *ids, n, n_first;
    WNW_TRY(tokenize_part(&ids, &n, &n_first, m, out, 0, out->n_text, border));
    const int32_t n_bos = llama_vocab_get_add_bos(vocab) && bos >= 0 && !(n > 0 && ids[0] == bos) ? 1 : 0;
    out->tokens = malloc(((size_t)n_bos + (size_t)n + 1) * sizeof *out->tokens);
    if (out->tokens) {
        out->tokens[0] = bos;
        memcpy(out->tokens + n_bos, ids, (size_t)n * sizeof *ids);
        out->n_context = n_bos + n_first;
        out->n_tokens = n_bos + n;
    }
    free(ids);
    return out->tokens ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for %d tokens", (int)n);
}

/* Counts the tokens that lie wholly in the head, BOS included. A token may span the border between template
 * and message, and the head alone then has other tokens there; so the common first tokens of both count. */
static int measure_prefix(wnw_prompt *out, const wnw_model *m, size_t n_head)
{
    int32_t *head, n, n_at_cut;
    if (n_head == 0)
        return WNW_OK;
    WNW_TRY(tokenize_part(&head, &n, &n_at_cut, m, out, 0, n_head, 0));
    const int32_t bos = llama_vocab_bos(llama_model_get_vocab(m->vocab));
    const int32_t n_bos = out->n_context > 0 && out->tokens[0] == bos && !(n > 0 && head[0] == bos) ? 1 : 0;
    int32_t i = 0;
    while (i < n && n_bos + i < out->n_context && out->tokens[n_bos + i] == head[i])
        i++;
    out->n_prefix = n_bos + i;
    free(head);
    return WNW_OK;
}

/* Finds the byte where the text of the first turn begins in the rendered text. */
static int find_head(size_t *n_head, const struct wnw__template *t, const struct conversation *c,
                     const struct wnw__rendered *r)
{
    *n_head = r->first;
    for (int32_t i = c->first_turn; i < c->n - 1; i++) {
        struct wnw__rendered turn;
        const int rc = wnw__render(&turn, t, c->messages, c->n, i);
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
static int check_system(const struct wnw__template *t, const struct conversation *c,
                        const struct wnw__rendered *r)
{
    struct wnw__rendered shown = {0};
    const char *system = c->messages[0].content;
    if (c->first_turn == 0 || !*system || strstr(r->text, system))
        return WNW_OK;
    const int rc = wnw__render(&shown, t, c->messages, c->n, 0);
    wnw__rendered_clear(&shown);
    if (rc == WNW_E_UNSUPPORTED)
        return wnw__fail(rc, "the chat template leaves the system message out; give none, or choose another "
                             "template with --chat NAME");
    return rc;
}

/* Gives the prompt the rendered text and the bytes that are plain in it. */
static void take_text(wnw_prompt *out, struct wnw__rendered *r, bool special)
{
    out->text = r->text;
    out->n_text = r->n;
    out->plain = r->input;
    out->n_plain = special ? 0 : r->n_input;
    r->text = NULL;
    r->input = NULL;
}

static int build(wnw_prompt *out, const wnw_model *m, const struct wnw__template *t,
                 const struct conversation *c, bool special)
{
    struct wnw__rendered r;
    size_t border = 0, n_head = 0;
    int32_t n_at_cut;
    WNW_TRY(wnw__render(&r, t, c->messages, c->n, c->n - 1));
    int rc = check_system(t, c, &r);
    if (rc == WNW_OK)
        rc = find_border(&border, t, c, &r);
    if (rc == WNW_OK)
        rc = find_head(&n_head, t, c, &r);
    take_text(out, &r, special);
    if (rc == WNW_OK)
        rc = tokenize_pieces(out, m, border);
    if (rc == WNW_OK)
        rc = measure_prefix(out, m, n_head);
    if (rc == WNW_OK && r.end < out->n_text)
        rc = tokenize_part(&out->suffix, &out->n_suffix, &n_at_cut, m, out, r.end, out->n_text, 0);
    return rc;
}

int wnw_prompt_build(wnw_prompt *out, const wnw_model *m, const wnw_prompt_params *params)
{
    struct wnw__template t;
    struct conversation c = {0};
    wnw_prompt prompt = wnw_prompt_default();
    wnw_prompt_params own = wnw_prompt_default_params();
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_prompt, out));
    wnw__sized_give(out, &prompt);
    WNW_REQUIRE(m);
    WNW_REQUIRE(params);
    WNW_TRY(WNW_SIZED_TAKE(wnw_prompt_params, &own, params));
    WNW_TRY(wnw__template_find(&t, m, &own));
    int rc = check_params(&own, t.source != NULL);
    if (rc == WNW_OK)
        rc = gather(&c, &own);
    if (rc == WNW_OK)
        rc = build(&prompt, m, &t, &c, own.special);
    if (rc != WNW_OK)
        wnw_prompt_clear(&prompt);
    wnw__sized_give(out, &prompt);
    conversation_clear(&c);
    wnw__template_clear(&t);
    return rc;
}

void wnw_prompt_clear(wnw_prompt *p)
{
    wnw_prompt own = wnw_prompt_default();
    const wnw_prompt empty = wnw_prompt_default();
    if (WNW_SIZED_TAKE(wnw_prompt, &own, p) != WNW_OK)
        return;
    free(own.tokens);
    free(own.suffix);
    free(own.text);
    free(own.plain);
    wnw__sized_give(p, &empty);
}
