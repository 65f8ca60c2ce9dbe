/* SPDX-License-Identifier: MIT */
/*
 * One reading for many configs. The first piece of the prompt is read once for each type of cache, into a full
 * cache that is observed for all policies; plans for all of them are made from it, and each config gets a copy
 * that its plan compresses. Reading goes on from the end of one mode's piece to the end of the next one's.
 *
 * Four things need a reading of their own: another type of cache, because nothing converts one into another;
 * heads that are masked while reading;
 * policies whose observations exclude each other (config.h, `group`); and configs that drop entries while they
 * read or generate.
 */
#include "eval/run/entry_impl.h"

#include "app/console.h"
#include "app/process.h"
#include "app/stop.h"
#include "eval/base/grow.h"
#include "eval/run/devices.h"
#include "eval/run/plans.h"
#include "eval/run/reading_store.h"
#include "winnow_method.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

/* Whether config i has a role in the current group. */
static bool is_now(const struct eval_shared_reading *rd, int32_t i, enum eval_role role)
{
    return eval_config_at(rd, i)->group == rd->group && eval_role_of(rd, i) == role;
}

/* Hands over the full cache's answer for a mode other than that in which it answered; the base has been read
 * up to what this mode compresses. */
static int hand_over_uncompressed(struct eval_shared_reading *rd, enum eval_mode mode)
{
    struct eval_entry *e = &rd->uncompressed;
    int32_t i = rd->first;
    while (i < rd->first + rd->n && !(is_now(rd, i, EVAL_SAME_AGAIN) && eval_config_at(rd, i)->mode == mode))
        i++;
    if (i == rd->first + rd->n || !e->config)
        return APP_OK;
    e->config = eval_config_at(rd, i);
    e->n_part = wnw_session_n_past(rd->base);
    e->kept_mean = e->n_part;
    e->prefill_ms = rd->prefill_ms;
    e->answer[0].n_question = rd->r->first[0].n - e->n_part;
    eval_entry_measure(e, rd->base);
    return eval_entry_hand_over(rd, e);
}

static int answer_waves(struct eval_shared_reading *rd, struct eval_entry *e, int32_t n,
                        const wnw_session *unobserved)
{
    int rc = APP_OK;
    for (int32_t at = 0; at < n; at += rd->m->batch) {
        const int32_t n_now = n - at < rd->m->batch ? n - at : rd->m->batch;
        if (rc == APP_OK && app_stop_asked())
            rc = APP_INTERRUPTED;
        if (rc == APP_OK)
            rc = eval_answer_wave(rd, e + at, n_now, unobserved);
        else
            eval_entries_close(e + at, n_now);
    }
    return rc;
}

/* ---- Reading once ---- */

/* Entries that are planned together, and what comes of it. */
struct planning {
    struct eval_entry **e; /* [n], owned as all below */
    const wnw_policy **policies;
    wnw_size *sizes;
    wnw_plan **plans;
    wnw_report *reports;
    int32_t n;
};

/* Makes room for n entries. Returns an exit code; the caller closes in any case. */
static int open_planning(struct planning *p, int32_t n)
{
    *p = (struct planning){.e = calloc((size_t)n, sizeof(struct eval_entry *)),
                           .policies = calloc((size_t)n, sizeof(wnw_policy *)),
                           .sizes = calloc((size_t)n, sizeof(wnw_size)),
                           .plans = calloc((size_t)n, sizeof(wnw_plan *)),
                           .reports = calloc((size_t)n, sizeof(wnw_report))};
    return p->e && p->policies && p->sizes && p->plans && p->reports ? APP_OK : eval_no_memory("plans");
}

static void close_planning(struct planning *p)
{
    free(p->e);
    free(p->policies);
    free(p->sizes);
    free(p->plans);
    free(p->reports);
}

/* Plans all at once or, where a policy refuses its size, one after the other, without those that do. */
static int plan_all(struct eval_shared_reading *rd, struct planning *p)
{
    const int status = wnw_session_plan_many(rd->base, p->policies, p->sizes, p->n, p->plans, p->reports);
    int rc = status == WNW_E_RANGE ? APP_OK : eval_status_code(status);
    for (int32_t i = 0; rc == APP_OK && status == WNW_E_RANGE && i < p->n; i++) {
        p->reports[i] = wnw_report_default();
        (void)eval_entry_leave_out(
            p->e[i],
            wnw_session_plan_many(rd->base, &p->policies[i], &p->sizes[i], 1, &p->plans[i], &p->reports[i]),
            &rc);
    }
    return rc;
}

