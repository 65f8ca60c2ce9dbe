/* SPDX-License-Identifier: MIT */
/* One policy at work: what it needs to know and to remember before it looks at any layer. */
#include "plan/compress_impl.h"

#include "base/time.h"
#include "policy/count.h"

#include <stdlib.h>
#include <string.h>

static int count_entries(struct wnw__plan_job *j)
{
    const struct wnw__plan_source *src = j->src;
    const size_t n_head = (size_t)src->n_head_kv;
    j->n_entry = calloc((size_t)src->n_layer * n_head, sizeof *j->n_entry);
    j->part_il = calloc((size_t)src->n_layer, sizeof *j->part_il);
    j->n_keep = calloc(n_head, sizeof *j->n_keep);
    j->n_safe = calloc(n_head, sizeof *j->n_safe);
    j->prot = calloc(n_head, sizeof *j->prot);
    j->keep_heads = calloc(n_head, sizeof *j->keep_heads);
    j->heads = calloc((size_t)src->n_head, sizeof *j->heads);
    j->all_heads = calloc((size_t)src->n_head, sizeof *j->all_heads);
    if (!j->n_entry || !j->part_il || !j->n_keep || !j->n_safe || !j->prot || !j->keep_heads || !j->heads ||
        !j->all_heads)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a plan of %d layers", src->n_layer);
    j->n_min = INT32_MAX;
    for (int32_t il = 0; il < src->n_layer; il++) {
        const bool skipped = wnw__job_skips(j, il);
        if (!skipped)
            j->part_il[j->n_part++] = il;
        for (int32_t ih = 0; ih < src->n_head_kv; ih++) {
            const int32_t n = src->n_entry(src, il, ih);
            j->n_entry[il * src->n_head_kv + ih] = n;
            j->keep_row = n >= j->keep_row ? n + 1 : j->keep_row;
            if (skipped)
                continue;
            j->n_max = n > j->n_max ? n : j->n_max;
            j->n_min = n < j->n_min ? n : j->n_min;
            j->n_sum += n;
        }
    }
    return WNW_OK;
}

static int copy_scorer_opts(struct wnw__plan_job *j)
{
    const wnw_part *part = &j->scorer->part;
    j->scorer_opts = calloc(1, part->options_size + 1);
    if (!j->scorer_opts)
        return wnw__fail(WNW_E_NOMEM, "out of memory for the options of %s", part->name);
    memcpy(j->scorer_opts, j->policy->opts[WNW_PART_SCORER], part->options_size);
    return WNW_OK;
}

static int check_profile(const struct wnw__plan_job *j)
{
    const wnw_needs needs = wnw_policy_needs(j->policy);
    const uint32_t have = wnw_profile_kinds(j->src->profile);
    const uint32_t lacking = needs.flags & WNW_NEED_PROFILE ? needs.profiles_optional & ~have : 0;
    WNW_TRY(wnw__policy_check_profile(j->policy, j->src->profile));
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++)
        if (lacking >> kind & 1u)
            wnw__warn(j->report->warning,
                      "no calibration profile of kind %s was given: %s works with neutral values",
                      wnw_profile_kind_name(kind), j->scorer->part.name);
    return WNW_OK;
}

/* The problem as far as it is known before any layer is scored. */
wnw_layer_problem wnw__job_layer_problem(const struct wnw__plan_job *j)
{
    const wnw_protected p = wnw__protected_shrink(wnw__job_protected(j, j->n_max), j->budget);
    return (wnw_layer_problem){.n_layer = j->n_part,
                               .n = j->n_max,
                               .n_protected = p.n_first + p.n_last,
                               .budget = j->budget,
                               .mean = j->mean,
                               .ratio = j->ratio,
                               .rounding = j->policy->rounding,
                               .il = j->part_il,
                               .n_layer_model = j->src->n_layer,
                               .n_head = j->src->n_head,
                               .n_head_kv = j->src->n_head_kv,
                               .profile = j->src->profile,
                               .perplexity = j->perplexity,
                               .work = j->layer_work};
}

