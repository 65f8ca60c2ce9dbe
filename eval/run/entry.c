/* SPDX-License-Identifier: MIT */
/* One sample under one config: what the parts of the work share. */
#include "eval/run/entry.h"

#include "app/console.h"
#include "app/files.h"
#include "base/err.h"
#include "eval/base/grow.h"
#include "winnow_store.h"

#include <stdlib.h>
#include <string.h>

/* ---- The runtime ---- */

int eval_runtime_open(struct eval_runtime *m, const struct eval_tokenizer *t, const struct eval_args *args,
                      const struct eval_suite *suite)
{
    *m = (struct eval_runtime){.tokenizer = t,
                               .model = t->model,
                               .info = wnw_model_info_default(),
                               .batch = eval_reads_separately(args, suite) ? 1 : (int32_t)args->batch,
                               .answer_tokens = eval_answer_tokens(args, suite),
                               .early_stop = !args->no_early_stop,
                               .own_history = args->own_history,
                               .multi_request = strcmp(args->turns, "multi_request") == 0,
                               .recompress = eval_recompresses(args)};
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params),
                                      .n_threads =
                                          args->app.threads == APP_UNSET ? 0 : (int32_t)args->app.threads};
    WNW_TRY(eval_status_code(wnw_model_get_info(m->model, &m->info)));
    if (args->app.devices) /* no session is made */
        return APP_OK;
    WNW_TRY(eval_status_code(wnw_engine_new(&m->engine, m->model, &params)));
    WNW_TRY(eval_status_code(wnw_session_new_on(&m->pad, m->engine, NULL)));
    if (!args->store)
        return APP_OK;
    const int status = wnw_store_open(&m->store, args->store,
                                      args->store_limit == APP_UNSET ? 0 : (uint64_t)args->store_limit);
    return status == WNW_OK
               ? APP_OK
               : app_fail(app_folder_code(args->store, "index.sqlite", status), "%s", wnw_last_error());
}

void eval_runtime_close(struct eval_runtime *m)
{
    wnw_store_close(m->store);
    wnw_session_free(m->pad);
    wnw_engine_free(m->engine);
    *m = (struct eval_runtime){0};
}

/* ---- Readings ---- */

static int read_refs(struct eval_refs *g, const struct eval_runtime *m, const struct eval_chat *chat,
                     const struct eval_turn *turn)
{
    WNW_TRY(eval_history_refs(&g->text, chat, turn));
    return m->tokenizer->encode(m->tokenizer, g->text.s, g->text.len, &g->ids, &g->n);
}

/* Finds where answers begin, and how far the last of them may reach. */
static int measure_turns(struct eval_reading *r, const struct eval_runtime *m)
{
    const struct eval_sample *s = r->sample;
    for (int32_t t = 0; t < s->n_turns; t++)
        r->end[t] = r->first[t].n;
    if (!m->multi_request)
        WNW_TRY(eval_timeline_ends(r->end, m->tokenizer, r->chat, s,
                                   m->own_history ? EVAL_HISTORY_ANSWERS : EVAL_HISTORY_REFERENCES,
                                   m->recompress));
    for (int32_t t = 0; t < s->n_turns; t++)
        r->n_need = r->end[t] + s->max_new > r->n_need ? r->end[t] + s->max_new : r->n_need;
    return APP_OK;
}

int eval_reading_open(struct eval_reading *r, const struct eval_runtime *m, const struct eval_chat *chat,
                      const struct eval_sample *s)
{
    *r = (struct eval_reading){.sample = s, .chat = chat, .n_turns = s->n_turns};
    r->first = calloc((size_t)s->n_turns, sizeof *r->first);
    r->refs = calloc((size_t)s->n_turns, sizeof *r->refs);
    r->end = calloc((size_t)s->n_turns, sizeof *r->end);
    if (!r->first || !r->refs || !r->end)
        return eval_no_memory("answers");
    WNW_TRY(eval_prompts_first(r->first, m->tokenizer, chat, s));
    for (int32_t t = 0; t < s->n_turns; t++)
        WNW_TRY(read_refs(&r->refs[t], m, chat, &s->turns[t]));
    WNW_TRY(measure_turns(r, m));
    return eval_evidence_find(&r->evidence, m->model, s, r->first[0].ids, r->first[0].n_context);
}