/* Plans for the entries whose calibration results are those of entry `like`. p has room for n entries. */
static int plan_like(struct eval_shared_reading *rd, struct planning *p, struct eval_entry *e, int32_t n,
                     int32_t like)
{
    wnw_run told = rd->told;
    for (int32_t i = like; i < n; i++) {
        if (e[i].config->full || e[i].plan || e[i].left_out ||
            e[i].config->profile != e[like].config->profile)
            continue;
        p->e[p->n] = &e[i];
        p->policies[p->n] = e[i].config->policy;
        p->sizes[p->n] = e[i].config->size;
        p->reports[p->n++] = wnw_report_default();
    }
    told.profile = e[like].config->profile;
    WNW_TRY(eval_status_code(wnw_session_begin(rd->base, &told)));
    const int rc = plan_all(rd, p);
    for (int32_t i = 0; i < p->n; i++) {
        struct eval_entry *one = p->e[i];
        one->plan = p->plans[i]; /* after a failure, too: the entry frees it */
        if (rc == APP_OK && !one->left_out)
            eval_entry_report(one, &p->reports[i]); /* its peak: the whole piece was there */
    }
    return rc;
}

static int plan_with_profile(struct eval_shared_reading *rd, struct eval_entry *e, int32_t n, int32_t like)
{
    struct planning p;
    int rc = open_planning(&p, n);
    if (rc == APP_OK)
        rc = plan_like(rd, &p, e, n, like);
    close_planning(&p);
    return rc;
}

/* Opens the entries of one mode and plans them. */
static int open_mode(struct eval_shared_reading *rd, enum eval_mode mode, struct eval_entry *e, int32_t *n)
{
    *n = 0;
    for (int32_t i = rd->first; i < rd->first + rd->n; i++) {
        if (eval_config_at(rd, i)->mode != mode || !is_now(rd, i, EVAL_FROM_BASE))
            continue;
        struct eval_entry *one = &e[(*n)++];
        WNW_TRY(eval_entry_open(one, eval_config_at(rd, i), rd->r->n_turns));
        one->is_reference = i == 0;
        one->n_part = wnw_session_n_past(rd->base);
        one->kept_mean = one->n_part;
        one->prefill_ms = rd->prefill_ms;
        if (one->config->plans)
            WNW_TRY(eval_plans_load(one, rd->r, rd->m->model, &rd->m->info));
    }
    for (int32_t i = 0; i < *n; i++)
        if (!e[i].config->full && !e[i].plan && !e[i].left_out)
            WNW_TRY(plan_with_profile(rd, e, *n, i));
    return eval_hand_over_left_out(rd, e, n);
}

/* Makes the prompt of rd->told, of n tokens so far. */
static int tell_prompt(struct eval_shared_reading *rd, const int32_t *tokens, int32_t n, int32_t n_context)
{
    const struct eval_chat *chat = rd->r->chat;
    const wnw_prompt_parts parts = {
        WNW_INIT(wnw_prompt_parts), .tokens = tokens,           .n_tokens = n,
        .n_context = n_context,     .n_prefix = chat->n_prefix, .suffix = chat->suffix,
        .n_suffix = chat->n_suffix};
    wnw_prompt_free(rd->prompt);
    const int status = wnw_prompt_new(&rd->prompt, &parts);
    rd->told.prompt = rd->prompt;
    return eval_status_code(status);
}

/* Reads to the end of what a mode compresses, which the next begin tells of the prompt: what follows its first piece is
 * the question. */
static int read_to(struct eval_shared_reading *rd, enum eval_mode mode)
{
    const struct eval_prompt *p = &rd->r->first[0];
    const int32_t to = eval_reading_border(rd->r, mode);
    const bool begins = wnw_session_n_past(rd->base) == 0 && to > 0;
    const double start = app_now_ms();
    if (begins)
        WNW_TRY(eval_reading_store_take(rd, to));
    const int32_t from = wnw_session_n_past(rd->base);
    if (from > 0) /* the profile of the last plans is not what is asked while more is read */
        WNW_TRY(eval_status_code(wnw_session_begin(rd->base, &rd->told)));
    int rc = to > from ? eval_status_code(wnw_session_prefill(rd->base, p->ids + from, to - from, NULL, NULL))
                       : APP_OK;
    if (rc == APP_OK && begins && from == 0)
        eval_reading_store_add(rd, to);
    rd->prefill_ms += app_now_ms() - start;
    const int told = tell_prompt(rd, p->ids, to, p->n_context);
    return rc == APP_OK ? told : rc;
}

/* Plans for one mode: e[n]. The base is then read up to what the mode compresses. */
static int plan_mode(struct eval_shared_reading *rd, enum eval_mode mode, struct eval_entry *e, int32_t *n)
{
    WNW_TRY(read_to(rd, mode));
    WNW_TRY(hand_over_uncompressed(rd, mode));
    return open_mode(rd, mode, e, n);
}

/* Compresses and answers. The last mode copies the base itself, others a copy of it, which the caller frees. */
static int answer_mode(struct eval_shared_reading *rd, struct eval_entry *e, int32_t n, bool last,
                       wnw_session **copy)
{
    const wnw_run nothing = wnw_run_default();
    /* What was recorded is not needed by copies, and can be much larger than the cache. */
    if (!last)
        WNW_TRY(eval_status_code(wnw_session_copy(copy, rd->base)));
    wnw_session *unobserved = last ? rd->base : *copy;
    WNW_TRY(eval_status_code(wnw_session_begin(unobserved, &nothing)));
    return answer_waves(rd, e, n, unobserved);
}

