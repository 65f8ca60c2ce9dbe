/* SPDX-License-Identifier: MIT */
/* From the size that was asked for to an average number of entries, and protected entries that fit into it. */
#include "plan/compress.h"
#include "plan/compress_impl.h"
#include "policy/count.h"

#include <stdio.h>

/* ---- Size -> budget ---- */

/* Entries kept with an average of n per head: at most n of every head, or where the heads of a layer compete
 * for its budget (AdaKV), n times their number together. */
static int64_t kept_with(const struct wnw__plan_job *j, int32_t n)
{
    const bool compete = wnw__policy_has(j->policy, WNW_PART_HEAD_BUDGET, WNW_FLAG_COMPETES);
    int64_t sum = 0;
    for (int32_t i = 0; i < j->n_part; i++) {
        int64_t all = 0, capped = 0;
        for (int32_t ih = 0; ih < j->src->n_head_kv; ih++) {
            const int32_t have = j->n_entry[j->part_il[i] * j->src->n_head_kv + ih];
            all += have;
            capped += have < n ? have : n;
        }
        const int64_t together = (int64_t)n * j->src->n_head_kv;
        sum += !compete ? capped : all < together ? all : together;
    }
    return sum;
}

static int budget_of_ratio(struct wnw__plan_job *j, double ratio)
{
    if (!(ratio >= 0 && ratio < 1))
        return wnw__fail(WNW_E_RANGE, "ratio %g is out of range; it is the fraction removed, 0 <= ratio < 1",
                         ratio);
    const int32_t base = j->src->ratio_base;
    if (base > 0 || j->n_min == j->n_max) {
        j->mean = (base > 0 ? base : j->n_max) * (1 - ratio);
        j->ratio = ratio;
        j->budget = wnw__round_count(j->mean, j->policy->rounding);
        if (j->budget > j->n_max)
            j->mean = j->budget = j->n_max;
    } else {
        /* Heads differ in length: the largest average that removes at least the ratio. */
        int32_t lo = 0, hi = j->n_max;
        while (lo < hi) {
            const int32_t mid = lo + (hi - lo + 1) / 2;
            if ((double)kept_with(j, mid) <= (double)j->n_sum * (1 - ratio) + 1e-6)
                lo = mid;
            else
                hi = mid - 1;
        }
        j->mean = j->budget = lo;
    }
    if (j->budget < 1) {
        j->mean = j->budget = 1;
        j->ratio = 0;
        wnw__warn(j->report->warning, "ratio %g of %d entries leaves none; 1 is kept", ratio, j->n_max);
    }
    return WNW_OK;
}

static int budget_of_bytes(struct wnw__plan_job *j, uint64_t bytes)
{
    const uint64_t row = (uint64_t)j->src->entry_bytes * (uint64_t)j->src->n_head_kv * (uint64_t)j->n_part;
    if (row > 0 && bytes < row)
        return wnw__fail(WNW_E_RANGE,
                         "%llu bytes are too few: one entry in every KV head of %d layers takes %llu",
                         (unsigned long long)bytes, j->n_part, (unsigned long long)row);
    const uint64_t budget = row > 0 ? bytes / row : 0;
    j->mean = j->budget = budget > (uint64_t)j->n_max ? j->n_max : (int32_t)budget;
    return WNW_OK;
}

/* A budget or a ratio of what is not protected becomes one of everything: n (1 - r) + r p = (n - p)(1 - r) +
 * p for p protected of n entries. */
static void add_protected(struct wnw__plan_job *j, const wnw_size *size)
{
    if (j->own_size || size->kind == WNW_SIZE_BYTES ||
        !wnw__policy_has(j->policy, WNW_PART_LAYER_BUDGET, WNW_FLAG_PROTECTED_APART))
        return;
    const wnw_protected p = wnw__job_protected(j, j->n_max);
    const double part = size->kind == WNW_SIZE_BUDGET ? 1 : size->kind == WNW_SIZE_RATIO ? size->ratio : 0.5;
    j->mean += part * (p.n_first + p.n_last);
    j->mean = j->mean < j->n_max ? j->mean : j->n_max;
    j->budget = wnw__round_count(j->mean, j->policy->rounding);
    j->ratio = 0;
}

