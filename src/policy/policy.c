/* SPDX-License-Identifier: MIT */
/* What is known of a parsed policy: its needs, what it keeps, how it shares out. policy_parse.c reads recipes,
 * policy_check.c refuses parts that do not go together, policy_phase.c says when a policy can compress. */
#include "policy/policy.h"

#include "base/err.h"
#include "policy/parts.h"
#include "winnow_calibrate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wnw_policy_free(wnw_policy *p)
{
    if (!p)
        return;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        free(p->opts[k]);
    free(p->text);
    free(p);
}

int wnw__policy_copy(wnw_policy **out, const wnw_policy *p)
{
    *out = NULL;
    wnw_policy *copy = calloc(1, sizeof *copy);
    bool ok = copy != NULL;
    if (ok) {
        *copy = *p;
        memset(copy->opts, 0, sizeof copy->opts);
        ok = (copy->text = strdup(p->text)) != NULL;
    }
    for (int32_t k = 0; ok && k < WNW_N_PART_KINDS; k++) {
        const size_t size = p->part[k].head.options_size;
        ok = (copy->opts[k] = calloc(1, size + 1)) != NULL;
        if (ok)
            memcpy(copy->opts[k], p->opts[k], size);
    }
    if (!ok) {
        wnw_policy_free(copy);
        return wnw__fail(WNW_E_NOMEM, "out of memory for a policy");
    }
    *out = copy;
    return WNW_OK;
}

const char *wnw_policy_string(const wnw_policy *p)
{
    return p ? p->text : "";
}

wnw_needs wnw__policy_part_needs(const wnw_policy *p, int32_t k)
{
    const wnw_part *part = &p->part[k].head;
    wnw_needs needs = {0}, more = {0};
    if (part->needs)
        part->needs(p->opts[k], &needs);
    if (part->gather && part->gather->needs && wnw__policy_gathers(p, k))
        part->gather->needs(p->opts[k], &more);
    wnw__needs_merge(&needs, &more);
    return needs;
}

int wnw_policy_get_needs(const wnw_policy *p, wnw_needs *out)
{
    wnw_needs needs = {0};
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_needs, out));
    wnw__sized_give(out, &needs);
    WNW_REQUIRE(p);
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        const wnw_needs more = wnw__policy_part_needs(p, k);
        wnw__needs_merge(&needs, &more);
    }
    wnw__sized_give(out, &needs);
    return WNW_OK;
}

int32_t wnw__policy_perplexity_window(const wnw_policy *p)
{
    int32_t window = 0;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        const wnw_needs more = wnw__policy_part_needs(p, k);
        if (more.flags & WNW_NEED_PERPLEXITY && more.window > window)
            window = more.window;
    }
    return window;
}

bool wnw__policy_gathers(const wnw_policy *p, int32_t k)
{
    const wnw_gather *gather = p->part[k].head.gather;
    return gather && gather->size(p->opts[k], &(wnw_shape){1, 1, 1, 1, 1}) > 0;
}

uint32_t wnw__policy_matches(const wnw_policy *p)
{
    uint32_t all = 0;
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        all |= p->flags[k];
    return all & WNW_FLAG_MATCHES_LAYERS ? WNW_FLAG_MATCHES_LAYERS : all & WNW_FLAG_MATCHES_HEADS;
}

bool wnw__policy_counts_age(const wnw_policy *p)
{
    const wnw_scorer *scorer = wnw__scorer_of(p);
    return scorer->counts_age && scorer->counts_age(p->opts[WNW_PART_SCORER]);
}

wnw_protected wnw__policy_keep(const wnw_policy *p, const wnw_keep_problem *problem)
{
    return wnw__policy_keep_with(p, p->opts[WNW_PART_SCORER], problem);
}

wnw_protected wnw__policy_keep_with(const wnw_policy *p, const void *scorer_opts,
                                    const wnw_keep_problem *problem)
{
    wnw_protected kept = {0};
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        if (p->part[k].head.keep)
            p->part[k].head.keep(k == WNW_PART_SCORER ? scorer_opts : p->opts[k], problem, &kept);
    kept.n_first = kept.n_first > 0 ? kept.n_first : 0;
    kept.n_last = kept.n_last > 0 ? kept.n_last : 0;
    return kept;
}

