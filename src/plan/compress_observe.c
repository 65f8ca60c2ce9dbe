/* SPDX-License-Identifier: MIT */
/* What a draft needs of a layer, and the observation that its policy gets. */
#include "plan/compress_impl.h"

static void add_needs(const struct wnw__draft *draft, int32_t k, void (*needs)(const void *, wnw_needs *),
                      wnw_needs *sum)
{
    wnw_needs more = {0};
    if (needs)
        needs(k == WNW_PART_SCORER ? draft->scorer_opts : draft->policy->opts[k], &more);
    wnw__needs_merge(sum, &more);
}

wnw_needs wnw__draft_contents_needs(const struct wnw__draft *draft)
{
    wnw_needs needs = {0};
    add_needs(draft, WNW_PART_CONTENTS, draft->contents->part.needs, &needs);
    return needs;
}

wnw_needs wnw__draft_select_needs(const struct wnw__draft *draft)
{
    wnw_needs needs = {0};
    add_needs(draft, WNW_PART_SELECTOR, draft->selector->part.needs, &needs);
    add_needs(draft, WNW_PART_CONTENTS, draft->contents->part.needs, &needs);
    return needs;
}

wnw_needs wnw__draft_gather_needs(const struct wnw__draft *draft)
{
    wnw_needs needs = {0};
    add_needs(draft, WNW_PART_SCORER, draft->scorer->part.gather->needs, &needs);
    return needs;
}

/* What parts other than the scorer want to see of a layer while it is scored. */
static wnw_needs needs_besides(const struct wnw__draft *draft)
{
    wnw_needs needs = {0};
    add_needs(draft, WNW_PART_AGGREGATION, draft->aggregation->part.needs, &needs);
    for (int32_t k = WNW_PART_SCORER + 1; k < WNW_N_PART_KINDS; k++)
        if (draft->gathered[k])
            add_needs(draft, k, draft->policy->part[k].head.gather->needs, &needs);
    if (!draft->all_layers) {
        const wnw_needs more = wnw__draft_select_needs(draft);
        wnw__needs_merge(&needs, &more);
    }
    return needs;
}

wnw_needs wnw__draft_score_needs(const struct wnw__draft *draft)
{
    const wnw_needs besides = needs_besides(draft);
    wnw_needs needs = {0};
    add_needs(draft, WNW_PART_SCORER, draft->scorer->part.needs, &needs);
    wnw__needs_merge(&needs, &besides);
    return needs;
}

int wnw__draft_window_heads(struct wnw__draft *draft, int32_t il, bool *used)
{
    const wnw_observation known = {.il = il,
                                   .n_layer = draft->src->shape.n_layer,
                                   .n_head = draft->src->shape.n_head,
                                   .n_head_kv = draft->src->shape.n_head_kv,
                                   .profile = draft->profile};
    for (int32_t h = 0; h < draft->src->shape.n_head; h++)
        draft->heads[h] = true;
    if (draft->aggregation->choose)
        WNW_TRY(wnw__part_status(
            &draft->aggregation->part,
            draft->aggregation->choose(draft->policy->opts[WNW_PART_AGGREGATION], &known, draft->heads)));
    const bool by_head = wnw__policy_has(draft->policy, WNW_PART_SCORER, WNW_FLAG_WINDOW_BY_HEAD) &&
                         !(needs_besides(draft).flags & WNW_NEED_WINDOW_ATTN);
    if (wnw__draft_score_needs(draft).flags & WNW_NEED_WINDOW_ATTN)
        for (int32_t h = 0; h < draft->src->shape.n_head; h++)
            used[h] = used[h] || draft->heads[h] || !by_head;
    return WNW_OK;
}

static int check_observation(const struct wnw__draft *draft, const wnw_needs *needs,
                             const wnw_observation *obs)
{
    const struct {
        uint32_t flag;
        bool there;
    } rows[] = {
        {WNW_NEED_WINDOW_ATTN, obs->window_attn && obs->n_window > 0},
        {WNW_NEED_KEYS, obs->keys != NULL},
        {WNW_NEED_VALUES, obs->values != NULL},
        {WNW_NEED_ATTN_SUM, obs->attn_sum != NULL},
        {WNW_NEED_ATTN_MAX, obs->attn_max != NULL},
        {WNW_NEED_PROJ_NORM, obs->proj_norm != NULL},
        {WNW_NEED_QUERY_STATS, obs->query_mean && obs->query_cov},
        {WNW_NEED_QUERIES_F16, obs->queries != NULL},
        {WNW_NEED_QUERIES, obs->queries != NULL},
        {WNW_NEED_ROPE, obs->rope_theta != NULL},
        {WNW_NEED_TOKEN_TEXT, obs->token_text != NULL},
        {WNW_NEED_NOTES, obs->note != NULL},
        {WNW_NEED_INPUT_GATE, obs->input_score != NULL},
        {WNW_NEED_SECOND_PASS, obs->pass2_max && obs->pass2_sum},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((needs->flags & rows[i].flag) && !rows[i].there)
            return wnw__fail(WNW_E_NOT_OBSERVED,
                             "%s needs an observation of layer %d that was not made (%s); declare the policy "
                             "before prefill",
                             wnw__policy_name(draft->policy), obs->il,
                             wnw_need_name(__builtin_ctz(rows[i].flag)));
    return WNW_OK;
}

int wnw__draft_adapt(const struct wnw__draft *draft, const wnw_observation *seen, const wnw_needs *needs,
                     wnw_observation *obs)
{
    WNW_TRY(check_observation(draft, needs, seen));
    *obs = *seen;
    obs->n_prefix = draft->src->n_prefix;
    obs->budget = draft->size.mean;
    obs->n_settled = draft->src->layer(draft->src, seen->il).n_settled;
    obs->gathered = draft->gathered[WNW_PART_SCORER];
    obs->profile = draft->profile;
    obs->perplexity = draft->perplexity;
    if (draft->n_lookahead > 0) {
        const wnw_needs all = wnw_policy_needs(draft->policy);
        obs->lookahead_queries = draft->lookahead + (size_t)seen->il * (size_t)all.lookahead *
                                                        (size_t)seen->n_head * (size_t)seen->n_embd_head;
        obs->n_lookahead = draft->n_lookahead;
    }
    return WNW_OK;
}

int wnw__draft_gather(struct wnw__draft *draft, int32_t k, const wnw_observation *obs)
{
    const wnw_part *part = &draft->policy->part[k].head;
    const void *opts = k == WNW_PART_SCORER ? draft->scorer_opts : draft->policy->opts[k];
    return draft->gathered[k] ? wnw__part_status(part, part->gather->visit(opts, obs, draft->gathered[k]))
                              : WNW_OK;
}
