/* SPDX-License-Identifier: MIT */
/* Queries of tokens that are yet to come, for scorers that look at the cache through them. */
#include "observe/recorders.h"
#include "observe/window.h"
#include "plan/compress.h"
#include "session/compact/compact.h"
#include "session/planning/planning.h"
#include "session/session.h"
#include "session/timeline/feed.h"

#include <string.h>

static const char copy_policy[] = "snapkv:window=32";

static int compress(wnw_session *copy, double budget)
{
    wnw_policy *policy;
    wnw_plan *plan = NULL;
    wnw_report report = wnw_report_default();
    /* Given as a ratio: then a small size may shrink the window of SnapKV. A budget would be refused. */
    const wnw_size size = {.kind = WNW_SIZE_RATIO, .ratio = 1 - budget / copy->n_past};
    if (!(size.ratio > 0 && size.ratio < 1))
        return WNW_OK;
    WNW_TRY(wnw_policy_parse(&policy, copy_policy, NULL));
    const wnw_policy *const one = policy;
    struct wnw__plan_source src;
    int rc = wnw__session_source_plain(&src, copy);
    if (rc == WNW_OK) {
        rc = wnw__plan_make_many(&plan, &one, &size, 1, &src, &report);
        wnw__source_close(&src);
    }
    if (rc == WNW_OK)
        rc = wnw__session_apply(copy, plan, -1, &report);
    wnw_plan_free(plan);
    wnw_policy_free(policy);
    return rc;
}

/* From now on the copy keeps the queries of the n newest tokens, generated ones too, and nothing else. */
static int keep_queries(wnw_session *copy, int32_t n)
{
    const struct wnw__record_needs needs = {
        .merged = {WNW_INIT(wnw_needs), .flags = WNW_NEED_WINDOW_ATTN, .window = n}, .generated = true};
    wnw__rules_free(&copy->rules);
    return wnw__recorders_declare(&copy->recorders, &copy->cache, &needs, &copy->shape);
}

static int32_t most_likely(const wnw_session *s)
{
    int32_t best = 0;
    for (int32_t i = 1; i < s->m->hp.n_vocab; i++)
        best = s->logits[i] > s->logits[best] ? i : best;
    return best;
}

static int generate(wnw_session *copy, int32_t n, int32_t *made)
{
    for (*made = 0; *made < n && copy->has_logits; ++*made) {
        const int32_t token = most_likely(copy);
        if (wnw_token_is_eog(copy->m, token))
            break;
        WNW_TRY(wnw__feed_step(copy->engine, &copy, &token, 1));
        WNW_TRY(wnw__feed_step_logits(copy, 0));
    }
    return WNW_OK;
}

static int give_queries(const wnw_session *copy, int32_t n, int32_t made, float *queries)
{
    const struct wnw__window *w = wnw__recorders_find(&copy->recorders, &wnw__window_recorder);
    for (int32_t il = 0; made > 0 && il < copy->cache.n_layer; il++) {
        if (!w || w->layers[il].end != copy->n_past || w->layers[il].n < made)
            return wnw__fail(WNW_E_NOT_OBSERVED, "no queries were kept of generated tokens in layer %d",
                             (int)il);
        for (int32_t i = 0; i < made; i++)
            memcpy(queries + ((size_t)il * (size_t)n + (size_t)i) * w->row,
                   wnw__window_at(w, il, copy->n_past - made + i), w->row * sizeof *queries);
    }
    return WNW_OK;
}

static int look_in(wnw_session *copy, int32_t n, int32_t left, double budget, float *queries, int32_t *made)
{
    WNW_TRY(compress(copy, budget));
    WNW_TRY(keep_queries(copy, n));
    WNW_TRY(generate(copy, n < left ? n : left, made));
    return give_queries(copy, n, *made, queries);
}

int wnw__look_ahead(wnw_session *s, int32_t n, double budget, float *queries, int32_t *made)
{
    wnw_session *copy;
    const int32_t left = s->params.n_ctx - s->n_past;
    *made = 0;
    if (left < 1)
        return WNW_OK;
    WNW_TRY(wnw__session_copy_on(&copy, s, s->engine));
    const int rc = look_in(copy, n, left, budget, queries, made);
    wnw_session_free(copy);
    return rc;
}
