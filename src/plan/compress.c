/* SPDX-License-Identifier: MIT */
/*
 * The only place that knows the order observe -> score -> budget -> select; methods are reached through
 * their descriptors alone. The layers are walked up to three times:
 *
 *     gather    the scorer sees all layers before any is scored                        (few policies)
 *     score     the layer is observed and scored; a layer-local policy also counts and selects
 *     settle    all layers get counts from their scores, then entries are selected     (all_layers)
 *
 * Several jobs walk in step, so that a layer is observed once for all of them.
 */
#include "plan/compress_impl.h"

#include "base/system.h"

#include <stdlib.h>
#include <string.h>

/* ---- The three steps of one job ---- */

/* Whether there is nothing to decide in layer il. */
static bool keeps_whole(const struct wnw__plan_job *j, int32_t il)
{
    if (j->size.rule == WNW_SIZE_RULE_ALL || !wnw__job_takes_part(j, il))
        return true;
    if (j->size.rule != WNW_SIZE_RULE_MEAN || j->all_layers)
        return false;
    const int32_t i = j->cache.part[il], n_head = j->src->shape.n_head_kv;
    for (int32_t ih = 0; ih < n_head; ih++)
        if (wnw__job_entries(j, il)[ih] > (j->counts ? j->counts[i * n_head + ih] : j->layer_budget[i]))
            return false;
    return true;
}

/* Whether something is written into the entries of layer il though all of them stay. */
static bool rewrites_whole(const struct wnw__plan_job *j, int32_t il)
{
    return wnw__policy_rewrites_all(j->policy) && wnw__job_takes_part(j, il) && j->cache.n_max > 0;
}

static bool gather_wants(const struct wnw__plan_job *j, int32_t il, wnw_needs *needs)
{
    if (!wnw__job_takes_part(j, il) || !j->gathered[WNW_PART_SCORER])
        return false;
    *needs = wnw__job_gather_needs(j);
    return true;
}

static int gather(struct wnw__plan_job *j, int32_t il, const wnw_observation *seen)
{
    wnw_observation obs;
    (void)il;
    if (!seen)
        return WNW_OK;
    const double start = wnw__now_ms();
    WNW_TRY(wnw__job_adapt(j, seen, &j->wants, &obs));
    WNW_TRY(wnw__job_gather(j, WNW_PART_SCORER, &obs));
    j->score_ms += wnw__now_ms() - start;
    return WNW_OK;
}

static bool score_wants(const struct wnw__plan_job *j, int32_t il, wnw_needs *needs)
{
    const bool whole = keeps_whole(j, il);
    *needs = whole ? wnw__job_contents_needs(j) : wnw__job_score_needs(j);
    return !whole || rewrites_whole(j, il);
}

/* Adds the heads that the step `score` reads. Content rules look at the queries of all heads. */
static int score_heads(struct wnw__plan_job *j, int32_t il, bool *used)
{
    if (!keeps_whole(j, il))
        return wnw__job_window_heads(j, il, used);
    for (int32_t h = 0; h < j->src->shape.n_head; h++)
        used[h] = true;
    return WNW_OK;
}

/* Scores the layer, then selects at once or keeps the scores until all layers are scored. */
static int score(struct wnw__plan_job *j, int32_t il, const wnw_observation *seen)
{
    struct wnw__scored_layer l;
    wnw_observation obs;
    if (seen)
        WNW_TRY(wnw__job_adapt(j, seen, &j->wants, &obs));
    if (keeps_whole(j, il)) /* with all_layers, `settle` writes the plan */
        return j->all_layers ? WNW_OK : wnw__job_keep_layer(j, il, seen ? &obs : NULL);
    const double start = wnw__now_ms();
    WNW_TRY(wnw__job_score(j, &obs, &l));
    j->score_ms += wnw__now_ms() - start;
    if (!j->all_layers)
        return wnw__job_select_layer(j, &l, &obs);
    for (int32_t k = WNW_PART_SCORER + 1; k < WNW_N_PART_KINDS; k++)
        WNW_TRY(wnw__job_gather(j, k, &obs));
    j->scored[l.i] = l;
    j->score = j->head_score = (struct wnw__floats){0};
    return WNW_OK;
}

static bool settle_wants(const struct wnw__plan_job *j, int32_t il, wnw_needs *needs)
{
    if (!j->all_layers || !wnw__job_takes_part(j, il) ||
        !(j->selector->part.needs || j->contents->part.needs))
        return false;
    *needs = wnw__job_select_needs(j);
    return true;
}