int wnw__job_allocate_layers(struct wnw__plan_job *j, const wnw_layer_problem *p)
{
    WNW_TRY(
        j->layer->allocate(j->policy->opts[WNW_PART_LAYER_BUDGET], p, j->layer_budget, j->report->warning));
    for (int32_t i = 0; i < j->n_part; i++)
        if (j->layer_budget[i] < 0 || j->layer_budget[i] > j->n_max)
            return wnw__fail(WNW_E_RANGE, "%s gives layer %d %d entries per head, of %d", j->layer->part.name,
                             j->part_il[i], j->layer_budget[i], j->n_max);
    return WNW_OK;
}

/* A cache whose keys were turned to new positions does not suit every policy. */
static int check_moved(const struct wnw__plan_job *j)
{
    const struct wnw__plan_source *src = j->src;
    const uint32_t matches = wnw__policy_matches(j->policy);
    bool mixed = matches == WNW_FLAG_MATCHES_LAYERS && src->is_mixed && src->is_mixed(src, -1);
    for (int32_t i = 0; matches == WNW_FLAG_MATCHES_HEADS && src->is_mixed && i < j->n_part; i++)
        mixed = mixed || src->is_mixed(src, j->part_il[i]);
    if (mixed)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "%s puts heads together by position, and since the kept tokens got new positions each "
            "head has another token there; use a policy that looks at every head by itself",
            j->scorer->part.name);
    if (src->n_moved > 0 && wnw__policy_counts_age(j->policy))
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "%s divides by the number of queries that have seen an entry, which positions given "
                         "anew no longer tell",
                         j->scorer->part.name);
    return WNW_OK;
}

static int prepare_gathered(struct wnw__plan_job *j)
{
    const wnw_shape shape = {.n_layer = j->src->n_layer,
                             .n_head = j->src->n_head,
                             .n_head_kv = j->src->n_head_kv,
                             .n_embd_head = j->src->n_embd_head,
                             .n_past = j->src->n_past};
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        const wnw_gather *gather = j->policy->part[k].head.gather;
        const size_t n = gather ? gather->size(j->policy->opts[k], &shape) : 0;
        if (n == 0)
            continue;
        j->gathered[k] = calloc(n, sizeof **j->gathered);
        if (!j->gathered[k])
            return wnw__fail(WNW_E_NOMEM, "out of memory for %zu gathered numbers", n);
    }
    return WNW_OK;
}

static int prepare_contents(struct wnw__plan_job *j)
{
    const size_t row = (size_t)j->keep_row + 1;
    WNW_TRY(
        wnw__plan_begin_contents(j->plan, wnw__policy_has(j->policy, WNW_PART_CONTENTS, WNW_FLAG_AVERAGES)));
    j->keep = calloc((size_t)j->src->n_head_kv * row, sizeof *j->keep);
    j->merges = calloc(row, sizeof *j->merges);
    j->channels = calloc((size_t)j->src->n_embd_head + 1, sizeof *j->channels);
    return j->keep && j->merges && j->channels
               ? WNW_OK
               : wnw__fail(WNW_E_NOMEM, "out of memory for the contents of %d entries", j->n_max);
}

