/* SPDX-License-Identifier: MIT */
/* How many entries layers and heads keep. The counts of every part are checked, built in or registered. */
#include "method/count.h"
#include "plan/compress_impl.h"

#include <stdlib.h>
#include <string.h>

static int wrong_count(const wnw_part *part, int32_t il, int32_t ih, int64_t n, int32_t most)
{
    return wnw__fail(WNW_E_RANGE, "%s %s: %lld entries for layer %d, KV head %d, which must be 0 to %d",
                     wnw__part_kind_name(part->kind), part->name, (long long)n, (int)il, (int)ih, (int)most);
}

/* ---- Layers ---- */

/* The layer budget's problem, with the fields that are known before any layer is scored. */
static wnw_layer_problem layer_problem(const struct wnw__draft *draft)
{
    const wnw_protected p =
        wnw__protected_shrink(wnw__draft_protected(draft, draft->cache.n_max), draft->size.budget);
    return (wnw_layer_problem){.n_layer = draft->cache.n_part,
                               .n = draft->cache.n_max,
                               .n_protected = p.n_first + p.n_last,
                               .budget = draft->size.budget,
                               .mean = draft->size.mean,
                               .ratio = draft->size.ratio,
                               .rounding = draft->policy->rounding,
                               .il = draft->cache.il,
                               .n_layer_model = draft->src->shape.n_layer,
                               .n_head = draft->src->shape.n_head,
                               .n_head_kv = draft->src->shape.n_head_kv,
                               .profile = draft->profile,
                               .perplexity = draft->perplexity,
                               .work = draft->layer_work,
                               .scorer = draft->scorer->part.name,
                               .n_past = draft->src->n_past};
}

/* The largest count per head that a layer can keep: the mean of what its heads have where they share it, otherwise the longest
 * head's. */
static int32_t length_of(const struct wnw__draft *draft, int32_t il)
{
    const int32_t n_head = draft->src->shape.n_head_kv, *n_entry = wnw__draft_entries(draft, il);
    int32_t longest = 0;
    int64_t sum = 0;
    for (int32_t ih = 0; ih < n_head; ih++) {
        sum += n_entry[ih];
        longest = n_entry[ih] > longest ? n_entry[ih] : longest;
    }
    return wnw__policy_has(draft->policy, WNW_PART_HEAD_BUDGET, WNW_FLAG_COMPETES)
               ? (int32_t)((sum + n_head - 1) / n_head)
               : longest;
}

/* A layer that was compressed before may have fewer entries than its budget. Where layers compete, the others take what it leaves, in
 * proportion to their budgets. */
static void fit_layers(struct wnw__draft *draft, const wnw_layer_problem *p)
{
    int32_t *budget = draft->layer_budget;
    int64_t total = 0;
    bool fit = true;
    for (int32_t i = 0; i < p->n_layer; i++) {
        draft->layer_length[i] = length_of(draft, p->il[i]);
        draft->layer_work[i] = budget[i];
        total += budget[i];
        fit = fit && budget[i] <= draft->layer_length[i];
    }
    if (!fit)
        wnw__share_out_within(draft->layer_work, p->n_layer, total, draft->layer_length, budget);
}

static int allocate_layers(struct wnw__draft *draft, const wnw_layer_problem *p)
{
    const wnw_layer_budget *layer = wnw__layer_budget_of(draft->policy);
    WNW_TRY(wnw__part_status(&layer->part, layer->allocate(draft->policy->opts[WNW_PART_LAYER_BUDGET], p,
                                                           draft->layer_budget, draft->report->warning)));
    for (int32_t i = 0; i < p->n_layer; i++)
        if (draft->layer_budget[i] < 0 || draft->layer_budget[i] > p->n)
            return wrong_count(&layer->part, p->il[i], 0, draft->layer_budget[i], p->n);
    if (wnw__policy_has(draft->policy, WNW_PART_LAYER_BUDGET, WNW_FLAG_COMPETES))
        fit_layers(draft, p);
    return WNW_OK;
}

int wnw__draft_count_layers(struct wnw__draft *draft)
{
    const wnw_layer_problem p = layer_problem(draft);
    return allocate_layers(draft, &p);
}

/* ---- The model ---- */

static int allocate_model(struct wnw__draft *draft, const wnw_layer_problem *p)
{
    const wnw_head_budget *head = wnw__head_budget_of(draft->policy);
    const int32_t n_count = p->n_layer * p->n_head_kv;
    draft->counts = calloc((size_t)n_count, sizeof *draft->counts);
    if (!draft->counts)
        return wnw__fail(WNW_E_NOMEM, "out of memory for %d counts", n_count);
    WNW_TRY(wnw__part_status(&head->part,
                             head->allocate_model(draft->policy->opts[WNW_PART_HEAD_BUDGET], p, draft->counts,
                                                  p->scratch, draft->report->warning)));
    for (int32_t r = 0; r < n_count; r++)
        if (draft->counts[r] < 0 || draft->counts[r] > p->n_entry[r])
            return wrong_count(&head->part, p->il[r / p->n_head_kv], r % p->n_head_kv, draft->counts[r],
                               p->n_entry[r]);
    return WNW_OK;
}