bool wnw_policy_rerotates(const wnw_policy *p)
{
    return p && p->part[WNW_PART_POSITIONS].positions.rerotates;
}

bool wnw__policy_sees_all_layers(const wnw_policy *p)
{
    const bool model = wnw__head_budget_of(p)->allocate_model;
    return wnw__policy_has(p, WNW_PART_LAYER_BUDGET, WNW_FLAG_ALL_LAYERS) ||
           (model && !wnw__policy_has(p, WNW_PART_HEAD_BUDGET, WNW_FLAG_BLIND)) ||
           wnw__policy_gathers(p, WNW_PART_LAYER_BUDGET) || wnw__policy_gathers(p, WNW_PART_HEAD_BUDGET) ||
           wnw__policy_gathers(p, WNW_PART_SELECTOR);
}

int wnw__policies_check(const wnw_policy *const *policies, int32_t n)
{
    if (n < 0)
        return wnw__fail(WNW_E_ARG, "%d policies; give at least 0", (int)n);
    for (int32_t i = 0; i < n; i++)
        if (!policies || !policies[i])
            return wnw__fail(WNW_E_ARG, "policy %d of %d is NULL", (int)i, (int)n);
    return WNW_OK;
}

int wnw__observations_agree(const wnw_policy *const *policies, int32_t n)
{
    int32_t stats = -1; /* first policy that asks for query statistics */
    for (int32_t i = 0; i < n; i++) {
        const wnw_needs needs = wnw_policy_needs(policies[i]);
        if (!(needs.flags & WNW_NEED_QUERY_STATS))
            continue;
        stats = stats < 0 ? i : stats;
        const wnw_needs first = wnw_policy_needs(policies[stats]);
        if (first.skip != needs.skip)
            return wnw__fail(WNW_E_ARG,
                             "query statistics without the first %d tokens (%s) and without the first %d "
                             "(%s) cannot be gathered in one run",
                             (int)first.skip, wnw__policy_name(policies[stats]), (int)needs.skip,
                             wnw__policy_name(policies[i]));
    }
    return WNW_OK;
}

bool wnw_second_passes_agree(const wnw_needs *a, const wnw_needs *b)
{
    if (!a || !b)
        return false;
    const wnw_sample_size x = a->sample, y = b->sample;
    return a->second_pass == b->second_pass && x.least == y.least && x.most == y.most && x.every == y.every &&
           x.place == y.place;
}

int wnw__needs_agree(const wnw_policy *const *policies, int32_t n)
{
    int32_t pass = -1; /* first policy that asks for a second pass */
    WNW_TRY(wnw__observations_agree(policies, n));
    for (int32_t i = 0; i < n; i++) {
        const wnw_needs needs = wnw_policy_needs(policies[i]);
        if (!(needs.flags & WNW_NEED_SECOND_PASS))
            continue;
        pass = pass < 0 ? i : pass;
        const wnw_needs before = wnw_policy_needs(policies[pass]);
        if (!wnw_second_passes_agree(&before, &needs))
            return wnw__fail(WNW_E_ARG,
                             "%s and %s feed different tokens in their second pass: plan them one by one",
                             wnw__policy_name(policies[pass]), wnw__policy_name(policies[i]));
    }
    return WNW_OK;
}

int wnw__policy_check_profile(const wnw_policy *p, const wnw_profile *profile)
{
    const wnw_needs needs = wnw_policy_needs(p);
    const uint32_t missing =
        needs.flags & WNW_NEED_PROFILE ? needs.profiles & ~wnw_profile_kinds(profile) : 0;
    char names[64] = "";
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++)
        if (missing >> kind & 1u)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", *names ? " and " : "",
                     wnw_profile_kind_name(kind));
    if (missing)
        return wnw__fail(WNW_E_MISMATCH,
                         "%s needs a calibration profile of kind %s for this model; none was given",
                         wnw__policy_name(p), names);
    return WNW_OK;
}

bool wnw__policy_skips(const wnw_policy *p, int32_t il)
{
    const wnw_scorer *scorer = wnw__scorer_of(p);
    return scorer->skips && scorer->skips(p->opts[WNW_PART_SCORER], il);
}

