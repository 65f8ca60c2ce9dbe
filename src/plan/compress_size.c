/* SPDX-License-Identifier: MIT */
/* Turns the size that was asked for into an average number of entries. */
#include "method/count.h"
#include "plan/compress_impl.h"

#include <stdio.h>

/* Entries kept with an average of n per head: at most n of every head; or, where the heads of a layer (AdaKV), those of
 * the model (shares) or layers (PyramidKV) compete for one budget, n times their number for all of them together. */
static int64_t kept_with(const struct wnw__draft *draft, int32_t n)
{
    const bool compete = wnw__policy_has(draft->policy, WNW_PART_HEAD_BUDGET, WNW_FLAG_COMPETES),
               heads = compete && wnw__head_budget_of(draft->policy)->allocate_model;
    int64_t sum = 0;
    if (heads || wnw__policy_has(draft->policy, WNW_PART_LAYER_BUDGET, WNW_FLAG_COMPETES)) {
        const int64_t together = (int64_t)n * draft->src->shape.n_head_kv * draft->cache.n_part;
        return draft->cache.n_sum < together ? draft->cache.n_sum : together;
    }
    for (int32_t i = 0; i < draft->cache.n_part; i++) {
        int64_t all = 0, capped = 0;
        for (int32_t ih = 0; ih < draft->src->shape.n_head_kv; ih++) {
            const int32_t have = wnw__draft_entries(draft, draft->cache.il[i])[ih];
            all += have;
            capped += have < n ? have : n;
        }
        const int64_t together = (int64_t)n * draft->src->shape.n_head_kv;
        if (compete)
            sum += all < together ? all : together;
        else
            sum += capped;
    }
    return sum;
}

/* The largest average that removes at least the ratio of all entries where heads differ in length. */
static int32_t largest_average(const struct wnw__draft *draft, double ratio)
{
    int32_t lo = 0, hi = draft->cache.n_max;
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo + 1) / 2;
        if ((double)kept_with(draft, mid) <= (double)draft->cache.n_sum * (1 - ratio) + 1e-6)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

static int size_of_ratio(struct wnw__draft *draft, double ratio)
{
    struct wnw__draft_size *s = &draft->size;
    const int32_t n_max = draft->cache.n_max, base = draft->src->ratio_base,
                  excluded = draft->src->n_excluded;
    if (!(ratio >= 0 && ratio < 1))
        return wnw__fail(WNW_E_RANGE, "ratio %g is out of range; it is the fraction removed, 0 <= ratio < 1",
                         ratio);
    if (base > 0 || draft->cache.n_min == n_max) {
        s->mean = ((base > 0 ? base : n_max) - excluded) * (1 - ratio) + excluded;
        s->ratio = excluded > 0 ? 0 : ratio; /* what remains of all entries is said by the mean then */
        s->budget = wnw__round_count(s->mean, draft->policy->rounding);
        if (s->budget > n_max)
            s->mean = s->budget = n_max;
    } else {
        s->mean = s->budget = largest_average(draft, ratio);
    }
    if (s->budget < 1) {
        s->mean = s->budget = 1;
        s->ratio = 0;
        wnw__warn(draft->report->warning, "ratio %g of %d entries leaves none; 1 is kept", ratio, n_max);
    }
    return WNW_OK;
}

static int size_of_budget(struct wnw__draft *draft, int64_t budget)
{
    if (budget < 1)
        return wnw__fail(WNW_E_RANGE, "budget %lld is out of range; keep at least 1 entry per head",
                         (long long)budget);
    draft->size.mean = draft->size.budget =
        budget > draft->cache.n_max ? draft->cache.n_max : (int32_t)budget;
    return WNW_OK;
}

/* Of b entries at most n_f16 are f16, also on average: no average of min(b_h, n_f16) over heads is larger
 * than that of the average b. */
uint64_t wnw__compress_entries_in(uint64_t bytes, const struct wnw__entry_bytes *entry)
{
    const uint64_t f16 = (uint64_t)entry->n_f16 * entry->f16;
    if (bytes < f16)
        return bytes / entry->f16;
    return entry->each > 0 ? (uint64_t)entry->n_f16 + (bytes - f16) / entry->each : 0;
}

static int size_of_bytes(struct wnw__draft *draft, uint64_t bytes)
{
    const struct wnw__entry_bytes *entry = &draft->src->entry_bytes;
    const uint64_t heads = (uint64_t)draft->src->shape.n_head_kv * (uint64_t)draft->cache.n_part;
    const uint64_t row = heads * (entry->n_f16 > 0 ? entry->f16 : entry->each);
    if (row > 0 && bytes < row)
        return wnw__fail(WNW_E_RANGE,
                         "%llu bytes are too few: one entry in every KV head of %d layers takes %llu",
                         (unsigned long long)bytes, draft->cache.n_part, (unsigned long long)row);
    const uint64_t budget = row > 0 ? wnw__compress_entries_in(bytes / heads, entry) : 0;
    const uint64_t most = (uint64_t)draft->cache.n_max;
    draft->size.mean = draft->size.budget = (int32_t)(budget > most ? most : budget);
    return WNW_OK;
}

/* The part that sets the size where the caller gave none. */
static enum wnw__size_rule rule_of_none(const struct wnw__draft *draft)
{
    if (draft->selector->recursive)
        return WNW_SIZE_RULE_SELECTOR;
    if (wnw__policy_has(draft->policy, WNW_PART_HEAD_BUDGET, WNW_FLAG_OWN_SIZE))
        return WNW_SIZE_RULE_HEADS;
    return WNW_SIZE_RULE_MEAN;
}