int wnw__job_size(struct wnw__plan_job *j, const wnw_size *size)
{
    const wnw_size none = {.kind = WNW_SIZE_NONE};
    if (!size)
        size = &none;
    switch (size->kind) {
    case WNW_SIZE_NONE:
        j->own_size = j->selector->recursive != NULL;
        j->unsized = !j->own_size && wnw__policy_has(j->policy, WNW_PART_HEAD_BUDGET, WNW_FLAG_OWN_SIZE);
        if (j->unsized)
            j->mean = j->budget = j->n_max;
        else if (!j->own_size)
            WNW_TRY(budget_of_ratio(j, 0.5));
        break;
    case WNW_SIZE_BUDGET:
        if (size->budget < 1)
            return wnw__fail(WNW_E_RANGE, "budget %lld is out of range; keep at least 1 entry per head",
                             (long long)size->budget);
        j->mean = j->budget = size->budget > j->n_max ? j->n_max : (int32_t)size->budget;
        break;
    case WNW_SIZE_RATIO:
        WNW_TRY(budget_of_ratio(j, size->ratio));
        break;
    case WNW_SIZE_BYTES:
        WNW_TRY(budget_of_bytes(j, size->bytes));
        break;
    default:
        return wnw__fail(WNW_E_ARG, "unknown kind of size %d", (int)size->kind);
    }
    add_protected(j, size);
    if (wnw__policy_keeps_all(j->policy)) {
        if (size->kind != WNW_SIZE_NONE && j->budget < j->n_max)
            snprintf(j->report->warning, sizeof j->report->warning,
                     "policy full keeps everything; the size is ignored");
        else
            j->report->warning[0] = '\0';
        j->keep_all = true;
    }
    if (j->n_max == 0)
        j->report->warning[0] = '\0';
    if (j->n_max == 0 || (!j->own_size && !j->unsized && j->budget >= j->n_max))
        j->keep_all = true;
    return WNW_OK;
}

/* ---- Protected entries ---- */

/* n_here: first entries that are the chat template's. */
static wnw_protected protected_of(const struct wnw__plan_job *j, int32_t n, int32_t n_here)
{
    const wnw_keep_problem problem = {.n = n,
                                      .budget = j->own_size ? j->n_max : j->budget,
                                      .sized = !j->own_size && !j->unsized,
                                      .n_prefix = j->src->n_prefix,
                                      .n_here = n_here};
    wnw_protected p = {0};
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        if (j->policy->part[k].head.keep)
            j->policy->part[k].head.keep(k == WNW_PART_SCORER ? j->scorer_opts : j->policy->opts[k], &problem,
                                         &p);
    return wnw__protected_clamp(j->room > 0 ? wnw__protected_make_room(p, j->room) : p, n);
}

