/* SPDX-License-Identifier: MIT */
/* How many entries layers and heads keep. The counts of every part are checked, built in or registered. */
#include "plan/compress_impl.h"
#include "policy/count.h"

#include <stdlib.h>
#include <string.h>

static int wrong_count(const wnw_part *part, int32_t il, int32_t ih, int64_t n, int32_t most)
{
    return wnw__fail(WNW_E_RANGE, "%s %s: %lld entries for layer %d, KV head %d, which must be 0 to %d",
                     wnw__part_kind_name(part->kind), part->name, (long long)n, (int)il, (int)ih, (int)most);
}

/* ---- Layers ---- */

/* The layer budget's problem, with the fields that are known before any layer is scored. */
static wnw_layer_problem layer_problem(const struct wnw__plan_job *j)
{
    const wnw_protected p = wnw__protected_shrink(wnw__job_protected(j, j->cache.n_max), j->size.budget);
    return (wnw_layer_problem){.n_layer = j->cache.n_part,
                               .n = j->cache.n_max,
                               .n_protected = p.n_first + p.n_last,
                               .budget = j->size.budget,
                               .mean = j->size.mean,
                               .ratio = j->size.ratio,
                               .rounding = j->policy->rounding,
                               .il = j->cache.il,
                               .n_layer_model = j->src->shape.n_layer,
                               .n_head = j->src->shape.n_head,
                               .n_head_kv = j->src->shape.n_head_kv,
                               .profile = j->profile,
                               .perplexity = j->perplexity,
                               .work = j->layer_work,
                               .scorer = j->scorer->part.name,
                               .n_past = j->src->n_past};
}

static int allocate_layers(struct wnw__plan_job *j, const wnw_layer_problem *p)
{
    const wnw_layer_budget *layer = wnw__layer_budget_of(j->policy);
    WNW_TRY(wnw__part_status(&layer->part, layer->allocate(j->policy->opts[WNW_PART_LAYER_BUDGET], p,
                                                           j->layer_budget, j->report->warning)));
    for (int32_t i = 0; i < p->n_layer; i++)
        if (j->layer_budget[i] < 0 || j->layer_budget[i] > p->n)
            return wrong_count(&layer->part, p->il[i], 0, j->layer_budget[i], p->n);
    return WNW_OK;
}

int wnw__job_count_layers(struct wnw__plan_job *j)
{
    const wnw_layer_problem p = layer_problem(j);
    return allocate_layers(j, &p);
}

/* ---- The model ---- */

static int allocate_model(struct wnw__plan_job *j, const wnw_layer_problem *p)
{
    const wnw_head_budget *head = wnw__head_budget_of(j->policy);
    const int32_t n_count = p->n_layer * p->n_head_kv;
    j->counts = calloc((size_t)n_count, sizeof *j->counts);
    if (!j->counts)
        return wnw__fail(WNW_E_NOMEM, "out of memory for %d counts", n_count);
    WNW_TRY(wnw__part_status(&head->part, head->allocate_model(j->policy->opts[WNW_PART_HEAD_BUDGET], p,
                                                               j->counts, p->scratch, j->report->warning)));
    for (int32_t r = 0; r < n_count; r++)
        if (j->counts[r] < 0 || j->counts[r] > p->n_entry[r])
            return wrong_count(&head->part, p->il[r / p->n_head_kv], r % p->n_head_kv, j->counts[r],
                               p->n_entry[r]);
    return WNW_OK;
}

int wnw__job_count_model(struct wnw__plan_job *j)
{
    const bool heads = wnw__head_budget_of(j->policy)->allocate_model;
    const int32_t n_head = j->src->shape.n_head_kv, n_layer = j->cache.n_part;
    const size_t n_row = (size_t)n_layer * (size_t)n_head;
    const float **score = calloc((size_t)n_layer, sizeof *score);
    int32_t *row = calloc((size_t)n_layer, sizeof *row), *n_entry = calloc(n_row, sizeof *n_entry);
    wnw_protected *prot = calloc(n_row, sizeof *prot);
    size_t n_score = 0;
    int rc = score && row && n_entry && prot
                 ? WNW_OK
                 : wnw__fail(WNW_E_NOMEM, "out of memory for the counts of %d layers", n_layer);
    for (int32_t i = 0; rc == WNW_OK && i < n_layer; i++) {
        const int32_t il = j->cache.il[i];
        score[i] = j->scored ? j->scored[i].score : NULL;
        row[i] = j->scored ? j->scored[i].row : j->cache.n_max;
        n_score += (size_t)n_head * (size_t)row[i];
        for (int32_t ih = 0; ih < n_head; ih++) {
            n_entry[i * n_head + ih] = wnw__job_entries(j, il)[ih];
            prot[i * n_head + ih] = wnw__protected_shrink(wnw__job_protected_head(j, il, ih), j->size.budget);
        }
    }
    if (rc == WNW_OK)
        rc = wnw__job_reserve(&j->scratch, n_score);
    if (rc == WNW_OK) {
        wnw_layer_problem p = layer_problem(j);
        p.score = j->scored ? score : NULL;
        p.row = row;
        p.n_entry = n_entry;
        p.prot = prot;
        p.gathered = j->gathered[heads ? WNW_PART_HEAD_BUDGET : WNW_PART_LAYER_BUDGET];
        p.scratch = j->scratch.at;
        rc = heads ? allocate_model(j, &p) : allocate_layers(j, &p);
    }
    free(score);
    free(row);
    free(n_entry);
    free(prot);
    return rc;
}

