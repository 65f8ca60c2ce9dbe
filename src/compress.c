/* SPDX-License-Identifier: MIT */
/*
 * The only place that knows the order observe -> score -> budget -> select. Size rules first, then one loop
 * over the layers; methods are reached through their descriptors alone.
 */
#include "compress.h"
#include "plan.h"
#include "policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct job {
    const struct wnw__plan_source *src;
    const wnw_policy *policy;
    const wnw_scorer *scorer;
    const struct wnw__scorer *own; /* NULL: a scorer from outside */
    wnw_report *report;

    int32_t *n_entry; /* [n_layer][n_head_kv] */
    int32_t n_part;   /* layers that take part */
    int32_t n_max;    /* entries of their longest head */
    int32_t n_min;    /* and of their shortest */
    int64_t n_sum;    /* entries of all their heads */

    void *scorer_opts; /* a copy: a small ratio may shrink what they protect */
    bool keep_all, own_size;
    int32_t budget;        /* average entries per layer and head; neither keep_all nor own_size */
    double mean;           /* the same before rounding */
    int32_t *layer_budget; /* [n_part] */

    float *score;   /* [n_head_kv][n] of one layer */
    float *scratch; /* of scorer or head budget, one after the other */
    size_t score_cap, scratch_cap;
    int32_t *keep;       /* [n_max] entries of one head */
    int32_t *n_keep;     /* [n_head_kv] */
    wnw_protected *prot; /* [n_head_kv] */

    wnw_plan *plan;
    double observe_ms;
};

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool is_skipped(const struct job *j, int32_t il)
{
    return j->src->is_skipped && j->src->is_skipped(j->src, il);
}

/* ---- What there is
 * ----------------------------------------------------------------------------------------- */

static int count_entries(struct job *j)
{
    const struct wnw__plan_source *src = j->src;
    const int32_t n_head = src->n_head_kv;
    j->n_entry = calloc((size_t)src->n_layer * (size_t)n_head, sizeof *j->n_entry);
    j->n_keep = calloc((size_t)n_head, sizeof *j->n_keep);
    j->prot = calloc((size_t)n_head, sizeof *j->prot);
    if (!j->n_entry || !j->n_keep || !j->prot)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a plan of %d layers", src->n_layer);
    j->n_min = INT32_MAX;
    for (int32_t il = 0; il < src->n_layer; il++) {
        const bool skipped = is_skipped(j, il);
        j->n_part += !skipped;
        for (int32_t ih = 0; ih < n_head; ih++) {
            const int32_t n = src->n_entry(src, il, ih);
            j->n_entry[il * n_head + ih] = n;
            if (skipped)
                continue;
            j->n_max = n > j->n_max ? n : j->n_max;
            j->n_min = n < j->n_min ? n : j->n_min;
            j->n_sum += n;
        }
    }
    return WNW_OK;
}

/* ---- Size -> budget
 * ---------------------------------------------------------------------------------------- */

/* Entries kept when every head keeps at most n. */
static int64_t kept_with(const struct job *j, int32_t n)
{
    int64_t sum = 0;
    for (int32_t il = 0; il < j->src->n_layer; il++)
        for (int32_t ih = 0; ih < j->src->n_head_kv && !is_skipped(j, il); ih++) {
            const int32_t have = j->n_entry[il * j->src->n_head_kv + ih];
            sum += have < n ? have : n;
        }
    return sum;
}

static int budget_of_ratio(struct job *j, double ratio)
{
    if (!(ratio >= 0 && ratio < 1))
        return wnw__fail(WNW_E_RANGE, "ratio %g is out of range; it is the fraction removed, 0 <= ratio < 1",
                         ratio);
    if (j->n_min == j->n_max) {
        j->mean = j->n_max * (1 - ratio);
        j->budget = wnw__round_count(j->mean, wnw__policy_rounding(j->policy));
    } else {
        /* Heads differ in length: the largest count per head that removes at least the ratio. */
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
        snprintf(j->report->warning, sizeof j->report->warning,
                 "ratio %g of %d entries leaves none; 1 is kept", ratio, j->n_max);
    }
    return WNW_OK;
}

static int budget_of_bytes(struct job *j, uint64_t bytes)
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