/* Plans, compresses and answers for one mode. The base is left as it is, unless it is the last mode. */
static int run_mode(struct eval_shared_reading *rd, enum eval_mode mode, bool last)
{
    struct eval_entry *e = calloc((size_t)rd->n, sizeof *e);
    wnw_session *unobserved = NULL;
    int32_t n = 0;
    int rc = e ? plan_mode(rd, mode, e, &n) : eval_no_memory("answers");
    if (rc == APP_OK)
        rc = answer_mode(rd, e, n, last, &unobserved);
    if (e)
        eval_entries_close(e, n);
    wnw_session_free(unobserved);
    free(e);
    return rc;
}

/* The calibration results that policies ask while tokens are read; those of all configs have the same gates. */
static const wnw_profile *asked_while_reading(const struct eval_shared_reading *rd)
{
    for (int32_t i = rd->first; i < rd->first + rd->n; i++) {
        const struct eval_config *c = eval_config_at(rd, i);
        if (!c->full && c->profile && (wnw_policy_needs(c->policy).flags & WNW_NEED_INPUT_GATE))
            return c->profile;
    }
    return NULL;
}

/* Makes the base and tells it what will be asked of it. */
static int open_base(struct eval_shared_reading *rd)
{
    int32_t n = 0;
    bool asks = false;
    rd->policies = calloc((size_t)rd->n, sizeof *rd->policies);
    if (!rd->policies)
        return eval_no_memory("policies");
    WNW_TRY(eval_new_session(&rd->base, rd->m, eval_config_at(rd, rd->first)));
    for (int32_t i = rd->first; i < rd->first + rd->n; i++) {
        const struct eval_config *c = eval_config_at(rd, i);
        if (c->full || !is_now(rd, i, EVAL_FROM_BASE))
            continue;
        asks = asks || c->has_tasks;
        rd->policies[n++] = c->policy;
    }
    if (asks)
        WNW_TRY(eval_questions_make(&rd->questions, rd->r));
    rd->told_more = (wnw_run_more){
        WNW_INIT(wnw_run_more),     .policies = rd->policies,         .n_policies = n,
        .n_tasks = rd->questions.n, .task_tokens = rd->questions.ids, .n_task_tokens = rd->questions.n_ids};
    rd->told = (wnw_run){WNW_INIT(wnw_run), .profile = asked_while_reading(rd), .more = &rd->told_more};
    WNW_TRY(tell_prompt(rd, NULL, 0, 0));
    return eval_status_code(wnw_session_begin(rd->base, &rd->told));
}

/* Whether anything is to be done in a mode. */
static bool has_work(const struct eval_shared_reading *rd, enum eval_mode mode)
{
    bool any = false;
    for (int32_t i = rd->first; !any && i < rd->first + rd->n; i++)
        any = eval_config_at(rd, i)->mode == mode &&
              (is_now(rd, i, EVAL_FROM_BASE) || is_now(rd, i, EVAL_SAME_AGAIN));
    return any;
}

/* Reads once for all modes up to `last`. */
static int run_modes(struct eval_shared_reading *rd, int last)
{
    WNW_TRY(open_base(rd));
    for (int mode = 0; mode <= last; mode++)
        if (has_work(rd, (enum eval_mode)mode))
            WNW_TRY(run_mode(rd, (enum eval_mode)mode, mode == last));
    eval_count_reading(rd, wnw_session_n_past(rd->base) - rd->n_kept, rd->prefill_ms);
    if (rd->w->readings)
        rd->w->readings->n_kept += rd->n_kept;
    return APP_OK;
}

static int run_group(struct eval_shared_reading *rd)
{
    int last = -1;
    for (int mode = 0; mode < EVAL_N_MODES; mode++)
        last = has_work(rd, (enum eval_mode)mode) ? mode : last;
    if (last < 0)
        return APP_OK;
    const int rc = run_modes(rd, last);
    eval_entry_close(&rd->uncompressed);
    wnw_session_free(rd->base);
    eval_questions_clear(&rd->questions);
    free(rd->policies);
    wnw_prompt_free(rd->prompt);
    rd->base = NULL;
    rd->policies = NULL;
    rd->prompt = NULL;
    rd->prefill_ms = 0;
    rd->n_kept = 0;
    return rc;
}

int eval_read_entries(const struct eval_runtime *m, const struct eval_reading *r, const struct eval_wanted *w,
                      struct eval_reference *reference)
{
    struct eval_shared_reading rd = {.m = m, .r = r, .w = w, .reference = reference};
    if (m->devices)
        return eval_read_on_devices(m, r, w, reference);
    for (; rd.first < w->configs->n; rd.first += rd.n) {
        const struct eval_config *c = eval_config_at(&rd, rd.first);
        rd.n = 0;
        while (rd.first + rd.n < w->configs->n &&
               eval_configs_share_reading(eval_config_at(&rd, rd.first + rd.n), c))
            rd.n++;
        for (rd.group = 0; rd.group < w->configs->n_groups; rd.group++)
            WNW_TRY(run_group(&rd));
        WNW_TRY(eval_read_separately(&rd));
    }
    return APP_OK;
}