int eval_reading_text(struct eval_reading *r, const struct eval_chat *raw, const struct eval_sample *s,
                      const int32_t *ids, int32_t n, int32_t bos)
{
    const int32_t n_bos = bos >= 0, n_all = n + n_bos;
    *r = (struct eval_reading){.sample = s, .chat = raw, .n_turns = 1, .n_need = n_all, .is_text = true};
    r->first = calloc(1, sizeof *r->first);
    r->refs = calloc(1, sizeof *r->refs);
    int32_t *copy = malloc((size_t)n_all * sizeof *copy);
    if (!r->first || !r->refs || !copy) {
        free(copy);
        return eval_no_memory("answers");
    }
    copy[0] = bos; /* overwritten where there is none */
    memcpy(copy + n_bos, ids, (size_t)n * sizeof *copy);
    r->first[0] =
        (struct eval_prompt){.ids = copy, .n = n_all, .n_context = n_all / 2, .n_question = n_all / 2};
    return APP_OK;
}

void eval_reading_close(struct eval_reading *r)
{
    for (int32_t t = 0; r->first && t < r->n_turns; t++)
        eval_prompt_clear(&r->first[t]);
    for (int32_t t = 0; r->refs && t < r->n_turns; t++) {
        free(r->refs[t].text.s);
        wnw_free(r->refs[t].ids);
    }
    eval_evidence_clear(&r->evidence);
    free(r->end);
    free(r->first);
    free(r->refs);
    *r = (struct eval_reading){0};
}

int32_t eval_reading_border(const struct eval_reading *r, enum eval_mode mode)
{
    const struct eval_prompt *p = &r->first[0];
    if (r->is_text)
        return p->n_context;
    if (mode == EVAL_AWARE)
        return p->n_question;
    if (mode == EVAL_AWARE_FULL)
        return p->n;
    return p->n_context;
}

int32_t eval_reading_forced(const struct eval_reading *r, const struct eval_runtime *m, int32_t turn)
{
    const int32_t room = m->info.n_ctx_train - r->end[turn];
    return room < EVAL_FORCED ? room : EVAL_FORCED;
}

/* ---- References and entries ---- */

int eval_reference_open(struct eval_reference *r, int32_t n_turns)
{
    *r = (struct eval_reference){.turn = calloc((size_t)n_turns, sizeof *r->turn), .n_turns = n_turns};
    return r->turn ? APP_OK : eval_no_memory("answers");
}

void eval_reference_close(struct eval_reference *r)
{
    for (int32_t t = 0; r->turn && t < r->n_turns; t++) {
        free(r->turn[t].ids);
        free(r->turn[t].logits);
    }
    free(r->turn);
    wnw_session_free(r->text_cache);
    *r = (struct eval_reference){0};
}

int eval_entry_open(struct eval_entry *e, const struct eval_config *config, int32_t n_turns)
{
    *e = (struct eval_entry){
        .config = config, .answer = calloc((size_t)n_turns, sizeof *e->answer), .n_turns = n_turns};
    return e->answer ? APP_OK : eval_no_memory("answers");
}

bool eval_entry_leave_out(struct eval_entry *e, int status, int *rc)
{
    if (status != WNW_E_RANGE) {
        *rc = eval_status_code(status);
        return false;
    }
    e->left_out = strdup(wnw_last_error());
    *rc = e->left_out ? APP_OK : eval_no_memory("answers");
    return e->left_out;
}

void eval_entry_report(struct eval_entry *e, const wnw_report *report)
{
    e->kept_mean = report->kept_mean;
    e->peak_bytes = report->kv_bytes_before;
    e->planned = !e->config->full;
    e->protected_first = report->protected_first;
    e->protected_last = report->protected_last;
    e->compress_ms = report->observe_ms + report->score_ms + report->select_ms + report->compact_ms;
}

void eval_entry_close(struct eval_entry *e)
{
    free(e->left_out);
    for (int32_t t = 0; e->answer && t < e->n_turns; t++) {
        free(e->answer[t].ids);
        free(e->answer[t].text.s);
    }
    free(e->answer);
    wnw_plan_free(e->plan);
    wnw_session_free(e->session);
    *e = (struct eval_entry){0};
}