static int resolve_size(struct job *j, const wnw_size *size)
{
    const struct wnw__selector *sel = j->policy->part[WNW_PART_SELECTOR].selector;
    const wnw_size none = {.kind = WNW_SIZE_NONE};
    if (!size)
        size = &none;
    switch (size->kind) {
    case WNW_SIZE_NONE:
        j->own_size = sel->own_size != NULL;
        if (!j->own_size)
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
    if (wnw_policy_is_full(j->policy)) {
        if (size->kind != WNW_SIZE_NONE && j->budget < j->n_max)
            snprintf(j->report->warning, sizeof j->report->warning,
                     "policy full keeps everything; the size is ignored");
        else
            j->report->warning[0] = '\0';
        j->keep_all = true;
    }
    if (j->n_max == 0)
        j->report->warning[0] = '\0';
    if (j->n_max == 0 || (!j->own_size && j->budget >= j->n_max))
        j->keep_all = true;
    return WNW_OK;
}

/* ---- Protected entries
 * ------------------------------------------------------------------------------------- */

static wnw_protected protected_of(const struct job *j, int32_t n)
{
    wnw_protected p = {0};
    if (j->scorer->protect)
        j->scorer->protect(j->scorer_opts, n, &p);
    return wnw__protected_clamp(p, n);
}

/* A ratio that cannot hold the protected entries shrinks them; any other size is refused. */
static int fit_protected(struct job *j, const wnw_size *size)
{
    const wnw_protected p = protected_of(j, j->n_max);
    const int32_t need = p.n_first + p.n_last;
    if (need <= j->budget)
        return WNW_OK;
    if (size && (size->kind == WNW_SIZE_BUDGET || size->kind == WNW_SIZE_BYTES))
        return wnw__fail(
            WNW_E_RANGE,
            "%s always keeps the first %d and the last %d of %d entries, but the size leaves %d per "
            "head; allow at least %d, give a ratio, or lower what the policy protects",
            j->scorer->name, p.n_first, p.n_last, j->n_max, j->budget, need);
    if (!j->own || !j->own->shrink || !j->own->shrink(j->scorer_opts, j->n_max, j->budget)) {
        const wnw_protected s = wnw__protected_shrink(p, j->budget);
        snprintf(
            j->report->warning, sizeof j->report->warning,
            "the size leaves %d entries per head and %s protects %d: its window shrinks to the first %d and "
            "the last %d",
            j->budget, j->scorer->name, need, s.n_first, s.n_last);
        return WNW_OK;
    }
    const wnw_protected s = protected_of(j, j->n_max);
    snprintf(
        j->report->warning, sizeof j->report->warning,
        "the size leaves %d entries per head and %s protects %d: its blocks shrink, so that it protects the "
        "first %d and the last %d",
        j->budget, j->scorer->name, need, s.n_first, s.n_last);
    return WNW_OK;
}

static int copy_scorer_opts(struct job *j)
{
    const struct wnw__part *part = &j->policy->part[WNW_PART_SCORER];
    j->scorer_opts = calloc(1, part->options_size + 1);
    if (!j->scorer_opts)
        return wnw__fail(WNW_E_NOMEM, "out of memory for the options of %s", part->name);
    memcpy(j->scorer_opts, j->policy->opts[WNW_PART_SCORER], part->options_size);
    return WNW_OK;
}

static int budget_layers(struct job *j)
{
    const wnw_protected p = wnw__protected_shrink(protected_of(j, j->n_max), j->budget);
    const struct wnw__layer_problem problem = {.n_layer = j->n_part,
                                               .n = j->n_max,
                                               .n_protected = p.n_first + p.n_last,
                                               .budget = j->budget,
                                               .mean = j->mean};
    j->layer_budget = calloc((size_t)j->n_part, sizeof *j->layer_budget);
    if (!j->layer_budget)
        return wnw__fail(WNW_E_NOMEM, "out of memory for %d layer budgets", j->n_part);
    j->policy->part[WNW_PART_LAYER_BUDGET].layer->allocate(j->policy->opts[WNW_PART_LAYER_BUDGET], &problem,
                                                           j->layer_budget);
    return WNW_OK;
}

/* ---- One layer
 * --------------------------------------------------------------------------------------------- */

static int reserve(float **buf, size_t *cap, size_t n)
{
    if (n <= *cap && *buf)
        return WNW_OK;
    free(*buf);
    *cap = n + 1;
    *buf = malloc(*cap * sizeof **buf);
    if (!*buf)
        *cap = 0;
    return *buf ? WNW_OK : wnw__fail(WNW_E_NOMEM, "out of memory for %zu scores", n);
}

static int add_head(struct job *j, int32_t il, int32_t ih, const int32_t *keep, int32_t n)
{
    const int32_t *pos = j->src->positions(j->src, il, ih);
    int32_t *to = wnw__plan_add_head(j->plan, n);
    if (!to)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a plan");
    for (int32_t i = 0; i < n; i++)
        to[i] = pos[keep ? keep[i] : i];
    return WNW_OK;
}

static int keep_layer(struct job *j, int32_t il)
{
    const int32_t n_head = j->src->n_head_kv;
    for (int32_t ih = 0; ih < n_head; ih++)
        WNW_TRY(add_head(j, il, ih, NULL, j->n_entry[il * n_head + ih]));
    return WNW_OK;
}

static int check_observation(const struct job *j, const wnw_needs *needs, const wnw_observation *obs)
{
    const bool attn = !(needs->flags & WNW_NEED_WINDOW_ATTN) || (obs->window_attn && obs->n_window > 0);
    const bool keys = !(needs->flags & WNW_NEED_KEYS) || obs->keys;
    const bool values = !(needs->flags & WNW_NEED_VALUES) || obs->values;
    if (!attn || !keys || !values)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "%s needs %s of layer %d, which was not observed; declare the policy before prefill",
                         j->scorer->name,
                         !attn   ? "window attention"
                         : !keys ? "keys"
                                 : "values",
                         obs->il);
    return WNW_OK;
}