static int settle(struct wnw__plan_job *j, int32_t il, const wnw_observation *seen)
{
    wnw_observation obs;
    if (!j->all_layers)
        return WNW_OK;
    if (il == 0 && j->size.rule == WNW_SIZE_RULE_MEAN)
        WNW_TRY(wnw__job_count_model(j));
    if (!wnw__job_takes_part(j, il))
        return wnw__job_keep_layer(j, il, NULL);
    if (seen)
        WNW_TRY(wnw__job_adapt(j, seen, &j->wants, &obs));
    return wnw__job_select_layer(j, &j->scored[j->cache.part[il]], seen ? &obs : NULL);
}

static const struct step {
    /* Whether the job wants to look at layer il, and what it wants to see. */
    bool (*wants)(const struct wnw__plan_job *j, int32_t il, wnw_needs *needs);
    /* Adds the query heads whose window attention the step reads. NULL = it reads all. */
    int (*heads)(struct wnw__plan_job *j, int32_t il, bool *used);
    /* Does the step; seen = what the job wants, NULL where it does not look. */
    int (*act)(struct wnw__plan_job *j, int32_t il, const wnw_observation *seen);
} steps[] = {{gather_wants, NULL, gather}, {score_wants, score_heads, score}, {settle_wants, NULL, settle}};
enum { STEP_GATHER, STEP_SCORE, STEP_SETTLE, N_STEP };

/* ---- Several jobs in step ---- */

struct walk {
    struct wnw__plan_job **jobs;
    int32_t n;
    const struct wnw__plan_source *src;
};

/* Adds the time of one observation to every job that took part in it. */
static void add_observe_ms(const struct walk *w, double ms)
{
    for (int32_t k = 0; k < w->n; k++)
        w->jobs[k]->observe_ms += w->jobs[k]->looks ? ms : 0;
}

/* Observes layer il once for all jobs that want to; *any says whether a job wanted to. */
static int observe(const struct walk *w, const struct step *step, int32_t il, bool *any,
                   wnw_observation *seen)
{
    wnw_needs needs = {0};
    bool *heads = w->n > 0 ? w->jobs[0]->all_heads : NULL;
    *any = false;
    for (int32_t h = 0; heads && h < w->src->shape.n_head; h++)
        heads[h] = false;
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__plan_job *j = w->jobs[k];
        j->wants = (wnw_needs){0};
        j->looks = step->wants(j, il, &j->wants);
        if (!j->looks)
            continue;
        wnw__needs_merge(&needs, &j->wants);
        if (step->heads)
            WNW_TRY(step->heads(j, il, heads));
        *any = true;
    }
    if (!*any)
        return WNW_OK;
    const double start = wnw__now_ms();
    *seen = (wnw_observation){0};
    WNW_TRY(w->src->observe(w->src, il, &needs, step->heads ? heads : NULL, seen));
    add_observe_ms(w, wnw__now_ms() - start);
    return WNW_OK;
}

static int walk_layer(const struct walk *w, const struct step *step, int32_t il)
{
    wnw_observation seen;
    bool any;
    WNW_TRY(observe(w, step, il, &any, &seen));
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__plan_job *j = w->jobs[k];
        const double start = wnw__now_ms();
        WNW_TRY(step->act(j, il, j->looks ? &seen : NULL));
        j->work_ms += wnw__now_ms() - start;
    }
    return WNW_OK;
}

/* Feeds the second pass, if any job wants one; its time counts for each job that does. */
static int feed_second_pass(const struct walk *w)
{
    int32_t kind = 0, n_wanted = 0;
    for (int32_t k = 0; k < w->n; k++) {
        const wnw_needs needs = wnw_policy_needs(w->jobs[k]->policy);
        w->jobs[k]->looks = w->jobs[k]->size.rule != WNW_SIZE_RULE_ALL && needs.flags & WNW_NEED_SECOND_PASS;
        if (!w->jobs[k]->looks)
            continue;
        if (n_wanted++ > 0 && needs.second_pass != kind)
            return wnw__fail(WNW_E_ARG,
                             "%s feeds other tokens in its second pass than the policies before "
                             "it: plan them one by one",
                             wnw__policy_name(w->jobs[k]->policy));
        kind = needs.second_pass;
    }
    if (n_wanted == 0 || !w->src->second_pass)
        return WNW_OK;
    char warning[WNW_WARNING_SIZE] = "";
    const double start = wnw__now_ms();
    WNW_TRY(w->src->second_pass(w->src, kind, warning));
    add_observe_ms(w, wnw__now_ms() - start);
    for (int32_t k = 0; k < w->n && warning[0]; k++)
        if (w->jobs[k]->looks)
            wnw__warn(w->jobs[k]->report->warning, "%s", warning);
    return WNW_OK;
}