wnw_blocks wnw__policy_blocks(const wnw_policy *p, int32_t n_settled)
{
    return wnw__policy_blocks_with(p, p->opts[WNW_PART_SCORER], n_settled);
}

wnw_blocks wnw__policy_blocks_with(const wnw_policy *p, const void *scorer_opts, int32_t n_settled)
{
    const wnw_block_rule *rule = wnw__scorer_of(p)->blocks;
    wnw_blocks b = {0};
    if (rule)
        rule->of(scorer_opts, &b);
    if (b.lag > 0 && n_settled > 0)
        b.sink = n_settled;
    return b;
}

bool wnw__policy_is_recursive(const wnw_policy *p)
{
    return wnw__scorer_of(p)->blocks && wnw__selector_of(p)->recursive;
}

bool wnw__policy_slides(const wnw_policy *p)
{
    const wnw_head_budget *budget = wnw__head_budget_of(p);
    return budget->slides && budget->slides(p->opts[WNW_PART_HEAD_BUDGET]);
}

bool wnw__policy_protects_apart(const wnw_policy *p)
{
    const wnw_layer_budget *budget = wnw__layer_budget_of(p);
    return budget->protected_apart && budget->protected_apart(p->opts[WNW_PART_LAYER_BUDGET]);
}

void wnw__needs_merge(wnw_needs *needs, const wnw_needs *more)
{
    needs->flags |= more->flags;
    needs->profiles |= more->profiles;
    needs->profiles_optional |= more->profiles_optional;
    if (more->window > needs->window)
        needs->window = more->window;
    if (more->lookahead > needs->lookahead)
        needs->lookahead = more->lookahead;
    if (more->flags & WNW_NEED_QUERY_STATS)
        needs->skip = more->skip;
    if (more->flags & WNW_NEED_SECOND_PASS) {
        needs->second_pass = more->second_pass;
        needs->sample = more->sample;
    }
}

bool wnw__policy_keeps_all(const wnw_policy *p)
{
    return p && wnw__scorer_of(p)->score == wnw__scorer_full.score;
}

bool wnw__policy_rewrites_all(const wnw_policy *p)
{
    return p && wnw__contents_of(p)->prune;
}

bool wnw_policy_is_full(const wnw_policy *p)
{
    return wnw__policy_keeps_all(p) && !wnw__policy_rewrites_all(p);
}

bool wnw_policy_rewrites(const wnw_policy *p)
{
    const wnw_contents *c = p ? wnw__contents_of(p) : NULL;
    return c && (c->merge || c->prune || c->fit);
}

bool wnw_policy_has_own_size(const wnw_policy *p)
{
    return p &&
           (wnw__selector_of(p)->recursive || wnw__policy_has(p, WNW_PART_HEAD_BUDGET, WNW_FLAG_OWN_SIZE) ||
            (wnw__policy_keeps_all(p) && !wnw_policy_is_full(p)));
}

bool wnw_policy_has_own_times(const wnw_policy *p)
{
    return p && (wnw__policy_is_recursive(p) || wnw__policy_slides(p));
}

const char *wnw__policy_layout(const wnw_policy *p)
{
    const bool uniform = wnw__policy_has(p, WNW_PART_SCORER, WNW_FLAG_UNIFORM);
    if (wnw__policy_keeps_all(p))
        return uniform ? "uniform" : "composite";
    if (wnw__policy_has(p, WNW_PART_HEAD_BUDGET, WNW_FLAG_RAGGED))
        return "ragged";
    if (uniform)
        return wnw__policy_has(p, WNW_PART_LAYER_BUDGET, WNW_FLAG_RAGGED) ? "layer" : "uniform";
    if (wnw__policy_has(p, WNW_PART_SCORER, WNW_FLAG_ONE_LIST))
        return "layer";
    /* One list of scores gives one list of tokens, unless the selector looks at each head by itself. */
    return wnw__policy_has(p, WNW_PART_AGGREGATION, WNW_FLAG_ONE_LIST) && !wnw__selector_of(p)->part.needs
               ? "layer"
               : "composite";
}