static int score_layer(struct job *j, int32_t il, wnw_observation *obs)
{
    const wnw_needs needs = wnw_policy_needs(j->policy);
    const double start = now_ms();
    WNW_TRY(j->src->observe(j->src, il, &needs, obs));
    j->observe_ms += now_ms() - start;
    WNW_TRY(check_observation(j, &needs, obs));
    const size_t n_score = (size_t)obs->n_head_kv * (size_t)obs->n;
    const size_t n_scratch = j->scorer->scratch ? j->scorer->scratch(j->scorer_opts, obs) : 0;
    WNW_TRY(reserve(&j->score, &j->score_cap, n_score));
    WNW_TRY(reserve(&j->scratch, &j->scratch_cap, n_scratch > n_score ? n_scratch : n_score));
    const int rc = j->scorer->score(j->scorer_opts, obs, j->score, j->scratch);
    if (rc != WNW_OK)
        return rc;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < j->n_entry[il * obs->n_head_kv + ih]; i++)
            if (isnan(j->score[(int64_t)ih * obs->n + i]))
                return wnw__fail(WNW_E_BACKEND, "scorer %s gave no number for layer %d, KV head %d, entry %d",
                                 j->scorer->name, il, ih, i);
    return WNW_OK;
}

static void budget_heads(struct job *j, const wnw_observation *obs, const int32_t *n_entry, int32_t budget)
{
    const int32_t n_head = obs->n_head_kv;
    const struct wnw__selector *sel = j->policy->part[WNW_PART_SELECTOR].selector;
    const enum wnw__rounding rounding = wnw__policy_rounding(j->policy);
    if (j->own_size) {
        struct wnw__blocks blocks = {0};
        j->own->blocks(j->scorer_opts, &blocks);
        for (int32_t ih = 0; ih < n_head; ih++) {
            j->n_keep[ih] = sel->own_size(j->policy->opts[WNW_PART_SELECTOR], &blocks, n_entry[ih], rounding);
            j->prot[ih] = wnw__protected_shrink(protected_of(j, n_entry[ih]), j->n_keep[ih]);
        }
        return;
    }
    for (int32_t ih = 0; ih < n_head; ih++) {
        const int32_t most = n_entry[ih] < budget ? n_entry[ih] : budget;
        j->prot[ih] = wnw__protected_shrink(protected_of(j, n_entry[ih]), most);
    }
    const struct wnw__head_problem problem = {.n_head_kv = n_head,
                                              .n = obs->n,
                                              .n_entry = n_entry,
                                              .score = j->score,
                                              .prot = j->prot,
                                              .budget = budget,
                                              .rounding = rounding};
    j->policy->part[WNW_PART_HEAD_BUDGET].head->allocate(j->policy->opts[WNW_PART_HEAD_BUDGET], &problem,
                                                         j->n_keep, j->scratch);
}

