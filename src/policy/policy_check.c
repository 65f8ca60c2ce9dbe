/* SPDX-License-Identifier: MIT */
/* Whether the parts of a recipe go together. */
#include "policy/policy.h"

#include <string.h>

static int check_aggregation(const wnw_policy *p)
{
    const bool query_heads = wnw__policy_has(p, WNW_PART_SCORER, WNW_FLAG_QUERY_HEADS);
    const char *name = wnw__aggregation_of(p)->part.name;
    if (wnw__policy_has(p, WNW_PART_AGGREGATION, WNW_FLAG_QUERY_HEADS) && !query_heads)
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with %s: it scores KV heads, there are no query heads to put "
                         "together; layer_mean and layer_max go with it",
                         wnw__policy_name(p), name);
    if (!wnw__aggregation_of(p)->aggregate && query_heads)
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with %s: it scores query heads; name an aggregation such as "
                         "group_mean",
                         wnw__policy_name(p), name);
    return WNW_OK;
}

/* Name of the budget part that makes layers or heads differ in length; NULL if none does. */
static const char *ragged_budget(const wnw_policy *p)
{
    if (wnw__policy_has(p, WNW_PART_LAYER_BUDGET, WNW_FLAG_RAGGED))
        return wnw__layer_budget_of(p)->part.name;
    if (wnw__policy_has(p, WNW_PART_HEAD_BUDGET, WNW_FLAG_RAGGED))
        return wnw__head_budget_of(p)->part.name;
    return NULL;
}

/* Refuses re-rotation with ragged budgets: the next token has one position, so all heads need equal
 * counts. */
static int check_positions(const wnw_policy *p)
{
    const char *name = p->part[WNW_PART_POSITIONS].head.name, *ragged = ragged_budget(p);
    if (!wnw_policy_rerotates(p))
        return WNW_OK;
    if (ragged)
        return wnw__fail(
            WNW_E_ARG,
            "%s cannot be combined with %s: new positions need the same number of entries in every "
            "layer and head, and %s gives them different ones; original positions go with it",
            name, ragged, ragged);
    if (wnw__policy_skips(p, 0))
        return wnw__fail(
            WNW_E_ARG,
            "%s cannot be combined with %s that leaves the first layers whole: new positions need "
            "the same number of entries in every layer; set skip=0",
            name, wnw__policy_name(p));
    return WNW_OK;
}

static int check_selector(const wnw_policy *p)
{
    const char *name = wnw__selector_of(p)->part.name, *ragged = ragged_budget(p);
    if (wnw__policy_has(p, WNW_PART_SELECTOR, WNW_FLAG_ATTENTION) &&
        !wnw__policy_has(p, WNW_PART_SCORER, WNW_FLAG_ATTENTION))
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with selector %s, which weighs attention against value "
                         "norms: its scores are not attention",
                         wnw__policy_name(p), name);
    if (wnw__policy_has(p, WNW_PART_SELECTOR, WNW_FLAG_QUERY_HEADS) &&
        (!wnw__policy_has(p, WNW_PART_SCORER, WNW_FLAG_QUERY_HEADS) ||
         !wnw__policy_has(p, WNW_PART_AGGREGATION, WNW_FLAG_QUERY_HEADS) || wnw__aggregation_of(p)->choose))
        return wnw__fail(
            WNW_E_ARG,
            "%s+%s cannot be combined with selector %s as its options are: it looks at every query "
            "head of a group, such as snapkv+group_mean has them",
            wnw__policy_name(p), wnw__aggregation_of(p)->part.name, name);
    if (!wnw__selector_of(p)->by_block)
        return WNW_OK;
    if (!wnw__scorer_of(p)->blocks)
        return wnw__fail(
            WNW_E_ARG,
            "%s cannot be combined with selector %s: its scores do not come in blocks (lagkv's do)",
            wnw__policy_name(p), name);
    if (ragged)
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with %s: its selector %s keeps the same number of entries of "
                         "every block in every head; add +topk to let blocks compete",
                         wnw__policy_name(p), ragged, name);
    return WNW_OK;
}

/* A policy has one second pass, which all of its parts must mean. */
static int check_passes(const wnw_policy *p)
{
    int32_t first = -1;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        const wnw_needs needs = wnw__policy_part_needs(p, k);
        if (!(needs.flags & WNW_NEED_SECOND_PASS))
            continue;
        first = first < 0 ? k : first;
        const wnw_needs before = wnw__policy_part_needs(p, first);
        if (!wnw_second_passes_agree(&before, &needs))
            return wnw__fail(WNW_E_ARG,
                             "%s cannot be combined with %s: each has other tokens read a second time",
                             p->part[first].head.name, p->part[k].head.name);
    }
    return WNW_OK;
}

int wnw__policy_check_parts(const wnw_policy *p)
{
    const char *layer = wnw__layer_budget_of(p)->part.name;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        WNW_TRY(wnw__part_check(&p->part[k].head, p->opts[k]));
    WNW_TRY(check_aggregation(p));
    WNW_TRY(check_positions(p));
    WNW_TRY(check_passes(p));
    if (wnw__head_budget_of(p)->allocate_model && strcmp(layer, "uniform") != 0)
        return wnw__fail(WNW_E_ARG,
                         "%s cannot be combined with %s: it shares one budget out over all layers and heads",
                         wnw__head_budget_of(p)->part.name, layer);
    if (wnw__policy_has(p, WNW_PART_HEAD_BUDGET, WNW_FLAG_SECOND_LOOK) &&
        !wnw__policy_has(p, WNW_PART_SCORER, WNW_FLAG_SECOND_LOOK))
        return wnw__fail(
            WNW_E_ARG,
            "%s cannot be combined with %s: its scores do not say what a second reading would look for, as "
            "those of replay, kvgate and inputgate do",
            wnw__policy_name(p), wnw__head_budget_of(p)->part.name);
    return check_selector(p);
}
