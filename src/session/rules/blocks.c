/* SPDX-License-Identifier: MIT */
/*
 * The rule of recursive policies (LagKV): a session compresses whenever a block is complete.
 *
 * A recursive policy keeps its blocks and its settled entries; the size decides k, the entries that stay of each block
 * that is not settled yet. For a piece that is read, k is chosen so that all turns together reach the size; a block
 * that decoding completes keeps its share by the ratio. k is at least 1: a block that kept nothing would make another
 * method of it. So a budget that can never hold two blocks is refused when the rules begin. A budget that cannot hold
 * the first piece is refused before the piece is read. Later turns and decoded tokens exceed a full budget by an entry
 * for each block, with a warning.
 */
#include "method/count.h"
#include "plan/compress.h"
#include "policy/policy.h"
#include "session/rules/rules.h"
#include "session/session.h"

#include <limits.h>

/* Refuses a budget that no two blocks fit into: as soon as there are two, every turn would exceed it. */
static int check(const wnw_session *s, const struct wnw__eviction *ev)
{
    if (ev->size.kind != WNW_SIZE_BUDGET && ev->size.kind != WNW_SIZE_BYTES)
        return WNW_OK;
    const wnw_blocks b = wnw__policy_blocks(ev->policy, 0);
    const int64_t two = b.sink + 2 * (int64_t)b.lag;
    const int32_t n_keep = wnw__rules_n_keep(s, ev, 0);
    if (n_keep > (int64_t)b.sink + b.lag || s->params.n_ctx < two || wnw__rules_n_layers(s, ev->policy) == 0)
        return WNW_OK;
    return wnw__fail(
        WNW_E_RANGE,
        "the size leaves %d entries per head, but %s always keeps the first %d, a block of %d and one "
        "entry of each block before it; allow at least %lld, give a ratio, or lower sink or lag",
        n_keep, wnw__policy_name(ev->policy), b.sink, b.lag, (long long)b.sink + b.lag + 1);
}

/* The policy with the k that the size wants, if there is one. */
static const wnw_policy *policy_of(const wnw_session *s)
{
    return s->rules.sized_policy ? s->rules.sized_policy : s->rules.ev.policy;
}

/* Number of entries of the longest head among the layers that take part; *n_settled says how many of them are
 * settled. Both are 0 if no layer takes part. A recursive policy holds the same counts in all these
 * layers. */
static int32_t longest_head(const wnw_session *s, const wnw_policy *p, int32_t *n_settled)
{
    int32_t n = 0;
    *n_settled = 0;
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++) {
            if (!wnw__policy_takes_layer(p, &s->shape.model, il) || wnw_cache_n(s, il, ih) <= n)
                continue;
            n = wnw_cache_n(s, il, ih);
            *n_settled = s->cache.layers[il].n_settled;
        }
    return n;
}

/* Sets r->sized_policy to the recursive policy with the k that the size wants for blocks that are not settled.
 * n_coming: tokens that are about to be read, which count too (0 while decoding). r->sized_policy is NULL where
 * the size holds everything or there is no block to thin. */
static int fix_blocks(wnw_session *s, int32_t n_coming, char *warning)
{
    struct wnw__rules *r = &s->rules;
    const wnw_policy *p = r->ev.policy;
    const wnw_size *size = &r->ev.size;
    wnw_policy_free(r->sized_policy);
    r->sized_policy = NULL;
    if (size->kind == WNW_SIZE_NONE)
        return WNW_OK;
    struct wnw__due due = {.n_keep = wnw__rules_n_keep(s, &r->ev, s->n_past + n_coming - r->n_uncounted),
                           .strict = size->kind != WNW_SIZE_RATIO && n_coming > 0 && r->n_keep == 0};
    due.n = longest_head(s, p, &due.n_settled) + n_coming;
    if (due.n <= due.n_keep)
        return WNW_OK;
    if (size->kind == WNW_SIZE_RATIO && n_coming == 0) {
        /* Sinks and tail of a short text are more than their share; its blocks do not make up for that, and
         * keep the ratio's share alone. */
        const wnw_blocks b = wnw__policy_blocks(p, due.n_settled);
        const int32_t k = wnw__round_count(b.lag * (1 - size->ratio), p->rounding);
        due.n_keep = due.n - wnw__blocks_thinned(&b, due.n) * (b.lag - (k > 1 ? k : 1));
    }
    return wnw__policy_fix_size(&r->sized_policy, p, &due, warning);
}

static struct wnw__compression compression(const wnw_session *s, int32_t n_coming)
{
    static const wnw_size all = {.kind = WNW_SIZE_BUDGET, .budget = WNW_KEEP_ALL};
    const struct wnw__rules *r = &s->rules;
    if (r->sized_policy)
        return (struct wnw__compression){.policy = r->sized_policy, .size = {.kind = WNW_SIZE_NONE}};
    if (r->ev.size.kind != WNW_SIZE_NONE)
        return (struct wnw__compression){.policy = r->ev.policy, .size = all};
    return wnw__rules_compression(s, n_coming);
}

/* Tokens until the first layer completes its next block, at least 1. */
static int32_t next_chunk(const wnw_session *s)
{
    const wnw_policy *p = policy_of(s);
    int64_t left = INT32_MAX;
    for (int32_t il = 0; il < s->cache.n_layer; il++) {
        if (!wnw__policy_takes_layer(p, &s->shape.model, il))
            continue;
        const wnw_blocks b = wnw__policy_blocks(p, s->cache.layers[il].n_settled);
        const int64_t due = b.sink + 2 * (int64_t)b.lag - wnw_cache_n(s, il, 0);
        left = due < left ? due : left;
    }
    return left < 1 ? 1 : (int32_t)left;
}

static bool is_due(const wnw_session *s)
{
    const wnw_policy *p = policy_of(s);
    for (int32_t il = 0; il < s->cache.n_layer; il++) {
        const wnw_blocks b = wnw__policy_blocks(p, s->cache.layers[il].n_settled);
        if (wnw__policy_takes_layer(p, &s->shape.model, il) &&
            wnw_cache_n(s, il, 0) >= b.sink + 2 * (int64_t)b.lag)
            return true;
    }
    return false;
}

static int after_token(wnw_session *s, wnw_report *report)
{
    const struct wnw__rules *r = &s->rules;
    /* With a part that belongs to prompts, as a content rule may, blocks of generated tokens stay whole. */
    if (!is_due(s) || !wnw_policy_allows(r->ev.policy, WNW_PHASE_DECODE, NULL))
        return WNW_OK;
    WNW_TRY(fix_blocks(s, 0, report->warning));
    if (!r->sized_policy && r->ev.size.kind != WNW_SIZE_NONE)
        return WNW_OK; /* the size still holds everything */
    const struct wnw__compression due = {.policy = policy_of(s)};
    return wnw__rules_compress(s, &due, wnw__policy_blocks(due.policy, 0).lag, report);
}

const struct wnw__rule wnw__rule_blocks = {.check = check,
                                           .before_piece = fix_blocks,
                                           .compression = compression,
                                           .chunks_follow_blocks = true,
                                           .next_chunk = next_chunk,
                                           .after_token = after_token};