static int job_prepare(struct wnw__plan_job *j, const wnw_size *size)
{
    const struct wnw__plan_source *src = j->src;
    const size_t n_head = (size_t)src->n_head_kv;
    WNW_TRY(wnw__plan_begin(&j->plan, src->n_layer, src->n_head_kv, src->n_past));
    WNW_TRY(count_entries(j));
    WNW_TRY(copy_scorer_opts(j));
    WNW_TRY(wnw__job_size(j, size));
    if (wnw__contents_works(j->contents))
        WNW_TRY(prepare_contents(j));
    if (j->keep_all || j->n_part == 0) {
        j->keep_all = true;
        return WNW_OK;
    }
    WNW_TRY(check_moved(j));
    WNW_TRY(check_profile(j));
    if (!j->keep)
        j->keep = calloc(n_head * (size_t)j->keep_row, sizeof *j->keep);
    j->layer_budget = calloc((size_t)j->n_part, sizeof *j->layer_budget);
    j->layer_work = calloc((size_t)j->n_part, sizeof *j->layer_work);
    if (!j->keep || !j->layer_budget || !j->layer_work)
        return wnw__fail(WNW_E_NOMEM, "out of memory for %d entries", j->n_max);
    const wnw_needs needs = wnw_policy_needs(j->policy);
    if (needs.flags & WNW_NEED_PERPLEXITY) {
        if (!src->perplexity)
            return wnw__fail(WNW_E_NOT_OBSERVED, "%s needs the prompt's perplexity, which was not observed",
                             j->scorer->part.name);
        WNW_TRY(src->perplexity(src, wnw__policy_perplexity_window(j->policy), &j->perplexity));
    }
    WNW_TRY(prepare_gathered(j));
    if (j->own_size)
        return WNW_OK;
    if (j->unsized) {
        j->model_scope = false; /* there is nothing to share out */
        for (int32_t i = 0; i < j->n_part; i++)
            j->layer_budget[i] = j->n_max;
        return WNW_OK;
    }
    WNW_TRY(wnw__job_fit_protected(j, size));
    if (j->selector->advise) {
        const wnw_protected prot = wnw__protected_shrink(wnw__job_protected(j, j->n_max), j->budget);
        j->selector->advise(j->policy->opts[WNW_PART_SELECTOR], &prot, j->budget, j->policy->rounding,
                            j->report->warning);
    }
    if (!j->model_scope) {
        const wnw_layer_problem p = wnw__job_layer_problem(j);
        return wnw__job_allocate_layers(j, &p);
    }
    j->scored = calloc((size_t)j->n_part, sizeof *j->scored);
    if (!j->scored)
        return wnw__fail(WNW_E_NOMEM, "out of memory for the scores of %d layers", j->n_part);
    return WNW_OK;
}

int wnw__plan_job_new(struct wnw__plan_job **out, const wnw_policy *policy, const wnw_size *size,
                      const struct wnw__plan_source *src, wnw_report *report)
{
    const double start = wnw__now_ms();
    *out = NULL;
    struct wnw__plan_job *j = calloc(1, sizeof *j);
    if (!j)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a plan");
    j->src = src;
    j->policy = policy;
    j->scorer = wnw__scorer_of(policy);
    j->layer = wnw__layer_budget_of(policy);
    j->head = wnw__head_budget_of(policy);
    j->selector = wnw__selector_of(policy);
    j->contents = wnw__contents_of(policy);
    j->model_scope = wnw__policy_sees_all_layers(policy);
    j->report = report ? report : &j->unused_report;
    j->report->warning[0] = '\0';
    const int rc = job_prepare(j, size);
    if (rc != WNW_OK) {
        wnw__plan_job_free(j);
        return rc;
    }
    j->work_ms = wnw__now_ms() - start;
    *out = j;
    return WNW_OK;
}

void wnw__plan_job_free(struct wnw__plan_job *j)
{
    if (!j)
        return;
    for (int32_t i = 0; j->scored && i < j->n_part; i++) {
        free(j->scored[i].score);
        free(j->scored[i].head_score);
    }
    free(j->scored);
    wnw_plan_free(j->plan);
    free(j->n_entry);
    free(j->part_il);
    free(j->n_keep);
    free(j->n_safe);
    free(j->prot);
    free(j->keep_heads);
    free(j->heads);
    free(j->all_heads);
    free(j->scorer_opts);
    free(j->layer_budget);
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        free(j->gathered[k]);
    free(j->layer_work);
    free(j->counts);
    free(j->score);
    free(j->head_score);
    free(j->scratch);
    free(j->keep);
    free(j->merges);
    free(j->channels);
    free(j);
}
