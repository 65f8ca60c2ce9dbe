/* SPDX-License-Identifier: MIT */
/*
 * How much may stay under the rules. A budget or a number of bytes is the same at every compression; a ratio R counts
 * the T tokens read under the rules so far and leaves T (1 - R).
 */
#include "session/rules/rules.h"

#include "method/count.h"
#include "plan/compress.h"
#include "plan/turns.h"
#include "policy/policy.h"
#include "session/session.h"

#include <limits.h>

int32_t wnw__rules_n_layers(const wnw_session *s, const wnw_policy *p)
{
    int32_t n = 0;
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        n += wnw__policy_takes_layer(p, &s->shape.model, il);
    return n;
}

int32_t wnw__rules_n_keep(const wnw_session *s, const struct wnw__eviction *ev, int32_t n)
{
    const double ratio = ev->size.kind == WNW_SIZE_RATIO ? ev->size.ratio : 0.5;
    const uint64_t heads = (uint64_t)s->cache.n_head_kv * (uint64_t)wnw__rules_n_layers(s, ev->policy);
    const struct wnw__entry_bytes entry = {.each = 2 * s->cache.row_bytes,
                                           .f16 = 2 * s->cache.tail_row_bytes,
                                           .n_f16 = wnw__cache_most_f16(&s->cache)};
    uint64_t n_keep = 0;
    if (ev->size.kind == WNW_SIZE_BUDGET)
        n_keep = ev->size.budget > 0 ? (uint64_t)ev->size.budget : 0;
    else if (ev->size.kind == WNW_SIZE_BYTES)
        n_keep = heads > 0 ? wnw__compress_entries_in(ev->size.bytes / heads, &entry) : 0;
    else
        n_keep = (uint64_t)wnw__round_count(n * (1 - ratio), ev->policy->rounding);
    n_keep = n_keep < INT32_MAX ? n_keep : INT32_MAX;
    return n_keep < 1 ? 1 : (int32_t)n_keep;
}

wnw_size wnw__rules_size_between(const struct wnw__eviction *ev)
{
    return wnw__turns_size(
        &(wnw_turns){WNW_INIT(wnw_turns), .size = ev->size, .slack = ev->slack, .more_follows = true});
}

int32_t wnw__rules_longest_head(const wnw_session *s)
{
    int32_t n = 0;
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv && wnw__layer_takes_part(&s->shape.model, il); ih++)
            n = wnw_cache_n(s, il, ih) > n ? wnw_cache_n(s, il, ih) : n;
    return n;
}
