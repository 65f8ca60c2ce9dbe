/* SPDX-License-Identifier: MIT */
/* What a job wants to see of a layer, and the observation that its policy gets. */
#include "plan/compress_impl.h"

static void add_needs(const struct wnw__plan_job *j, int32_t k, void (*needs)(const void *, wnw_needs *),
                      wnw_needs *sum)
{
    wnw_needs more = {0};
    if (needs)
        needs(k == WNW_PART_SCORER ? j->scorer_opts : j->policy->opts[k], &more);
    wnw__needs_merge(sum, &more);
}

wnw_needs wnw__job_contents_needs(const struct wnw__plan_job *j)
{
    wnw_needs needs = {0};
    add_needs(j, WNW_PART_CONTENTS, j->contents->part.needs, &needs);
    return needs;
}

wnw_needs wnw__job_select_needs(const struct wnw__plan_job *j)
{
    wnw_needs needs = {0};
    add_needs(j, WNW_PART_SELECTOR, j->selector->part.needs, &needs);
    add_needs(j, WNW_PART_CONTENTS, j->contents->part.needs, &needs);
    return needs;
}

wnw_needs wnw__job_gather_needs(const struct wnw__plan_job *j)
{
    wnw_needs needs = {0};
    add_needs(j, WNW_PART_SCORER, j->scorer->part.gather->needs, &needs);
    return needs;
}

/* What parts other than the scorer want to see of a layer while it is scored. */
static wnw_needs needs_besides(const struct wnw__plan_job *j)
{
    wnw_needs needs = {0};
    add_needs(j, WNW_PART_AGGREGATION, j->aggregation->part.needs, &needs);
    for (int32_t k = WNW_PART_SCORER + 1; k < WNW_N_PART_KINDS; k++)
        if (j->gathered[k])
            add_needs(j, k, j->policy->part[k].head.gather->needs, &needs);
    if (!j->all_layers) {
        const wnw_needs more = wnw__job_select_needs(j);
        wnw__needs_merge(&needs, &more);
    }
    return needs;
}

wnw_needs wnw__job_score_needs(const struct wnw__plan_job *j)
{
    const wnw_needs besides = needs_besides(j);
    wnw_needs needs = {0};
    add_needs(j, WNW_PART_SCORER, j->scorer->part.needs, &needs);
    wnw__needs_merge(&needs, &besides);
    return needs;
}

int wnw__job_window_heads(struct wnw__plan_job *j, int32_t il, bool *used)
{
    const wnw_observation known = {.il = il,
                                   .n_layer = j->src->shape.n_layer,
                                   .n_head = j->src->shape.n_head,
                                   .n_head_kv = j->src->shape.n_head_kv,
                                   .profile = j->profile};
    for (int32_t h = 0; h < j->src->shape.n_head; h++)
        j->heads[h] = true;
    if (j->aggregation->choose)
        WNW_TRY(wnw__part_status(
            &j->aggregation->part,
            j->aggregation->choose(j->policy->opts[WNW_PART_AGGREGATION], &known, j->heads)));
    const bool by_head = wnw__policy_has(j->policy, WNW_PART_SCORER, WNW_FLAG_WINDOW_BY_HEAD) &&
                         !(needs_besides(j).flags & WNW_NEED_WINDOW_ATTN);
    if (wnw__job_score_needs(j).flags & WNW_NEED_WINDOW_ATTN)
        for (int32_t h = 0; h < j->src->shape.n_head; h++)
            used[h] = used[h] || j->heads[h] || !by_head;
    return WNW_OK;
}

static int check_observation(const struct wnw__plan_job *j, const wnw_needs *needs,
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
        {WNW_NEED_QUERIES, obs->queries != NULL},
        {WNW_NEED_ROPE, obs->rope_theta != NULL},
        {WNW_NEED_SECOND_PASS, obs->pass2_max && obs->pass2_sum},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((needs->flags & rows[i].flag) && !rows[i].there)
            return wnw__fail(WNW_E_NOT_OBSERVED,
                             "%s needs an observation of layer %d that was not made (%s); declare the policy "
                             "before prefill",
                             wnw__policy_name(j->policy), obs->il,
                             wnw_need_name(__builtin_ctz(rows[i].flag)));
    return WNW_OK;
}

int wnw__job_adapt(const struct wnw__plan_job *j, const wnw_observation *seen, const wnw_needs *needs,
                   wnw_observation *obs)
{
    WNW_TRY(check_observation(j, needs, seen));
    *obs = *seen;
    obs->n_prefix = j->src->n_prefix;
    obs->budget = j->size.mean;
    obs->n_settled = j->src->layer(j->src, seen->il).n_settled;
    obs->gathered = j->gathered[WNW_PART_SCORER];
    obs->profile = j->profile;
    obs->perplexity = j->perplexity;
    return WNW_OK;
}

int wnw__job_gather(struct wnw__plan_job *j, int32_t k, const wnw_observation *obs)
{
    const wnw_part *part = &j->policy->part[k].head;
    const void *opts = k == WNW_PART_SCORER ? j->scorer_opts : j->policy->opts[k];
    return j->gathered[k] ? wnw__part_status(part, part->gather->visit(opts, obs, j->gathered[k])) : WNW_OK;
}
