/* SPDX-License-Identifier: MIT */
#include "cli/inspect_answer.h"

#include "app/console.h"
#include "app/json.h"
#include "base/err.h"
#include "cli/stored.h"
#include "winnow_chat.h"
#include "winnow_method.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Most entries shown for one token's attention, and the unit of shares (1/WHOLE). */
enum { MOST_SHOWN = 400, WHOLE = 100000 };

struct answering {
    const struct inspect_question *q;
    const wnw_model *m;
    wnw_model_info info;
    wnw_stored *st;
    wnw_engine *engine;
    wnw_session *session;
    int32_t *tokens, n_tokens;                      /* of the question, owned */
    int32_t n_document;                             /* tokens of the document */
    double *mass;                                   /* [n_document] of the current token */
    int32_t *order;                                 /* [n_document] scratch */
    json_t *texts, *ids, *rows, *document, *behind; /* owned */
};

/* ---- The question ---- */

/* Takes the tokens of the prompt's second piece, if the first one is what was stored. */
static int take_question(struct answering *a, const wnw_prompt *prompt)
{
    int32_t n;
    WNW_TRY(cli_stored_check_prompt(a->st, prompt, a->q->path));
    const int32_t *tokens = wnw_prompt_tokens(prompt, &n), first = wnw_prompt_n_context(prompt);
    a->n_tokens = n - first;
    a->tokens = malloc(((size_t)a->n_tokens + 1) * sizeof *a->tokens);
    if (!a->tokens)
        return app_fail(APP_FAILED, "out of memory");
    memcpy(a->tokens, tokens + first, (size_t)a->n_tokens * sizeof *a->tokens);
    return APP_OK;
}

static int lay_out(struct answering *a)
{
    wnw_prompt_params text;
    wnw_prompt *prompt = NULL;
    wnw_chat *chat = NULL;
    WNW_TRY(cli_stored_text(&text, a->st, a->q->path));
    int status = wnw_chat_open(&chat, a->m, &text);
    if (status == WNW_OK)
        status = wnw_chat_user(&prompt, chat, text.document, a->q->text, NULL);
    const int rc = status == WNW_OK ? take_question(a, prompt) : app_fail_status(status);
    wnw_prompt_free(prompt);
    wnw_chat_free(chat);
    return rc;
}

/* ---- Looking ---- */

/* Adds what the heads of a layer gave to entries of the document; returns what they gave to others. */
static double add_layer(struct answering *a, int32_t il)
{
    const int32_t group = a->info.n_head / a->info.n_head_kv;
    int32_t n;
    const float *rows = wnw_session_attention(a->session, il, &n);
    double after = 0;
    for (int32_t h = 0; rows && h < a->info.n_head; h++, rows += n) {
        const int32_t *pos = wnw_cache_positions(a->session, il, h / group);
        const int32_t n_entry = wnw_cache_n(a->session, il, h / group);
        for (int32_t i = 0; i < n_entry && i < n; i++)
            if (pos[i] < a->n_document)
                a->mass[pos[i]] += (double)rows[i];
            else
                after += (double)rows[i];
    }
    return after;
}

/* Puts the positions of the largest shares first, which are more than half of a part; returns how many there are. */
static int32_t find_largest(const struct answering *a, double of)
{
    int32_t n = 0;
    for (int32_t i = 0; i < a->n_document; i++) {
        if (a->mass[i] / of * WHOLE < 0.5)
            continue;
        int32_t at = n < MOST_SHOWN ? n++ : MOST_SHOWN;
        for (; at > 0 && a->mass[a->order[at - 1]] < a->mass[i]; at--)
            if (at < MOST_SHOWN)
                a->order[at] = a->order[at - 1];
        if (at < MOST_SHOWN)
            a->order[at] = i;
    }
    return n;
}

static json_t *share(double x, double of)
{
    return json_integer((json_int_t)lround(x / of * WHOLE));
}

/* Notes what the token that the session has read last attended to. False without memory. */
static bool look(struct answering *a)
{
    double after = 0, of = 0, sum = 0;
    memset(a->mass, 0, (size_t)a->n_document * sizeof *a->mass);
    for (int32_t il = 0; il < a->info.n_layer; il++)
        if (!wnw_model_layer_is_swa(a->m, il)) {
            after += add_layer(a, il);
            of += a->info.n_head;
        }
    for (int32_t i = 0; i < a->n_document; i++)
        sum += a->mass[i];
    json_t *row = json_array();
    const int32_t n = of > 0 ? find_largest(a, of) : 0;
    bool good = row != NULL;
    for (int32_t i = 0; i < n; i++)
        good = json_array_append_new(row, json_integer(a->order[i])) == 0 &&
               json_array_append_new(row, share(a->mass[a->order[i]], of)) == 0 && good;
    return app_json_append(&a->rows, row) && app_json_append(&a->document, share(sum, of > 0 ? of : 1)) &&
           app_json_append(&a->behind, share(after, of > 0 ? of : 1)) && good;
}