static int walk_all(const struct walk *w)
{
    WNW_TRY(feed_second_pass(w));
    for (int step = 0; step < N_STEP; step++)
        for (int32_t il = 0; il < w->src->shape.n_layer; il++) {
            WNW_TRY(walk_layer(w, &steps[step], il));
            if (step == STEP_SCORE && w->src->progress && !w->src->progress(w->src, il))
                return wnw__fail(WNW_E_CANCELLED, "cancelled after layer %d of %d", il,
                                 w->src->shape.n_layer);
        }
    return WNW_OK;
}

int wnw__plan_job_layer(struct wnw__plan_job *j, int32_t il, struct wnw__kept_layer *out)
{
    const struct walk w = {.jobs = &j, .n = 1, .src = j->src};
    const struct wnw__job_kept *kept = &j->kept;
    if (j->all_layers || j->gathered[WNW_PART_SCORER])
        return wnw__fail(WNW_E_UNSUPPORTED, "%s cannot compress a layer before it has seen all of them",
                         wnw__policy_name(j->policy));
    WNW_TRY(walk_layer(&w, &steps[STEP_SCORE], il));
    if (!out)
        return WNW_OK;
    for (int32_t ih = 0; ih < j->src->shape.n_head_kv; ih++)
        kept->keep_heads[ih] = kept->keep ? kept->keep + (int64_t)ih * j->cache.row : NULL;
    *out = (struct wnw__kept_layer){.keep = kept->keep_heads,
                                    .n_keep = kept->n_keep,
                                    .n_settled = kept->n_settled,
                                    .contents = wnw__plan_contents_of(j->plan, il),
                                    .averages = j->plan->averages};
    return WNW_OK;
}

/* ---- Reports ---- */

void wnw__plan_job_times(const struct wnw__plan_job *j, wnw_report *report)
{
    report->observe_ms += j->observe_ms;
    report->score_ms += j->score_ms;
    report->select_ms += j->work_ms - j->score_ms;
}

void wnw__report_add(wnw_report *sum, const wnw_report *one)
{
    sum->observe_ms += one->observe_ms;
    sum->score_ms += one->score_ms;
    sum->select_ms += one->select_ms;
    sum->compact_ms += one->compact_ms;
    if (one->kv_bytes_before > sum->kv_bytes_before)
        sum->kv_bytes_before = one->kv_bytes_before;
    if (*one->warning && !*sum->warning)
        memcpy(sum->warning, one->warning, sizeof sum->warning);
}

static double kept_mean(const struct wnw__plan_job *j)
{
    int64_t sum = 0, n_head = 0;
    const int32_t *pos;
    for (int32_t il = 0; il < j->src->shape.n_layer; il++) {
        if (!wnw__layer_takes_part(&j->src->shape, il))
            continue; /* layers that the method leaves whole count */
        for (int32_t ih = 0; ih < j->src->shape.n_head_kv; ih++)
            sum += wnw_plan_head(j->plan, il, ih, &pos);
        n_head += j->src->shape.n_head_kv;
    }
    return n_head > 0 ? (double)sum / (double)n_head : 0;
}

/* ---- All at once ---- */

static wnw_plan *finish(struct wnw__plan_job *j)
{
    wnw_plan *plan = j->plan;
    j->report->kept_mean = kept_mean(j);
    j->report->protected_first = j->thins ? j->least.n_first : j->src->n_past;
    j->report->protected_last = j->thins ? j->least.n_last : 0;
    j->report->observe_ms = j->report->score_ms = j->report->select_ms = 0;
    wnw__plan_job_times(j, j->report);
    j->plan = NULL;
    return plan;
}

int wnw__plan_make_many(wnw_plan **out, const wnw_policy *const *policies, const wnw_size *sizes, int32_t n,
                        const struct wnw__plan_source *src, wnw_report *reports)
{
    struct wnw__plan_job **jobs = calloc((size_t)n + 1, sizeof(struct wnw__plan_job *));
    int rc = jobs ? wnw__needs_agree(policies, n) : wnw__fail(WNW_E_NOMEM, "out of memory for %d plans", n);
    for (int32_t k = 0; k < n; k++)
        out[k] = NULL;
    for (int32_t k = 0; rc == WNW_OK && k < n; k++)
        rc = wnw__plan_job_new(&jobs[k], policies[k], sizes ? &sizes[k] : NULL, src,
                               reports ? &reports[k] : NULL);
    if (rc == WNW_OK)
        rc = walk_all(&(struct walk){.jobs = jobs, .n = n, .src = src});
    for (int32_t k = 0; rc == WNW_OK && k < n; k++)
        out[k] = finish(jobs[k]);
    for (int32_t k = 0; jobs && k < n; k++)
        wnw__plan_job_free(jobs[k]);
    free(jobs);
    return rc;
}

int wnw__plan_make(wnw_plan **out, const wnw_policy *policy, const wnw_size *size,
                   const struct wnw__plan_source *src, wnw_report *report)
{
    return wnw__plan_make_many(out, &policy, size, 1, src, report);
}