/* First entries of the head that are the chat template's. */
static int32_t header_of(const struct wnw__plan_job *j, int32_t il, int32_t ih)
{
    const int32_t *pos = j->src->positions(j->src, il, ih);
    int32_t lo = 0, hi = j->src->n_prefix > 0 ? j->n_entry[il * j->src->n_head_kv + ih] : 0;
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (pos[mid] < j->src->n_prefix)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

wnw_protected wnw__job_protected(const struct wnw__plan_job *j, int32_t n)
{
    int32_t most = 0;
    for (int32_t i = 0; i < j->n_part; i++)
        for (int32_t ih = 0; ih < j->src->n_head_kv; ih++) {
            const int32_t n_here = header_of(j, j->part_il[i], ih);
            most = n_here > most ? n_here : most;
        }
    return protected_of(j, n, most);
}

wnw_protected wnw__job_protected_head(const struct wnw__plan_job *j, int32_t il, int32_t ih)
{
    return protected_of(j, j->n_entry[il * j->src->n_head_kv + ih], header_of(j, il, ih));
}

/* Where blocks were settled by an earlier compression: what the size cannot take is kept, with a warning.
 * False if nothing was. */
static bool fit_settled(struct wnw__plan_job *j)
{
    int32_t most = 0, most_n = 0;
    bool settled = false, thins = false;
    if (!j->src->n_final || !wnw__policy_is_recursive(j->policy))
        return false;
    for (int32_t i = 0; i < j->n_part; i++) {
        const int32_t n_final = j->src->n_final(j->src, j->part_il[i]);
        const wnw_blocks b = wnw__policy_blocks(j->policy, n_final);
        settled = settled || n_final > 0;
        for (int32_t ih = 0; ih < j->src->n_head_kv; ih++) {
            const int32_t n = j->n_entry[j->part_il[i] * j->src->n_head_kv + ih];
            const int32_t thinned = wnw__blocks_thinned(&b, n), whole = n - thinned * b.lag;
            thins = thins || thinned > 0;
            most_n = whole > most ? n : most_n;
            most = whole > most ? whole : most;
        }
    }
    if (settled && most > j->budget && thins)
        wnw__warn(
            j->report->warning,
            "the size leaves %d entries per head, but %d of %d are settled or in the last blocks and stay",
            j->budget, most, most_n);
    else if (settled && most > j->budget)
        wnw__warn(j->report->warning,
                  "the size leaves %d entries per head, but nothing can be thinned: all %d are settled or in "
                  "the last blocks",
                  j->budget, most);
    return settled;
}

/* What is protected shrinks to the size, with a warning; a budget is refused where the scorer does not say
 * that it shrinks for one. */
int wnw__job_fit_protected(struct wnw__plan_job *j, const wnw_size *size)
{
    const wnw_protected p = wnw__job_protected(j, j->n_max);
    const bool shrinks = wnw__policy_has(j->policy, WNW_PART_SCORER, WNW_FLAG_SHRINKS);
    const int32_t need = p.n_first + p.n_last;
    if (fit_settled(j))
        return WNW_OK;
    if (need < j->budget || (need == j->budget && !shrinks))
        return WNW_OK;
    if (!shrinks && size && (size->kind == WNW_SIZE_BUDGET || size->kind == WNW_SIZE_BYTES))
        return wnw__fail(
            WNW_E_RANGE,
            "%s always keeps the first %d and the last %d of %d entries, but the size leaves %d per "
            "head; allow at least %d, give a ratio, or lower what the policy protects",
            j->scorer->part.name, p.n_first, p.n_last, j->n_max, j->budget, need);
    const wnw_block_rule *rule = j->scorer->blocks;
    const bool blocks = rule && rule->fit && rule->fit(j->scorer_opts, j->n_max, j->budget);
    if (shrinks)
        j->room = j->budget;
    const wnw_protected s =
        blocks || shrinks ? wnw__job_protected(j, j->n_max) : wnw__protected_shrink(p, j->budget);
    const char *what = blocks ? "blocks shrink" : p.n_last > 0 ? "window shrinks" : "sinks shrink";
    wnw__warn(j->report->warning,
              "the size leaves %d entries per head and %s protects %d: its %s, to the first %d and the last "
              "%d",
              j->budget, j->scorer->part.name, need, what, s.n_first, s.n_last);
    return WNW_OK;
}

int wnw__policy_fix_size(wnw_policy **out, const wnw_policy *p, const struct wnw__due *due, char *warning)
{
    const wnw_blocks b = wnw__policy_blocks(p, due->n_final);
    const int32_t thinned = wnw__blocks_thinned(&b, due->n), whole = due->n - thinned * b.lag;
    const char *name = wnw__policy_name(p);
    *out = NULL;
    if (thinned == 0) {
        wnw__warn(warning,
                  "the size leaves %d entries per head, but %s keeps all %d: the first %d and two blocks of "
                  "%d are whole",
                  due->n_keep, name, due->n, b.sink, b.lag);
        return WNW_OK;
    }
    if (whole > due->n_keep && due->strict && due->n_final == 0)
        return wnw__fail(WNW_E_RANGE,
                         "%s always keeps the first %d and the last %d of %d entries, but the size leaves %d "
                         "per head; allow at least %d, give a ratio, or lower what the policy protects",
                         name, b.sink, whole - b.sink, due->n, due->n_keep, whole);
    if (whole > due->n_keep)
        wnw__warn(warning,
                  "the size leaves %d entries per head, but %s keeps %d of %d: the first %d and the last %d",
                  due->n_keep, name, whole, due->n, b.sink, whole - b.sink);
    wnw_policy *fixed;
    WNW_TRY(wnw__policy_copy(&fixed, p));
    wnw__selector_of(p)->recursive->fit(fixed->opts[WNW_PART_SELECTOR], &b, due->n, due->n_keep);
    *out = fixed;
    return WNW_OK;
}