/* ---- Answering ---- */

static int begin(struct answering *a)
{
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params), .n_threads = a->q->n_threads};
    const wnw_run nothing = wnw_run_default();
    (void)wnw_stored_tokens(a->st, &a->n_document);
    a->mass = malloc((size_t)a->n_document * sizeof *a->mass);
    a->order = malloc(((size_t)a->n_document + 1) * sizeof *a->order);
    a->texts = json_array();
    a->ids = json_array();
    a->rows = json_array();
    a->document = json_array();
    a->behind = json_array();
    if (!a->mass || !a->order || !a->texts || !a->ids || !a->rows || !a->document || !a->behind)
        return app_fail(APP_FAILED, "out of memory");
    WNW_TRY(app_status_code(wnw_engine_new(&a->engine, a->m, &params)));
    WNW_TRY(cli_stored_session(&a->session, a->st, a->engine, (int64_t)a->n_tokens + a->q->n));
    /* Rules that go on while decoding would move entries between a token's attention and the look at it. */
    WNW_TRY(app_status_code(wnw_session_begin(a->session, &nothing)));
    if (a->n_tokens > 1)
        WNW_TRY(app_status_code(wnw_session_prefill(a->session, a->tokens, a->n_tokens - 1, NULL, NULL)));
    WNW_TRY(app_status_code(wnw_session_watch(a->session, true)));
    return app_status_code(wnw_session_decode(a->session, a->tokens[a->n_tokens - 1]));
}

static int add_text(struct answering *a, int32_t token)
{
    char *piece;
    const int status = wnw_token_piece(a->m, token, &piece);
    if (status != WNW_OK)
        return app_fail_status(status);
    const bool good =
        app_json_append(&a->texts, app_json_text(piece)) && app_json_append(&a->ids, json_integer(token));
    wnw_free(piece);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

/* Picks tokens, each from the logits of a token whose attention is noted for it. */
static int pick_tokens(struct answering *a, wnw_sampler *sampler)
{
    for (int32_t i = 0; i < a->q->n; i++) {
        const int32_t token = wnw_sampler_pick(sampler, wnw_session_logits(a->session), a->info.n_vocab);
        if (wnw_token_is_eog(a->m, token))
            break;
        if (!look(a))
            return app_fail(APP_FAILED, "out of memory");
        WNW_TRY(add_text(a, token));
        if (i + 1 == a->q->n || wnw_session_n_past(a->session) >= a->info.n_ctx_train)
            break;
        WNW_TRY(app_status_code(wnw_session_decode(a->session, token)));
    }
    return APP_OK;
}

static int answer(struct answering *a)
{
    wnw_sampler_params greedy = wnw_sampler_default_params();
    wnw_sampler *sampler;
    WNW_TRY(app_status_code(wnw_sampler_new(&sampler, &greedy)));
    const int rc = pick_tokens(a, sampler);
    wnw_sampler_free(sampler);
    return rc;
}

static int make_answer(json_t **o, struct answering *a)
{
    WNW_TRY(cli_stored_open(&a->st, a->q->path));
    WNW_TRY(lay_out(a));
    if (a->n_tokens < 1)
        return app_fail(APP_BAD_INPUT, "the question has no tokens");
    WNW_TRY(begin(a));
    WNW_TRY(answer(a));
    *o = json_pack("{s:o, s:O, s:O, s:O, s:O, s:O}", "question", app_json_text(a->q->text), "texts", a->texts,
                   "ids", a->ids, "mass", a->rows, "document", a->document, "behind", a->behind);
    return *o ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

int cli_inspect_answer(json_t **o, const wnw_model *m, const struct inspect_question *q)
{
    struct answering a = {.q = q, .m = m, .info = wnw_model_info_default()};
    *o = NULL;
    (void)wnw_model_get_info(m, &a.info); /* this call does not fail for an open model */
    const int rc = make_answer(o, &a);
    json_decref(a.texts);
    json_decref(a.ids);
    json_decref(a.rows);
    json_decref(a.document);
    json_decref(a.behind);
    wnw_session_free(a.session);
    wnw_engine_free(a.engine);
    wnw_stored_free(a.st);
    free(a.tokens);
    free(a.mass);
    free(a.order);
    return rc;
}
