/* SPDX-License-Identifier: MIT */
/* What all readings of a sample use: sessions, questions, and entries that are compressed, answered and handed over. */
#include "eval/run/entry_impl.h"

#include "app/console.h"
#include "app/process.h"
#include "app/stop.h"
#include "eval/base/grow.h"
#include "winnow_method.h"
#include "winnow_tools.h"

#include <stdlib.h>

static bool go_on(int32_t done, int32_t total, void *user)
{
    (void)done;
    (void)total;
    (void)user;
    return !app_stop_asked();
}

static int mask_heads(wnw_session *s, const struct eval_mask *mask)
{
    if (!mask)
        return APP_OK;
    const int status = wnw_session_mask_form(s, mask->form);
    return eval_status_code(status == WNW_OK ? wnw_session_mask_heads(s, mask->heads, mask->n, mask->phase)
                                             : status);
}

int eval_new_session(wnw_session **s, const struct eval_runtime *m, const struct eval_config *c)
{
    const wnw_session_params params = {WNW_INIT(wnw_session_params), .kv_type = c->kv.type,
                                       .kv_tail = c->kv.tail, .kv_unrotated = c->kv.unrotated,
                                       .progress = go_on};
    WNW_TRY(eval_status_code(wnw_session_new_on(s, m->engine, &params)));
    return mask_heads(*s, c->mask);
}

const struct eval_config *eval_config_at(const struct eval_shared_reading *rd, int32_t i)
{
    return &rd->w->configs->items[i];
}

/* The reference is always read; the full cache of a type answers once for all modes, as the first config. */
enum eval_role eval_role_of(const struct eval_shared_reading *rd, int32_t i)
{
    const struct eval_config *c = eval_config_at(rd, i);
    bool any = rd->w->config[i] || i == 0;
    if (!eval_config_is_uncompressed(c) || i != rd->first) {
        if (!rd->w->config[i])
            return EVAL_LEFT_OUT;
        if (c->own_read)
            return EVAL_OWN_READ;
        return eval_config_is_uncompressed(c) ? EVAL_SAME_AGAIN : EVAL_FROM_BASE;
    }
    for (int32_t k = rd->first; k < rd->first + rd->n; k++)
        any = any || (rd->w->config[k] && eval_config_is_uncompressed(eval_config_at(rd, k)));
    return any ? EVAL_FROM_BASE : EVAL_LEFT_OUT;
}

/* ---- Questions ---- */

void eval_questions_clear(struct eval_questions *t)
{
    free(t->ids);
    free(t->n_ids);
    *t = (struct eval_questions){0};
}

int eval_questions_make(struct eval_questions *t, const struct eval_reading *r)
{
    *t = (struct eval_questions){.ids = calloc((size_t)r->n_turns, sizeof *t->ids),
                                 .n_ids = calloc((size_t)r->n_turns, sizeof *t->n_ids)};
    if (!t->ids || !t->n_ids) {
        eval_questions_clear(t);
        return eval_no_memory("the questions");
    }
    for (int32_t i = 0; i < r->n_turns; i++) {
        const struct eval_prompt *p = &r->first[i];
        if (p->n == p->n_context || r->is_text)
            continue;
        t->ids[t->n] = p->ids + p->n_context;
        t->n_ids[t->n++] = p->n - p->n_context;
    }
    return APP_OK;
}

/* ---- Entries ---- */

void eval_entry_measure(struct eval_entry *e, const wnw_session *s)
{
    wnw_cache_stats stats = wnw_cache_stats_default();
    if (wnw_cache_get_stats(s, &stats) == WNW_OK)
        e->kv_bytes = stats.bytes;
    e->meta_bytes = stats.bytes_meta;
    e->peak_bytes = e->kv_bytes > e->peak_bytes ? e->kv_bytes : e->peak_bytes;
}

/* Returns a status of the library. */
static int apply_plan(struct eval_entry *e)
{
    const double start = app_now_ms();
    WNW_TRY(wnw_session_apply(e->session, e->plan, NULL));
    if (wnw_policy_rerotates(e->config->policy))
        WNW_TRY(wnw_session_renumber(e->session));
    e->compress_ms += app_now_ms() - start;
    return WNW_OK;
}

/* Compresses a copy of `unobserved` by the entry's plan. */
static int compress_copy(struct eval_entry *e, const wnw_session *unobserved)
{
    WNW_TRY(eval_status_code(wnw_session_copy(&e->session, unobserved)));
    if (e->plan)
        WNW_TRY(eval_status_code(apply_plan(e)));
    eval_entry_measure(e, e->session);
    return mask_heads(e->session, e->config->mask);
}

void eval_entries_close(struct eval_entry *e, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        eval_entry_close(&e[i]);
}

int eval_entry_hand_over(const struct eval_shared_reading *rd, struct eval_entry *e)
{
    return rd->w->config[e->config - rd->w->configs->items] ? rd->w->done(e, rd->w->user) : APP_OK;
}

int eval_hand_over_left_out(const struct eval_shared_reading *rd, struct eval_entry *e, int32_t *n)
{
    int32_t n_stay = 0;
    int rc = APP_OK;
    for (int32_t i = 0; i < *n; i++) {
        if (!e[i].left_out) {
            const struct eval_entry stays = e[i];
            e[i] = (struct eval_entry){0};
            e[n_stay++] = stays;
            continue;
        }
        if (rc == APP_OK)
            rc = eval_entry_hand_over(rd, &e[i]);
        eval_entry_close(&e[i]);
    }
    *n = n_stay;
    return rc;
}

void eval_count_reading(const struct eval_shared_reading *rd, int32_t n_tokens, double ms)
{
    if (rd->w->readings) {
        rd->w->readings->n++;
        rd->w->readings->n_tokens += n_tokens;
        rd->w->readings->ms += ms;
    }
}

static int compress_and_answer(struct eval_shared_reading *rd, struct eval_entry *e, int32_t n,
                               const wnw_session *unobserved)
{
    for (int32_t i = 0; unobserved && i < n; i++)
        WNW_TRY(compress_copy(&e[i], unobserved));
    WNW_TRY(rd->r->is_text ? eval_text_entries(rd->m, rd->r, e, n, rd->reference)
                           : eval_answer_entries(rd->m, rd->r, e, n, rd->reference));
    for (int32_t i = 0; i < n; i++)
        WNW_TRY(eval_entry_hand_over(rd, &e[i]));
    return APP_OK;
}

int eval_answer_wave(struct eval_shared_reading *rd, struct eval_entry *e, int32_t n,
                     const wnw_session *unobserved)
{
    const int rc = compress_and_answer(rd, e, n, unobserved);
    for (int32_t i = 0; i < n; i++) {
        if (rc == APP_OK && eval_config_is_uncompressed(e[i].config)) {
            rd->uncompressed = e[i];
            e[i] = (struct eval_entry){0};
        }
        eval_entry_close(&e[i]);
    }
    return rc;
}