static int size_of_none(struct wnw__draft *draft)
{
    draft->size.rule = rule_of_none(draft);
    return draft->size.rule == WNW_SIZE_RULE_MEAN ? size_of_ratio(draft, 0.5) : WNW_OK;
}

/* Turns a budget or ratio of the entries that are not protected into one of all entries. With p protected of
 * n entries, n (1 - r) + r p = (n - p)(1 - r) + p entries stay. */
static void add_protected(struct wnw__draft *draft, const wnw_size *size)
{
    struct wnw__draft_size *s = &draft->size;
    if (s->rule == WNW_SIZE_RULE_SELECTOR || size->kind == WNW_SIZE_BYTES ||
        !wnw__policy_protects_apart(draft->policy))
        return;
    const wnw_protected p = wnw__draft_protected(draft, draft->cache.n_max);
    double part = size->kind == WNW_SIZE_BUDGET ? 1 : 0.5;
    if (size->kind == WNW_SIZE_RATIO)
        part = size->ratio;
    s->mean += part * (p.n_first + p.n_last);
    s->mean = s->mean < draft->cache.n_max ? s->mean : draft->cache.n_max;
    s->budget = wnw__round_count(s->mean, draft->policy->rounding);
    s->ratio = 0;
}

/* Finds out whether every entry stays after all, and sets or clears the warning accordingly. */
static void mark_keep_all(struct wnw__draft *draft, const wnw_size *size)
{
    const int32_t n_max = draft->cache.n_max;
    if (wnw__policy_keeps_all(draft->policy)) {
        draft->report->warning[0] = '\0';
        if (size->kind != WNW_SIZE_NONE && draft->size.budget < n_max)
            snprintf(draft->report->warning, sizeof draft->report->warning,
                     "policy %s keeps everything; the size is ignored", wnw__policy_name(draft->policy));
        draft->size.rule = WNW_SIZE_RULE_ALL;
    }
    if (n_max == 0)
        draft->report->warning[0] = '\0';
    if (n_max == 0 || draft->cache.n_part == 0)
        draft->size.rule = WNW_SIZE_RULE_ALL;
    if (draft->size.rule == WNW_SIZE_RULE_MEAN && draft->size.budget >= n_max) {
        /* A size above that of the cache changes nothing; a head budget with an own size still applies it. */
        draft->size.rule =
            rule_of_none(draft) == WNW_SIZE_RULE_HEADS ? WNW_SIZE_RULE_HEADS : WNW_SIZE_RULE_ALL;
        draft->size.may_shrink = draft->size.may_shrink || draft->size.rule == WNW_SIZE_RULE_HEADS;
    }
}

int wnw__draft_resolve_size(struct wnw__draft *draft, const wnw_size *size)
{
    const wnw_size none = {.kind = WNW_SIZE_NONE};
    size = size ? size : &none;
    draft->size = (struct wnw__draft_size){
        .rule = WNW_SIZE_RULE_MEAN, .budget = draft->cache.n_max, .mean = draft->cache.n_max};
    draft->size.may_shrink = wnw__policy_has(draft->policy, WNW_PART_SCORER, WNW_FLAG_SHRINKS) ||
                             (size->kind != WNW_SIZE_BUDGET && size->kind != WNW_SIZE_BYTES);
    switch (size->kind) {
    case WNW_SIZE_NONE:
        WNW_TRY(size_of_none(draft));
        break;
    case WNW_SIZE_BUDGET:
        WNW_TRY(size_of_budget(draft, size->budget));
        break;
    case WNW_SIZE_RATIO:
        WNW_TRY(size_of_ratio(draft, size->ratio));
        break;
    case WNW_SIZE_BYTES:
        WNW_TRY(size_of_bytes(draft, size->bytes));
        break;
    default:
        return wnw__fail(WNW_E_ARG, "unknown kind of size %d", (int)size->kind);
    }
    add_protected(draft, size);
    mark_keep_all(draft, size);
    return WNW_OK;
}

int wnw__policy_fix_size(wnw_policy **out, const wnw_policy *p, const struct wnw__due *due, char *warning)
{
    const wnw_blocks b = wnw__policy_blocks(p, due->n_settled);
    const int32_t thinned = wnw__blocks_thinned(&b, due->n), last = due->n - b.sink - thinned * b.lag;
    const int32_t least = wnw__blocks_least(&b, due->n);
    const char *name = wnw__policy_name(p);
    *out = NULL;
    if (thinned == 0) {
        wnw__warn(warning,
                  "the size leaves %d entries per head, but %s keeps all %d: the first %d and two blocks of "
                  "%d are whole",
                  due->n_keep, name, due->n, b.sink, b.lag);
        return WNW_OK;
    }
    if (least > due->n_keep && due->strict && due->n_settled == 0)
        return wnw__blocks_refuse(name, &b, due->n, due->n_keep);
    if (least > due->n_keep)
        wnw__warn(
            warning,
            "the size leaves %d entries per head, but %s keeps %d of %d: the first %d, one of each of %d "
            "blocks and the last %d",
            due->n_keep, name, least, due->n, b.sink, thinned, last);
    wnw_policy *fixed;
    WNW_TRY(wnw__policy_copy(&fixed, p));
    wnw__selector_of(p)->recursive->fit(fixed->opts[WNW_PART_SELECTOR], &b, due->n, due->n_keep);
    *out = fixed;
    return WNW_OK;
}
