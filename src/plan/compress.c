/* SPDX-License-Identifier: MIT */
/*
 * The only place that knows the order observe -> score -> budget -> select; methods are reached through
 * their descriptors alone. A job is one policy at work. Its layers go one by one:
 *
 *     gather    what the scorer wants to know of all layers first                      (few policies)
 *     score     observe the layer, score it; count and select too where the policy is layer-local
 *     settle    counts of all layers from their scores, then select                    (model scope)
 *
 * Several jobs walk in step, so that a layer is observed once for all of them.
 */
#include "plan/compress_impl.h"

#include "base/time.h"

#include <stdlib.h>
#include <string.h>

/* ---- Several jobs in step ---- */

struct walk {
    struct wnw__plan_job **jobs;
    int32_t n;
    const struct wnw__plan_source *src;
};

/* One look at layer il for every job that `wanted` names; the time counts for each of them. heads: query
 * heads whose window attention somebody reads; NULL = all. */
static int observe_for(const struct walk *w, int32_t il, const wnw_needs *needs, const bool *heads,
                       const bool *wanted, wnw_observation *obs)
{
    const double start = wnw__now_ms();
    *obs = (wnw_observation){0};
    if (heads && w->src->want_heads)
        w->src->want_heads(w->src, heads);
    WNW_TRY(w->src->observe(w->src, il, needs, obs));
    const double ms = wnw__now_ms() - start;
    for (int32_t k = 0; k < w->n; k++)
        w->jobs[k]->observe_ms += wanted[k] ? ms : 0;
    return WNW_OK;
}

static int gather_layer(const struct walk *w, int32_t il, bool *wanted)
{
    wnw_needs needs = {0};
    wnw_observation seen, obs;
    bool any = false;
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__plan_job *j = w->jobs[k];
        wanted[k] = !j->keep_all && !wnw__job_skips(j, il) && j->gathered[WNW_PART_SCORER];
        if (!wanted[k])
            continue;
        const wnw_needs more = wnw__job_gather_needs(j);
        wnw__needs_merge(&needs, &more);
        any = true;
    }
    if (!any)
        return WNW_OK;
    WNW_TRY(observe_for(w, il, &needs, NULL, wanted, &seen));
    for (int32_t k = 0; k < w->n; k++) {
        if (!wanted[k])
            continue;
        struct wnw__plan_job *j = w->jobs[k];
        const double start = wnw__now_ms();
        const wnw_needs own = wnw__job_gather_needs(j);
        WNW_TRY(wnw__job_adapt(j, &seen, &own, &obs));
        WNW_TRY(j->scorer->part.gather->visit(j->scorer_opts, &obs, j->gathered[WNW_PART_SCORER]));
        j->score_ms += wnw__now_ms() - start;
        j->work_ms += wnw__now_ms() - start;
    }
    return WNW_OK;
}

static int walk_layer(const struct walk *w, int32_t il, bool *wanted)
{
    wnw_needs needs = {0};
    wnw_observation seen;
    bool any = false, *heads = w->n > 0 ? w->jobs[0]->all_heads : NULL;
    for (int32_t h = 0; heads && h < w->src->n_head; h++)
        heads[h] = false;
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__plan_job *j = w->jobs[k];
        const bool whole = wnw__job_keeps_whole(j, il, wnw__job_part(j, il));
        wanted[k] = !whole || wnw__job_rewrites_whole(j, il);
        if (!wanted[k])
            continue;
        const wnw_needs more = whole ? wnw__job_contents_needs(j) : wnw__job_score_needs(j);
        wnw__needs_merge(&needs, &more);
        if (!whole)
            WNW_TRY(wnw__job_window_heads(j, il, heads));
        for (int32_t h = 0; whole && h < w->src->n_head; h++)
            heads[h] = true; /* content rules look at the queries of all */
        any = true;
    }
    if (any)
        WNW_TRY(observe_for(w, il, &needs, heads, wanted, &seen));
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__plan_job *j = w->jobs[k];
        const double start = wnw__now_ms();
        if (!wnw__job_keeps_whole(j, il, wnw__job_part(j, il)))
            WNW_TRY(wnw__job_score_layer(j, il, &seen));
        else if (!j->model_scope || j->keep_all)
            WNW_TRY(wnw__job_keep_layer(
                j, il, wanted[k] ? &seen : NULL)); /* in model scope the plan is written in the end */
        j->work_ms += wnw__now_ms() - start;
    }
    return WNW_OK;
}

