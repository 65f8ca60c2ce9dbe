/* SPDX-License-Identifier: MIT */
/* From a policy to a smaller cache: plan (plan/compress.c) and compact (rewrite.c, cache/cache.c). */
#include "base/err.h"
#include "base/system.h"
#include "plan/compress.h"
#include "plan/plan.h"
#include "policy/policy.h"
#include "session/session.h"

#include <stdlib.h>

static int plan_many(wnw_session *s, const wnw_policy *const *policies, const wnw_size *sizes, int32_t n,
                     int32_t ratio_base, wnw_plan **plans, wnw_report *reports)
{
    WNW_REQUIRE(plans || n < 1);
    for (int32_t i = 0; i < n; i++) {
        plans[i] = NULL;
        if (reports)
            reports[i] = (wnw_report){0};
    }
    WNW_REQUIRE(s);
    WNW_TRY(wnw__policies_check(policies, n));
    if (s->n_past == 0)
        return wnw__fail(WNW_E_ARG, "nothing to compress: no tokens were read");
    struct wnw__plan_source src;
    const double start = wnw__now_ms();
    WNW_TRY(wnw__session_source(&src, s));
    const double ms = wnw__now_ms() - start;
    src.ratio_base = ratio_base;
    const int rc = wnw__plan_make_many(plans, policies, sizes, n, &src, reports);
    wnw__source_close(&src);
    for (int32_t i = 0; reports && i < n; i++) {
        reports[i].observe_ms += ms;
        reports[i].entries_before = reports[i].entries_after = wnw__cache_entries(&s->cache);
        reports[i].kv_bytes_before = reports[i].kv_bytes_after = wnw__cache_bytes(&s->cache);
    }
    return rc;
}

/* Report i of an array whose elements all have the size that the first one states. */
static wnw_report *report_at(wnw_report *reports, int32_t i)
{
    return (wnw_report *)(void *)((char *)reports + (size_t)i * reports->struct_size);
}

static int check_reports(wnw_report *reports, int32_t n)
{
    for (int32_t i = 0; reports && i < n; i++) {
        WNW_TRY(WNW_SIZED_CHECK(wnw_report, report_at(reports, i)));
        if (report_at(reports, i)->struct_size != reports->struct_size)
            return wnw__fail(WNW_E_ARG, "struct_size of report %d is %u, of the first %u; they must be equal",
                             (int)i, (unsigned)report_at(reports, i)->struct_size,
                             (unsigned)reports->struct_size);
    }
    return WNW_OK;
}

int wnw_session_plan_many(wnw_session *s, const wnw_policy *const *policies, const wnw_size *sizes, int32_t n,
                          wnw_plan **plans, wnw_report *reports)
{
    for (int32_t i = 0; plans && i < n; i++)
        plans[i] = NULL;
    WNW_TRY(check_reports(reports, n));
    wnw_report *own = reports && n > 0 ? calloc((size_t)n, sizeof *own) : NULL;
    if (reports && n > 0 && !own)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d reports", (int)n);
    const int rc = plan_many(s, policies, sizes, n, 0, plans, own);
    for (int32_t i = 0; reports && i < n; i++)
        wnw__sized_give(report_at(reports, i), &own[i]);
    free(own);
    return rc;
}

int wnw__session_plan(wnw_session *s, const wnw_policy *policy, const wnw_size *size, int32_t ratio_base,
                      wnw_plan **plan, wnw_report *report)
{
    return plan_many(s, &policy, size, 1, ratio_base, plan, report);
}

int wnw_session_plan(wnw_session *s, const wnw_policy *policy, const wnw_size *size, wnw_plan **plan,
                     wnw_report *report)
{
    WNW_REQUIRE(plan);
    return wnw_session_plan_many(s, &policy, size, 1, plan, report);
}