int wnw__draft_count_model(struct wnw__draft *draft)
{
    const bool heads = wnw__head_budget_of(draft->policy)->allocate_model;
    const int32_t n_head = draft->src->shape.n_head_kv, n_layer = draft->cache.n_part;
    const size_t n_row = (size_t)n_layer * (size_t)n_head;
    const float **score = calloc((size_t)n_layer, sizeof *score);
    int32_t *row = calloc((size_t)n_layer, sizeof *row), *n_entry = calloc(n_row, sizeof *n_entry);
    wnw_protected *prot = calloc(n_row, sizeof *prot);
    size_t n_score = 0;
    int rc = score && row && n_entry && prot
                 ? WNW_OK
                 : wnw__fail(WNW_E_NOMEM, "out of memory for the counts of %d layers", n_layer);
    for (int32_t i = 0; rc == WNW_OK && i < n_layer; i++) {
        const int32_t il = draft->cache.il[i];
        score[i] = draft->scored ? draft->scored[i].score : NULL;
        row[i] = draft->scored ? draft->scored[i].row : draft->cache.n_max;
        n_score += (size_t)n_head * (size_t)row[i];
        for (int32_t ih = 0; ih < n_head; ih++) {
            n_entry[i * n_head + ih] = wnw__draft_entries(draft, il)[ih];
            prot[i * n_head + ih] =
                wnw__protected_shrink(wnw__draft_protected_head(draft, il, ih), draft->size.budget);
        }
    }
    if (rc == WNW_OK)
        rc = wnw__draft_reserve(&draft->scratch, n_score);
    if (rc == WNW_OK) {
        wnw_layer_problem p = layer_problem(draft);
        p.score = draft->scored ? score : NULL;
        p.row = row;
        p.n_entry = n_entry;
        p.prot = prot;
        p.gathered = draft->gathered[heads ? WNW_PART_HEAD_BUDGET : WNW_PART_LAYER_BUDGET];
        p.scratch = draft->scratch.x;
        rc = heads ? allocate_model(draft, &p) : allocate_layers(draft, &p);
    }
    free(score);
    free(row);
    free(n_entry);
    free(prot);
    return rc;
}

/* ---- The heads of one layer ---- */

/* Sets the protected entries of each head, limited to what `budget` and the head's n_keep hold. */
static void protect_heads(struct wnw__draft *draft, int32_t il, int32_t budget)
{
    for (int32_t ih = 0; ih < draft->src->shape.n_head_kv; ih++)
        draft->kept.prot[ih] = wnw__protected_shrink(
            wnw__protected_shrink(wnw__draft_protected_head(draft, il, ih), budget), draft->kept.n_keep[ih]);
}

static int count_by_selector(struct wnw__draft *draft, const struct wnw__scored_layer *l)
{
    const wnw_blocks blocks = wnw__policy_blocks_with(draft->policy, draft->scorer_opts, l->n_settled);
    for (int32_t ih = 0; ih < draft->src->shape.n_head_kv; ih++) {
        const int32_t n = draft->selector->recursive->own_size(
            draft->policy->opts[WNW_PART_SELECTOR], &blocks, l->n_entry[ih], draft->policy->rounding);
        if (n < 0 || n > l->n_entry[ih])
            return wrong_count(&draft->selector->part, l->il, ih, n, l->n_entry[ih]);
        draft->kept.n_keep[ih] = n;
    }
    protect_heads(draft, l->il, INT32_MAX);
    return WNW_OK;
}

static int count_by_budget(struct wnw__draft *draft, const struct wnw__scored_layer *l, int32_t budget)
{
    const wnw_head_budget *head = wnw__head_budget_of(draft->policy);
    int32_t *n_keep = draft->kept.n_keep, *n_safe = draft->kept.n_safe;
    for (int32_t ih = 0; ih < draft->src->shape.n_head_kv; ih++)
        n_keep[ih] = l->n_entry[ih] < budget ? l->n_entry[ih] : budget;
    protect_heads(draft, l->il, INT32_MAX);
    const wnw_head_problem problem = {.n_head_kv = draft->src->shape.n_head_kv,
                                      .n = l->row,
                                      .n_entry = l->n_entry,
                                      .score = l->score,
                                      .prot = draft->kept.prot,
                                      .budget = budget,
                                      .rounding = draft->policy->rounding,
                                      .gathered = draft->gathered[WNW_PART_HEAD_BUDGET]};
    WNW_TRY(wnw__draft_reserve(&draft->scratch, (size_t)problem.n_head_kv * (size_t)problem.n));
    WNW_TRY(wnw__part_status(&head->part, head->allocate(draft->policy->opts[WNW_PART_HEAD_BUDGET], &problem,
                                                         n_keep, n_safe, draft->scratch.x)));
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

int wnw__draft_count_heads(struct wnw__draft *draft, const struct wnw__scored_layer *l)
{
    const int32_t n_head = draft->src->shape.n_head_kv;
    memset(draft->kept.n_safe, 0, (size_t)n_head * sizeof *draft->kept.n_safe);
    if (draft->size.rule == WNW_SIZE_RULE_SELECTOR)
        return count_by_selector(draft, l);
    if (!draft->counts)
        return count_by_budget(draft, l,
                               draft->size.rule == WNW_SIZE_RULE_HEADS ? draft->cache.n_max
                                                                       : draft->layer_budget[l->i]);
    /* The average limits protection, so that a head with more entries protects no more than when it
     * competed. */
    memcpy(draft->kept.n_keep, draft->counts + (int64_t)l->i * n_head,
           (size_t)n_head * sizeof *draft->counts);
    protect_heads(draft, l->il, draft->size.budget);
    return WNW_OK;
}
