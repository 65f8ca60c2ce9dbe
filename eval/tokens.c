/* SPDX-License-Identifier: MIT */
/* Tokens of a sample. */
#include "eval/tokens.h"

#include "app/console.h"

#include <stdlib.h>
#include <string.h>

/* ---- The model's tokenizer ---- */

static int encode(const struct eval_tokenizer *t, const char *text, size_t len, bool special, int32_t **ids,
                  int32_t *n)
{
    int32_t *own;
    *ids = NULL;
    *n = 0;
    const int status = wnw_tokenize(t->model, text, len, false, special, &own, n);
    if (status != WNW_OK)
        return app_fail_status(status);
    *ids = malloc(((size_t)*n + 1) * sizeof **ids);
    if (*ids && *n > 0)
        memcpy(*ids, own, (size_t)*n * sizeof **ids);
    wnw_free(own);
    return *ids ? APP_OK : app_fail(APP_FAILED, "out of memory for tokens");
}

static int decode(const struct eval_tokenizer *t, const int32_t *ids, int32_t n, char **text)
{
    char *own;
    const int status = wnw_detokenize(t->model, ids, n, &own);
    if (status != WNW_OK)
        return app_fail_status(status);
    *text = strdup(own);
    wnw_free(own);
    return *text ? APP_OK : app_fail(APP_FAILED, "out of memory for a text");
}

/* A token is a control token if its text is not part of the plain text. */
static bool is_control(const struct eval_tokenizer *t, int32_t id)
{
    char *piece = NULL, *text = NULL;
    const bool control = wnw_token_piece(t->model, id, &piece) == WNW_OK &&
                         wnw_detokenize(t->model, &id, 1, &text) == WNW_OK && *piece && !*text;
    wnw_free(piece);
    wnw_free(text);
    return control;
}

static bool adds_bos(const wnw_model *m)
{
    int32_t *with = NULL, *without = NULL, n_with = 0, n_without = 0;
    const bool adds = wnw_tokenize(m, "a", 1, true, false, &with, &n_with) == WNW_OK &&
                      wnw_tokenize(m, "a", 1, false, false, &without, &n_without) == WNW_OK &&
                      n_with > n_without && with[0] != without[0];
    wnw_free(with);
    wnw_free(without);
    return adds;
}

struct eval_tokenizer eval_tokenizer_of(const wnw_model *m)
{
    return (struct eval_tokenizer){
        .encode = encode, .decode = decode, .is_control = is_control, .model = m, .adds_bos = adds_bos(m)};
}

int eval_count_tokens(int32_t *n, const struct eval_tokenizer *t, const char *text, size_t len)
{
    int32_t *ids;
    const int rc = t->encode(t, text, len, false, &ids, n);
    free(ids);
    return rc;
}

/* ---- The chat ---- */

/* Stands for the user's text when the template is rendered. */
static const char sentinel[] = "########################################";

/* The whole text of a prompt, including control tokens. The caller frees it; NULL if memory runs out. */
static char *prompt_text(const wnw_model *m, const wnw_prompt *p)
{
    struct app_text text = {0};
    bool good = app_text_add(&text, "", 0);
    for (int32_t i = 0; good && i < p->n_tokens; i++) {
        char *piece = NULL;
        good =
            wnw_token_piece(m, p->tokens[i], &piece) == WNW_OK && app_text_add(&text, piece, strlen(piece));
        wnw_free(piece);
    }
    if (!good) {
        free(text.s);
        return NULL;
    }
    return text.s;
}

/* Cuts a rendered prompt at the sentinel. If nothing surrounds the sentinel, the model has no template. */
static int cut_template(struct eval_chat *c, const char *text)
{
    const char *at = strstr(text, sentinel);
    if (!at)
        return app_fail(APP_BAD_INPUT, "the chat template changes the user's text; use --chat none");
    const char *behind = at + strlen(sentinel);
    c->head = strndup(text, (size_t)(at - text));
    c->tail = strdup(behind);
    if (!c->head || !c->tail)
        return app_fail(APP_FAILED, "out of memory for the chat template");
    c->raw = *behind == '\0';
    if (c->raw)
        *c->head = '\0'; /* a BOS, which plain texts get as a token */
    return APP_OK;
}

int eval_chat_open(struct eval_chat *c, const wnw_model *m, const char *name)
{
    const bool raw = strcmp(name, "none") == 0;
    const wnw_prompt_params params = {WNW_INIT(wnw_prompt_params), .question = sentinel,
                                      .chat = raw || strcmp(name, "auto") == 0 ? NULL : name, .raw = raw};
    wnw_prompt prompt = {WNW_INIT(wnw_prompt)};
    *c = (struct eval_chat){0};
    const int status = wnw_prompt_build(&prompt, m, &params);
    if (status != WNW_OK)
        return app_fail_status(status);
    char *text = prompt_text(m, &prompt);
    const int rc = text ? cut_template(c, text) : app_fail(APP_FAILED, "out of memory for the chat template");
    free(text);
    wnw_prompt_clear(&prompt);
    if (rc != APP_OK)
        eval_chat_close(c);
    return rc;
}

