/* SPDX-License-Identifier: MIT */
/* Token ids of a sample's prompt. */
#include "eval/tokens.h"

#include "app/console.h"

#include <stdlib.h>
#include <string.h>

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

/* A prompt that grows by text. Plain text that is next to each other is tokenized together, be it data or
 * the plain text at both ends of a template; control tokens are recognised in templates alone. */
struct writer {
    struct eval_prompt *p;
    const struct eval_tokenizer *t;
    struct app_text text; /* not tokenized yet */
    int rc;
};

static void flush_text(struct writer *w)
{
    if (w->rc == APP_OK)
        w->rc = add_ids(w->p, w->t, w->text.s, w->text.len, false);
    w->text.len = 0;
}

static void put_text(struct writer *w, const char *text, size_t len)
{
    if (w->rc == APP_OK && !app_text_add(&w->text, text, len))
        w->rc = app_fail(APP_FAILED, "out of memory for a prompt");
}

static void put_template(struct writer *w, const char *template)
{
    size_t from = 0, to = 0;
    if (w->rc == APP_OK)
        w->rc = control_range(&from, &to, w->t, template);
    put_text(w, template, from);
    if (from < to) {
        flush_text(w);
        if (w->rc == APP_OK)
            w->rc = add_ids(w->p, w->t, template + from, to - from, true);
    }
    put_text(w, template + to, strlen(template) - to);
}

/* Tokenizes what is left. Returns the exit code of all that was put. */
static int finish(struct writer *w)
{
    flush_text(w);
    free(w->text.s);
    return w->rc;
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
    struct writer w = {.p = p, .t = t, .rc = c->raw && t->adds_bos ? add_bos(p, t) : APP_OK};
    put_template(&w, c->head);
    put_text(&w, s->context.s, s->context.len);
    const int rc = finish(&w);
    p->n_context = p->n;
    if (rc != APP_OK)
        eval_prompt_clear(p);
    return rc;
}

/* Sets n_question to the end of the question, whose text begins at token `from`: the first token behind which
 * all of its bytes stand. */
static int find_question(struct eval_prompt *p, const struct eval_tokenizer *t, int32_t from, size_t n_bytes)
{
    int32_t lo = from, hi = p->n; /* tokens up to lo have fewer bytes, those up to hi have enough */
    int rc = APP_OK;
    if (n_bytes == 0)
        hi = from;
    while (rc == APP_OK && hi - lo > 1) {
        const int32_t mid = lo + (hi - lo) / 2;
        char *text = NULL;
        rc = t->decode(t, p->ids + from, mid - from, &text);
        if (rc == APP_OK && strlen(text) >= n_bytes)
            hi = mid;
        else
            lo = mid;
        free(text);
    }
    p->n_question = hi;
    return rc;
}

/* Puts a question with the template's tail and the beginning of the answer. */
static void put_question(struct writer *w, const struct eval_chat *c, const struct eval_turn *q)
{
    const char *prefix = q->prefix.s ? q->prefix.s : "";
    put_text(w, q->question.s, q->question.len);
    if (c->prefix_first)
        put_text(w, prefix, strlen(prefix));
    put_template(w, c->tail);
    prefix += !c->raw && *prefix == ' ';
    if (!c->prefix_first)
        put_text(w, prefix, strlen(prefix));
}

int eval_prompt_turn(struct eval_prompt *p, const struct eval_tokenizer *t, const struct eval_chat *c,
                     const struct eval_sample *s, int32_t turn)
{
    struct writer w = {.p = p, .t = t};
    p->n = p->n_context;
    put_question(&w, c, &s->turns[turn]);
    const int rc = finish(&w);
    return rc == APP_OK ? find_question(p, t, p->n_context, s->turns[turn].question.len) : rc;
}

int eval_prompt_next(struct eval_prompt *p, const struct eval_tokenizer *t, const struct eval_chat *c,
                     const struct eval_sample *s, int32_t turn, const char *answer, bool apart)
{
    struct writer w = {.p = p, .t = t};
    if (!c->between)
        return app_fail(APP_BAD_INPUT,
                        "the chat template takes no earlier turns; use --turns multi_request or "
                        "--chat none");
    p->n = p->n_context = 0;
    put_text(&w, answer, strlen(answer));
    put_template(&w, c->between);
    if (apart) {
        flush_text(&w);
        p->n_context = p->n;
    }
    put_question(&w, c, &s->turns[turn]);
    p->n_question = 0;
    return finish(&w);
}

void eval_prompt_clear(struct eval_prompt *p)
{
    free(p->ids);
    *p = (struct eval_prompt){0};
}
