/* SPDX-License-Identifier: MIT */
/* Several answers at once: each step decodes a token of every answer that goes on, in one pass over the weights. */
#include "app/console.h"
#include "app/process.h"
#include "app/text.h"
#include "base/err.h"
#include "cli/ask.h"

#include <stdlib.h>
#include <string.h>

/* The answers that go on. */
struct together {
    struct ask *ask;
    struct ask_question **going; /* [n] */
    wnw_session **sessions;      /* [n] of these, for the batch */
    int32_t *tokens;             /* [n] that they read next */
    int32_t n, n_max;
};

static int add_token(struct ask_question *q, int32_t token)
{
    wnw_generated *g = &q->answer.said;
    if (g->n_tokens % 64 == 0) {
        int32_t *more = realloc(g->tokens, ((size_t)g->n_tokens + 64) * sizeof *more);
        if (!more)
            return app_fail(APP_FAILED, "out of memory for the answer");
        g->tokens = more;
    }
    g->tokens[g->n_tokens++] = token;
    return APP_OK;
}

/* Takes the next token of an answer; *goes_on: it is to be read. */
static int take(struct together *t, struct ask_question *q, bool *goes_on, int32_t *token)
{
    const wnw_model_info *info = &t->ask->job.info;
    wnw_generated *g = &q->answer.said;
    *goes_on = false;
    *token = wnw_sampler_pick(q->answer.sampler, wnw_session_logits(q->session), info->n_vocab);
    if (g->n_tokens == 0)
        q->answer.ttft_ms = app_now_ms() - q->start_ms;
    g->end = WNW_END_TOKEN;
    if (wnw_token_is_eog(t->ask->job.model, *token))
        return APP_OK;
    const int rc = add_token(q, *token);
    const bool full = wnw_session_n_past(q->session) >= info->n_ctx_train;
    *goes_on = g->n_tokens < t->n_max && !full;
    g->end = full ? WNW_END_FULL : WNW_END_LIMIT;
    return rc;
}

/* Takes a token of each and keeps those that go on. */
static int take_all(struct together *t)
{
    int32_t n = 0;
    int rc = APP_OK;
    for (int32_t i = 0; rc == APP_OK && i < t->n; i++) {
        struct ask_question *q = t->going[i];
        bool goes_on;
        rc = take(t, q, &goes_on, &t->tokens[n]);
        if (goes_on) {
            t->going[n] = q;
            t->sessions[n++] = q->session;
        } else {
            q->answer.decode_ms = app_now_ms() - q->start_ms - q->answer.ttft_ms;
        }
    }
    t->n = n;
    return rc;
}

static int decode_all(struct together *t)
{
    const int status = wnw_decode_batch(t->ask->job.engine, t->sessions, t->tokens, t->n);
    for (int32_t i = 0; status == WNW_OK && i < t->n; i++)
        t->going[i]->answer.said.n_read++;
    return app_status_code(status);
}

/* The text of the tokens. Each token is converted by itself, as it is while a single answer is generated. */
static int make_text(const struct together *t, struct ask_question *q)
{
    wnw_generated *g = &q->answer.said;
    struct app_text all = {0};
    bool good = app_text_add(&all, "", 0);
    for (int32_t i = 0; good && i < g->n_tokens; i++) {
        char *piece;
        good = wnw_detokenize(t->ask->job.model, &g->tokens[i], 1, &piece) == WNW_OK &&
               app_text_add(&all, piece, strlen(piece));
        wnw_free(piece);
    }
    good = good && app_text_repair(&all);
    g->text = all.s;
    g->n_text = all.len;
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory for the answer");
}

/* Generates all tokens. */
static int run(struct together *t)
{
    if (t->n_max <= 0)
        return APP_OK;
    WNW_TRY(take_all(t));
    while (t->n > 0) {
        WNW_TRY(decode_all(t));
        WNW_TRY(take_all(t));
    }
    return APP_OK;
}

static int answer(struct together *t, struct ask_question *questions, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        t->going[i] = &questions[i];
    t->n = n;
    WNW_TRY(run(t));
    for (int32_t i = 0; i < n; i++)
        WNW_TRY(make_text(t, &questions[i]));
    return APP_OK;
}

int cli_ask_together(struct ask *ask, int32_t from, int32_t n)
{
    struct together t = {.ask = ask,
                         .going = calloc((size_t)n, sizeof *t.going),
                         .sessions = calloc((size_t)n, sizeof *t.sessions),
                         .tokens = calloc((size_t)n, sizeof *t.tokens),
                         .n_max = (int32_t)ask->job.args->n};
    const int rc = t.going && t.sessions && t.tokens ? answer(&t, &ask->questions[from], n)
                                                     : app_fail(APP_FAILED, "out of memory");
    free(t.going);
    free(t.sessions);
    free(t.tokens);
    return rc;
}