void eval_chat_close(struct eval_chat *c)
{
    free(c->head);
    free(c->tail);
    *c = (struct eval_chat){0};
}

/* ---- Prompts ---- */

static int add_ids(struct eval_prompt *p, const struct eval_tokenizer *t, const char *text, size_t len,
                   bool special)
{
    int32_t *ids, n;
    int rc = len > 0 ? t->encode(t, text, len, special, &ids, &n) : APP_OK;
    if (rc != APP_OK || len == 0)
        return rc;
    int32_t *grown = realloc(p->ids, (size_t)(p->n + n + 1) * sizeof *grown);
    if (grown) {
        memcpy(grown + p->n, ids, (size_t)n * sizeof *ids);
        p->ids = grown;
        p->n += n;
    } else {
        rc = app_fail(APP_FAILED, "out of memory for tokens");
    }
    free(ids);
    return rc;
}

/* Finds where the control tokens of a template begin and end in its text. */
static int control_range(size_t *from, size_t *to, const struct eval_tokenizer *t, const char *text)
{
    int32_t *ids, n;
    const size_t len = strlen(text);
    int rc = len > 0 ? t->encode(t, text, len, true, &ids, &n) : APP_OK;
    *from = *to = len;
    if (rc != APP_OK || len == 0)
        return rc;
    int32_t first = 0, last = n;
    while (first < n && !t->is_control(t, ids[first]))
        first++;
    while (last > first && !t->is_control(t, ids[last - 1]))
        last--;
    char *before = NULL, *behind = NULL;
    rc = t->decode(t, ids, first, &before);
    if (rc == APP_OK)
        rc = t->decode(t, ids + last, n - last, &behind);
    if (rc == APP_OK && first < n && strlen(before) + strlen(behind) <= len) {
        *from = strlen(before);
        *to = len - strlen(behind);
    }
    free(before);
    free(behind);
    free(ids);
    return rc;
}

/* Adds the data `before`, a part of the template and the data `behind`. Control tokens are recognised in the
 * template alone; the plain text at both ends of the template is tokenized together with the data beside
 * it. */
static int add_around(struct eval_prompt *p, const struct eval_tokenizer *t, const char *before,
                      const char *template, const char *behind)
{
    struct app_text text = {0};
    size_t from, to;
    int rc = control_range(&from, &to, t, template);
    const size_t len = strlen(template);
    if (rc == APP_OK && !(app_text_add(&text, before, strlen(before)) && app_text_add(&text, template, from)))
        rc = app_fail(APP_FAILED, "out of memory for a prompt");
    if (rc == APP_OK && from < to) {
        rc = add_ids(p, t, text.s, text.len, false);
        if (rc == APP_OK)
            rc = add_ids(p, t, template + from, to - from, true);
        text.len = 0;
    }
    if (rc == APP_OK &&
        !(app_text_add(&text, template + to, len - to) && app_text_add(&text, behind, strlen(behind))))
        rc = app_fail(APP_FAILED, "out of memory for a prompt");
    if (rc == APP_OK)
        rc = add_ids(p, t, text.s, text.len, false);
    free(text.s);
    return rc;
}

static const char *text_of(const struct app_text *t)
{
    return t->s ? t->s : "";
}

/* The token that plain texts begin with. */
static int add_bos(struct eval_prompt *p, const struct eval_tokenizer *t)
{
    int32_t *ids = NULL, n = 0;
    const int status = wnw_tokenize(t->model, "a", 1, true, false, &ids, &n);
    p->ids = status == WNW_OK ? malloc(sizeof *p->ids) : NULL;
    if (p->ids)
        p->ids[p->n++] = ids[0];
    wnw_free(ids);
    return status != WNW_OK ? app_fail_status(status)
           : p->ids         ? APP_OK
                            : app_fail(APP_FAILED, "out of memory for tokens");
}

int eval_prompt_context(struct eval_prompt *p, const struct eval_tokenizer *t, const struct eval_chat *c,
                        const struct eval_sample *s)
{
    *p = (struct eval_prompt){0};
    int rc = c->raw && t->adds_bos ? add_bos(p, t) : APP_OK;
    if (rc == APP_OK)
        rc = add_around(p, t, "", c->head, text_of(&s->context));
    p->n_context = p->n;
    if (rc != APP_OK)
        eval_prompt_clear(p);
    return rc;
}

int eval_prompt_turn(struct eval_prompt *p, const struct eval_tokenizer *t, const struct eval_chat *c,
                     const struct eval_sample *s, int32_t turn)
{
    const struct eval_turn *q = &s->turns[turn];
    const char *prefix = text_of(&q->prefix);
    p->n = p->n_context;
    return add_around(p, t, text_of(&q->question), c->tail, prefix + (!c->raw && *prefix == ' '));
}

void eval_prompt_clear(struct eval_prompt *p)
{
    free(p->ids);
    *p = (struct eval_prompt){0};
}
