/* SPDX-License-Identifier: MIT */
/* From a plan to a smaller cache: compact (rewrite.c, cache/cache.c), and new positions where the policy wants them. */
#include "base/err.h"
#include "base/system.h"
#include "plan/plan.h"
#include "policy/policy.h"
#include "session/compact/compact.h"
#include "session/session.h"

#include <stdlib.h>

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

static int add_layers(uint64_t *bytes, const wnw_session *s, const wnw_plan *plan, const struct lists *to)
{
    for (int32_t il = 0; il < s->cache.n_layer; il++) {
        if (!wnw__layer_takes_part(&s->shape.model, il))
            continue;
        WNW_TRY(find_layer(s, plan, il, to));
        const uint64_t of_layer = wnw__cache_bytes_keeping(&s->cache, il, to->keep, to->n_keep);
        if (of_layer == 0 && to->n_keep[0] > 0)
            return WNW_E_NOMEM;
        *bytes += of_layer;
    }
    return WNW_OK;
}

int wnw__session_allocated(uint64_t *bytes, const wnw_session *s, const wnw_plan *plan)
{
    const struct lists to = lists_new(s);
    *bytes = 0;
    const int rc = to.n_keep ? add_layers(bytes, s, plan, &to) : WNW_E_NOMEM;
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
    s->n_judged = s->n_past; /* some layers are compacted even where memory ran out */
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