static int settle_layer(const struct walk *w, int32_t il, bool *wanted)
{
    wnw_needs needs = {0};
    wnw_observation seen;
    bool any = false;
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__plan_job *j = w->jobs[k];
        wanted[k] = j->model_scope && !j->keep_all && !wnw__job_skips(j, il) &&
                    (j->selector->part.needs || j->contents->part.needs);
        if (!wanted[k])
            continue;
        const wnw_needs more = wnw__job_select_needs(j);
        wnw__needs_merge(&needs, &more);
        any = true;
    }
    if (any)
        WNW_TRY(observe_for(w, il, &needs, NULL, wanted, &seen));
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__plan_job *j = w->jobs[k];
        if (!j->model_scope || j->keep_all)
            continue;
        const double start = wnw__now_ms();
        if (wnw__job_skips(j, il))
            WNW_TRY(wnw__job_keep_layer(j, il, NULL));
        else
            WNW_TRY(wnw__job_select_scored(j, wnw__job_part(j, il), wanted[k] ? &seen : NULL));
        j->work_ms += wnw__now_ms() - start;
    }
    return WNW_OK;
}

/* Feeds the second pass, if any job wants one; the time counts for each of them. */
static int feed_second_pass(const struct walk *w, bool *wanted)
{
    int32_t kind = 0, n_wanted = 0;
    for (int32_t k = 0; k < w->n; k++) {
        const wnw_needs needs = wnw_policy_needs(w->jobs[k]->policy);
        wanted[k] = !w->jobs[k]->keep_all && needs.flags & WNW_NEED_SECOND_PASS;
        if (!wanted[k])
            continue;
        if (n_wanted++ > 0 && needs.second_pass != kind)
            return wnw__fail(WNW_E_ARG,
                             "%s feeds other tokens in its second pass than the policies before "
                             "it: plan them one by one",
                             w->jobs[k]->scorer->part.name);
        kind = needs.second_pass;
    }
    if (n_wanted == 0 || !w->src->second_pass)
        return WNW_OK;
    char warning[256] = "";
    const double start = wnw__now_ms();
    WNW_TRY(w->src->second_pass(w->src, kind, warning));
    const double ms = wnw__now_ms() - start;
    for (int32_t k = 0; k < w->n; k++) {
        if (!wanted[k])
            continue;
        w->jobs[k]->observe_ms += ms;
        if (warning[0])
            wnw__warn(w->jobs[k]->report->warning, "%s", warning);
    }
    return WNW_OK;
}

static int walk_all(const struct walk *w, bool *wanted)
{
    const int32_t n_layer = w->src->n_layer;
    WNW_TRY(feed_second_pass(w, wanted));
    for (int32_t il = 0; il < n_layer; il++)
        WNW_TRY(gather_layer(w, il, wanted));
    for (int32_t il = 0; il < n_layer; il++) {
        WNW_TRY(walk_layer(w, il, wanted));
        if (w->src->progress && !w->src->progress(w->src, il))
            return wnw__fail(WNW_E_CANCELLED, "cancelled after layer %d of %d", il, n_layer);
    }
    for (int32_t k = 0; k < w->n; k++)
        if (w->jobs[k]->model_scope && !w->jobs[k]->keep_all) {
            const double start = wnw__now_ms();
            WNW_TRY(wnw__job_settle_counts(w->jobs[k]));
            w->jobs[k]->work_ms += wnw__now_ms() - start;
        }
    for (int32_t il = 0; il < n_layer; il++)
        WNW_TRY(settle_layer(w, il, wanted));
    return WNW_OK;
}