/* Writes the cache indices of the planned positions of one head to index[*n]. */
static int find_indices(const wnw_session *s, const wnw_plan *plan, int32_t il, int32_t ih, int32_t *index,
                        int32_t *n)
{
    const int32_t *want, *have = wnw_cache_positions(s, il, ih);
    const int32_t n_have = wnw_cache_n(s, il, ih);
    *n = wnw_plan_head(plan, il, ih, &want);
    for (int32_t i = 0, j = 0; i < *n; i++, j++) {
        while (j < n_have && have[j] < want[i])
            j++;
        if (j == n_have || have[j] != want[i])
            return wnw__fail(WNW_E_MISMATCH,
                             "the plan keeps position %d in layer %d head %d, which the cache does not hold",
                             (int)want[i], (int)il, (int)ih);
        index[i] = j;
    }
    return WNW_OK;
}

/* Room for what stays of a layer, as in struct wnw__kept_layer. */
struct lists {
    int32_t *index; /* [n_head_kv * n_past] of all heads, one after another */
    const int32_t **keep;
    int32_t *n_keep;
};

/* Makes room for the lists of one layer. n_keep is NULL where memory ran out; lists_free is called in any case. */
static struct lists lists_new(const wnw_session *s)
{
    const size_t n_kv = (size_t)s->cache.n_head_kv;
    struct lists to = {.index = malloc((n_kv * (size_t)s->n_past + 1) * sizeof *to.index),
                       .keep = calloc(n_kv, sizeof *to.keep)};
    to.n_keep = to.index && to.keep ? calloc(n_kv, sizeof *to.n_keep) : NULL;
    if (!to.n_keep)
        wnw__fail(WNW_E_NOMEM, "no memory to compact the cache");
    return to;
}

static void lists_free(const struct lists *to)
{
    free(to->index);
    free(to->keep);
    free(to->n_keep);
}

/* Fills in what the plan keeps of layer il. */
static int find_layer(const wnw_session *s, const wnw_plan *plan, int32_t il, const struct lists *to)
{
    size_t used = 0;
    for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++) {
        to->keep[ih] = to->index + used;
        WNW_TRY(find_indices(s, plan, il, ih, to->index + used, &to->n_keep[ih]));
        used += (size_t)to->n_keep[ih];
    }
    return WNW_OK;
}

/* Checks (dry) or applies the plan for layer il; room < 0 asks for tight storage. */
static int keep_layer(wnw_session *s, const wnw_plan *plan, int32_t il, bool dry, int32_t room,
                      const struct lists *to)
{
    if (!wnw__layer_takes_part(&s->shape.model, il))
        return WNW_OK; /* what it holds depends on when it was trimmed */
    WNW_TRY(find_layer(s, plan, il, to));
    const struct wnw__kept_layer kept = {.keep = to->keep,
                                         .n_keep = to->n_keep,
                                         .n_settled = plan->n_settled[il],
                                         .contents = wnw__plan_contents_of(plan, il),
                                         .averages = plan->averages};
    return dry ? wnw__rewrite_check(&s->cache, il, &kept) : wnw__rewrite_layer(&s->cache, il, &kept, room);
}

int wnw__session_allocated(uint64_t *bytes, const wnw_session *s, const wnw_plan *plan)
{
    const struct lists to = lists_new(s);
    int rc = to.n_keep ? WNW_OK : WNW_E_NOMEM;
    *bytes = 0;
    for (int32_t il = 0; rc == WNW_OK && il < s->cache.n_layer; il++) {
        if (!wnw__layer_takes_part(&s->shape.model, il))
            continue;
        rc = find_layer(s, plan, il, &to);
        const uint64_t of_layer =
            rc == WNW_OK ? wnw__cache_bytes_keeping(&s->cache, il, to.keep, to.n_keep) : 0;
        rc = rc == WNW_OK && of_layer == 0 && to.n_keep[0] > 0 ? WNW_E_NOMEM : rc;
        *bytes += of_layer;
    }
    lists_free(&to);
    return rc;
}