/* ---- The heads of one layer ---- */

/* Sets the protected entries of each head, limited to what `budget` and the head's n_keep hold. */
static void protect_heads(struct wnw__plan_job *j, int32_t il, int32_t budget)
{
    for (int32_t ih = 0; ih < j->src->shape.n_head_kv; ih++)
        j->kept.prot[ih] = wnw__protected_shrink(
            wnw__protected_shrink(wnw__job_protected_head(j, il, ih), budget), j->kept.n_keep[ih]);
}

static int count_by_selector(struct wnw__plan_job *j, const struct wnw__scored_layer *l)
{
    const wnw_blocks blocks = wnw__policy_blocks_with(j->policy, j->scorer_opts, l->n_settled);
    for (int32_t ih = 0; ih < j->src->shape.n_head_kv; ih++) {
        const int32_t n = j->selector->recursive->own_size(j->policy->opts[WNW_PART_SELECTOR], &blocks,
                                                           l->n_entry[ih], j->policy->rounding);
        if (n < 0 || n > l->n_entry[ih])
            return wrong_count(&j->selector->part, l->il, ih, n, l->n_entry[ih]);
        j->kept.n_keep[ih] = n;
    }
    protect_heads(j, l->il, INT32_MAX);
    return WNW_OK;
}

static int count_by_budget(struct wnw__plan_job *j, const struct wnw__scored_layer *l, int32_t budget)
{
    const wnw_head_budget *head = wnw__head_budget_of(j->policy);
    int32_t *n_keep = j->kept.n_keep, *n_safe = j->kept.n_safe;
    for (int32_t ih = 0; ih < j->src->shape.n_head_kv; ih++)
        n_keep[ih] = l->n_entry[ih] < budget ? l->n_entry[ih] : budget;
    protect_heads(j, l->il, INT32_MAX);
    const wnw_head_problem problem = {.n_head_kv = j->src->shape.n_head_kv,
                                      .n = l->row,
                                      .n_entry = l->n_entry,
                                      .score = l->score,
                                      .prot = j->kept.prot,
                                      .budget = budget,
                                      .rounding = j->policy->rounding,
                                      .gathered = j->gathered[WNW_PART_HEAD_BUDGET]};
    WNW_TRY(wnw__job_reserve(&j->scratch, (size_t)problem.n_head_kv * (size_t)problem.n));
    WNW_TRY(wnw__part_status(&head->part, head->allocate(j->policy->opts[WNW_PART_HEAD_BUDGET], &problem,
                                                         n_keep, n_safe, j->scratch.at)));
    for (int32_t ih = 0; ih < problem.n_head_kv; ih++) {
        const int32_t n_prot = problem.prot[ih].n_first + problem.prot[ih].n_last;
        if (n_keep[ih] < n_prot || n_keep[ih] > l->n_entry[ih])
            return wnw__fail(WNW_E_RANGE,
                             "head budget %s: %d entries for layer %d, KV head %d, which must be %d to %d",
                             head->part.name, n_keep[ih], l->il, ih, n_prot, l->n_entry[ih]);
        if (n_safe[ih] < 0 || n_safe[ih] > n_keep[ih] - n_prot)
            return wrong_count(&head->part, l->il, ih, n_safe[ih], n_keep[ih] - n_prot);
    }
    return WNW_OK;
}

int wnw__job_count_heads(struct wnw__plan_job *j, const struct wnw__scored_layer *l)
{
    const int32_t n_head = j->src->shape.n_head_kv;
    memset(j->kept.n_safe, 0, (size_t)n_head * sizeof *j->kept.n_safe);
    if (j->size.rule == WNW_SIZE_RULE_SELECTOR)
        return count_by_selector(j, l);
    if (!j->counts)
        return count_by_budget(j, l,
                               j->size.rule == WNW_SIZE_RULE_HEADS ? j->cache.n_max : j->layer_budget[l->i]);
    /* The average limits protection, so that a head with more entries protects no more than when it
     * competed. */
    memcpy(j->kept.n_keep, j->counts + (int64_t)l->i * n_head, (size_t)n_head * sizeof *j->counts);
    protect_heads(j, l->il, j->size.budget);
    return WNW_OK;
}
