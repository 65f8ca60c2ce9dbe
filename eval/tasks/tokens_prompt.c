/* SPDX-License-Identifier: MIT */
/* Token ids of a sample's prompt. */
#include "eval/tasks/tokens.h"

#include "app/console.h"

#include <stdlib.h>
#include <string.h>

static int add_ids(struct eval_prompt *p, const int32_t *ids, int32_t n)
{
    int32_t *grown = realloc(p->ids, (size_t)(p->n + n + 1) * sizeof *grown);
    if (!grown)
        return app_fail(APP_FAILED, "out of memory for tokens");
    memcpy(grown + p->n, ids, (size_t)n * sizeof *ids);
    p->ids = grown;
    p->n += n;
    return APP_OK;
}

/* A prompt that grows by text. What is next to each other is tokenized together; control tokens are recognised in templates
 * alone. */
struct writer {
    struct eval_prompt *p;
    const struct eval_tokenizer *t;
    struct eval_marked text; /* not tokenized yet */
    int rc;
};

static int encode(const struct eval_tokenizer *t, const struct eval_marked *text, int32_t **ids, int32_t *n)
{
    return t->encode_marked ? t->encode_marked(t, text, ids, n)
                            : t->encode(t, text->text.s, text->text.len, ids, n);
}

static void flush_text(struct writer *w)
{
    int32_t *ids = NULL, n = 0;
    if (w->rc == APP_OK && w->text.text.len > 0)
        w->rc = encode(w->t, &w->text, &ids, &n);
    if (w->rc == APP_OK && n > 0) {
        w->rc = add_ids(w->p, ids, n);
        w->text.follows = true;
        w->text.before = ids[n - 1];
    }
    free(ids);
    w->text.text.len = 0;
    w->text.n_plain = 0;
}

static bool mark(struct eval_marked *m, size_t from, size_t to)
{
    if (m->n_plain == m->cap) {
        const int32_t cap = m->cap * 2 + 8;
        wnw_bytes *more = realloc(m->plain, (size_t)cap * sizeof *more);
        if (!more)
            return false;
        m->plain = more;
        m->cap = cap;
    }
    m->plain[m->n_plain++] = (wnw_bytes){from, to};
    return true;
}

static void put(struct writer *w, const char *text, size_t len, bool plain)
{
    const size_t from = w->text.text.len;
    if (w->rc == APP_OK && len > 0 &&
        (!app_text_add(&w->text.text, text, len) || (plain && !mark(&w->text, from, from + len))))
        w->rc = app_fail(APP_FAILED, "out of memory for a prompt");
}

static void put_text(struct writer *w, const char *text, size_t len)
{
    put(w, text, len, true);
}

static void put_template(struct writer *w, const char *template)
{
    put(w, template, strlen(template), false);
}

/* Tokenizes what is left. Returns the exit code of all that was put. */
static int finish(struct writer *w)
{
    flush_text(w);
    free(w->text.text.s);
    free(w->text.plain);
    return w->rc;
}

int eval_prompt_context(struct eval_prompt *p, const struct eval_tokenizer *t, const struct eval_chat *c,
                        const struct eval_sample *s)
{
    *p = (struct eval_prompt){0};
    struct writer w = {.p = p, .t = t, .rc = c->bos >= 0 ? add_ids(p, &c->bos, 1) : APP_OK};
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
    if (p->n > 0) {
        w.text.follows = true;
        w.text.before = p->ids[p->n - 1];
    }
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