int wnw__session_apply(wnw_session *s, const wnw_plan *plan, int32_t room, wnw_report *report)
{
    const struct wnw__cache *c = &s->cache;
    if (wnw_plan_n_layer(plan) != c->n_layer || wnw_plan_n_head_kv(plan) != c->n_head_kv ||
        wnw_plan_n_tokens(plan) != s->n_past)
        return wnw__fail(WNW_E_MISMATCH,
                         "the plan is for %d layers, %d KV heads and %d tokens; here are %d, %d and %d",
                         (int)wnw_plan_n_layer(plan), (int)wnw_plan_n_head_kv(plan),
                         (int)wnw_plan_n_tokens(plan), (int)c->n_layer, (int)c->n_head_kv, (int)s->n_past);
    const double start = wnw__now_ms();
    const int64_t entries_before = wnw__cache_entries(c);
    const uint64_t bytes_before = wnw__cache_bytes(c);
    const struct lists to = lists_new(s);
    int rc = to.n_keep ? WNW_OK : WNW_E_NOMEM;
    /* The first pass only checks all layers: a plan that does not fit must leave the cache as it was. */
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t il = 0; rc == WNW_OK && il < c->n_layer; il++)
            rc = keep_layer(s, plan, il, pass == 0, room, &to);
    }
    lists_free(&to);
    s->n_fixed = s->n_past; /* some layers are compacted even where memory ran out */
    if (rc == WNW_OK)
        wnw__recorders_tell(&s->recorders, 0, c->n_layer, WNW_EVENT_DROPPED);
    if (report) {
        report->entries_before = entries_before;
        report->entries_after = wnw__cache_entries(c);
        report->kv_bytes_before = bytes_before;
        report->kv_bytes_after = wnw__cache_bytes(c);
        report->compact_ms = wnw__now_ms() - start;
    }
    return rc;
}

int wnw_session_apply(wnw_session *s, const wnw_plan *plan, wnw_report *report)
{
    wnw_report own = wnw_report_default(); /* keeps what planning wrote into the caller's report */
    WNW_REQUIRE(s);
    WNW_REQUIRE(plan);
    WNW_TRY(WNW_SIZED_TAKE(wnw_report, &own, report));
    const int rc = wnw__session_apply(s, plan, -1, &own);
    wnw__sized_give(report, &own);
    WNW_TRY(rc);
    /* The engine's activations are the other large piece of memory that a long prompt leaves. */
    wnw__engine_release(s->engine);
    return WNW_OK;
}

static int check_positions(const wnw_session *s, const wnw_plan *plan)
{
    const int32_t *unused;
    WNW_TRY(wnw__renumber_check(s));
    for (int32_t il = 0; il < wnw_plan_n_layer(plan); il++)
        for (int32_t ih = 0; ih < wnw_plan_n_head_kv(plan); ih++)
            WNW_TRY(wnw__renumber_check_count(il, ih, wnw_plan_head(plan, il, ih, &unused),
                                              wnw_plan_head(plan, 0, 0, &unused)));
    return WNW_OK;
}

int wnw__session_follow(wnw_session *s, const wnw_policy *policy, const wnw_plan *plan, int32_t room,
                        wnw_report *report)
{
    const bool rerotates = wnw_policy_rerotates(policy);
    if (rerotates)
        WNW_TRY(check_positions(s, plan));
    WNW_TRY(wnw__session_apply(s, plan, room, report));
    if (!rerotates)
        return WNW_OK;
    const double start = wnw__now_ms();
    WNW_TRY(wnw_session_renumber(s));
    report->compact_ms += wnw__now_ms() - start;
    return WNW_OK;
}

static int compress(wnw_session *s, const wnw_policy *policy, const wnw_size *size, wnw_report *report)
{
    wnw_plan *plan;
    WNW_REQUIRE(s);
    WNW_REQUIRE(policy);
    if (wnw_policy_rerotates(policy))
        WNW_TRY(wnw__renumber_check(s)); /* fails before the work of planning */
    WNW_TRY(wnw__session_plan(s, policy, size, 0, &plan, report));
    const int rc = wnw__session_follow(s, policy, plan, -1, report);
    wnw_plan_free(plan);
    wnw__engine_release(s->engine); /* for the same reason as in wnw_session_apply */
    return rc;
}

int wnw_session_compress(wnw_session *s, const wnw_policy *policy, const wnw_size *size, wnw_report *report)
{
    wnw_report own = wnw_report_default();
    WNW_TRY(WNW_SIZED_CHECK(wnw_report, report));
    const int rc = compress(s, policy, size, &own);
    wnw__sized_give(report, &own);
    return rc;
}