int wnw__plan_job_layer(struct wnw__plan_job *j, int32_t il, struct wnw__kept_layer *out)
{
    const struct walk w = {.jobs = &j, .n = 1, .src = j->src};
    bool wanted;
    if (!j->keep_all && (j->model_scope || j->gathered[WNW_PART_SCORER]))
        return wnw__fail(WNW_E_UNSUPPORTED, "%s cannot compress a layer before it has seen all of them",
                         j->scorer->part.name);
    WNW_TRY(walk_layer(&w, il, &wanted));
    if (!out)
        return WNW_OK;
    for (int32_t ih = 0; ih < j->src->n_head_kv; ih++)
        j->keep_heads[ih] = j->keep ? j->keep + (int64_t)ih * j->keep_row : NULL;
    *out = (struct wnw__kept_layer){.keep = j->keep_heads,
                                    .n_keep = j->n_keep,
                                    .n_final = j->n_final,
                                    .contents = wnw__plan_contents_of(j->plan, il),
                                    .averages = j->plan->averages};
    return WNW_OK;
}

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

/* ---- The driver ---- */

static double kept_mean(const struct wnw__plan_job *j)
{
    int64_t sum = 0, n_head = 0;
    const int32_t *pos;
    for (int32_t il = 0; il < j->src->n_layer; il++) {
        if (j->src->is_skipped && j->src->is_skipped(j->src, il))
            continue; /* layers that the method itself leaves whole do count */
        for (int32_t ih = 0; ih < j->src->n_head_kv; ih++)
            sum += wnw_plan_head(j->plan, il, ih, &pos);
        n_head += j->src->n_head_kv;
    }
    return n_head > 0 ? (double)sum / (double)n_head : 0;
}

int wnw__plan_make_many(wnw_plan **out, const wnw_policy *const *policies, const wnw_size *sizes, int32_t n,
                        const struct wnw__plan_source *src, wnw_report *reports)
{
    struct wnw__plan_job **jobs = calloc((size_t)n + 1, sizeof(struct wnw__plan_job *));
    bool *wanted = calloc((size_t)n + 1, sizeof *wanted);
    int rc = jobs && wanted ? WNW_OK : wnw__fail(WNW_E_NOMEM, "out of memory for %d plans", n);
    for (int32_t k = 0; k < n; k++)
        out[k] = NULL;
    if (rc == WNW_OK)
        rc = wnw__needs_agree(policies, n);
    for (int32_t k = 0; rc == WNW_OK && k < n; k++)
        rc = wnw__plan_job_new(&jobs[k], policies[k], sizes ? &sizes[k] : NULL, src,
                               reports ? &reports[k] : NULL);
    const struct walk w = {.jobs = jobs, .n = n, .src = src};
    if (rc == WNW_OK)
        rc = walk_all(&w, wanted);
    for (int32_t k = 0; rc == WNW_OK && k < n; k++) {
        jobs[k]->report->kept_mean = kept_mean(jobs[k]);
        jobs[k]->report->observe_ms = jobs[k]->report->score_ms = jobs[k]->report->select_ms = 0;
        wnw__plan_job_times(jobs[k], jobs[k]->report);
        out[k] = jobs[k]->plan;
        jobs[k]->plan = NULL;
    }
    for (int32_t k = 0; jobs && k < n; k++)
        wnw__plan_job_free(jobs[k]);
    free(jobs);
    free(wanted);
    return rc;
}

int wnw__plan_make(wnw_plan **out, const wnw_policy *policy, const wnw_size *size,
                   const struct wnw__plan_source *src, wnw_report *report)
{
    return wnw__plan_make_many(out, &policy, size, 1, src, report);
}