static int select_layer(struct job *j, int32_t il, const wnw_observation *obs)
{
    const struct wnw__selector *sel = j->policy->part[WNW_PART_SELECTOR].selector;
    const int32_t *n_entry = j->n_entry + (int64_t)il * obs->n_head_kv;
    struct wnw__blocks blocks = {0};
    if (j->own && j->own->blocks)
        j->own->blocks(j->scorer_opts, &blocks);
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const struct wnw__select_problem problem = {.score = j->score + (int64_t)ih * obs->n,
                                                    .n = n_entry[ih],
                                                    .n_keep = j->n_keep[ih],
                                                    .prot = j->prot[ih],
                                                    .blocks = blocks};
        const int32_t n = sel->select(j->policy->opts[WNW_PART_SELECTOR], &problem, j->keep);
        WNW_TRY(add_head(j, il, ih, j->keep, n));
    }
    return WNW_OK;
}

/* i counts the layers that take part. */
static int plan_layer(struct job *j, int32_t il, int32_t i)
{
    const int32_t *n_entry = j->n_entry + (int64_t)il * j->src->n_head_kv;
    const int32_t budget = j->own_size ? 0 : j->layer_budget[i];
    bool short_enough = !j->own_size;
    for (int32_t ih = 0; ih < j->src->n_head_kv; ih++)
        short_enough &= n_entry[ih] <= budget;
    if (short_enough)
        return keep_layer(j, il);
    wnw_observation obs = {0};
    WNW_TRY(score_layer(j, il, &obs));
    budget_heads(j, &obs, n_entry, budget);
    return select_layer(j, il, &obs);
}

/* ---- The driver
 * -------------------------------------------------------------------------------------------- */

static int make(struct job *j, const wnw_size *size)
{
    const struct wnw__plan_source *src = j->src;
    WNW_TRY(wnw__plan_begin(&j->plan, src->n_layer, src->n_head_kv, src->n_past));
    WNW_TRY(count_entries(j));
    WNW_TRY(resolve_size(j, size));
    if (!j->keep_all && j->n_part > 0) {
        j->keep = calloc((size_t)j->n_max + 1, sizeof *j->keep);
        if (!j->keep)
            return wnw__fail(WNW_E_NOMEM, "out of memory for %d entries", j->n_max);
        WNW_TRY(copy_scorer_opts(j));
        if (!j->own_size) {
            WNW_TRY(fit_protected(j, size));
            WNW_TRY(budget_layers(j));
        }
    }
    int32_t i = 0;
    for (int32_t il = 0; il < src->n_layer; il++) {
        if (j->keep_all || is_skipped(j, il))
            WNW_TRY(keep_layer(j, il));
        else
            WNW_TRY(plan_layer(j, il, i++));
        if (src->progress && !src->progress(src, il))
            return wnw__fail(WNW_E_CANCELLED, "cancelled after layer %d of %d", il, src->n_layer);
    }
    return WNW_OK;
}

static double kept_mean(const struct job *j)
{
    int64_t sum = 0;
    const int32_t *pos;
    for (int32_t il = 0; il < j->src->n_layer; il++)
        for (int32_t ih = 0; ih < j->src->n_head_kv && !is_skipped(j, il); ih++)
            sum += wnw_plan_head(j->plan, il, ih, &pos);
    return j->n_part > 0 ? (double)sum / ((double)j->n_part * j->src->n_head_kv) : 0;
}

int wnw__plan_make(wnw_plan **out, const wnw_policy *policy, const wnw_size *size,
                   const struct wnw__plan_source *src, wnw_report *report)
{
    wnw_report unused;
    struct job j = {.src = src,
                    .policy = policy,
                    .scorer = policy->part[WNW_PART_SCORER].scorer,
                    .own = policy->part[WNW_PART_SCORER].own,
                    .report = report ? report : &unused};
    *out = NULL;
    j.report->warning[0] = '\0';
    const double start = now_ms();
    const int rc = make(&j, size);
    if (rc == WNW_OK) {
        j.report->kept_mean = kept_mean(&j);
        j.report->observe_ms = j.observe_ms;
        j.report->select_ms = now_ms() - start - j.observe_ms;
        *out = j.plan;
    } else {
        wnw_plan_free(j.plan);
    }
    free(j.n_entry);
    free(j.n_keep);
    free(j.prot);
    free(j.scorer_opts);
    free(j.layer_budget);
    free(j.score);
    free(j.scratch);
    free(j.keep);
    return rc;
}
