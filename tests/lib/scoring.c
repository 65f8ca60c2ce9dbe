/* SPDX-License-Identifier: MIT */
#include "asserts.h"

#include <stdlib.h>

#include "peek_plan.h"
#include "plans.h"
#include "scoring.h"

const float *row_keys(const wnw_observation *obs, int32_t ih)
{
    const struct score_rows *r = obs->source;
    return r->k + (int64_t)ih * obs->n * obs->n_embd_head;
}

const float *row_values(const wnw_observation *obs, int32_t ih)
{
    const struct score_rows *r = obs->source;
    return r->v + (int64_t)ih * obs->n * obs->n_embd_head;
}

int try_scorer(const char *recipe, const wnw_observation *obs, float *score)
{
    wnw_policy *p = test_policy(recipe);
    const void *opts = p->opts[WNW_PART_SCORER];
    float *room = malloc((wnw__score_room(p, opts, obs) + 1) * sizeof *room);
    assert_non_null(room);
    const int rc = wnw__score(p, opts, obs, score, room);
    free(room);
    wnw_policy_free(p);
    return rc;
}

int try_scores(const char *recipe, const wnw_observation *obs, float *score)
{
    wnw_policy *policy = test_policy(recipe);
    const wnw_scorer *s = &policy->part[WNW_PART_SCORER].scorer;
    const void *opts = policy->opts[WNW_PART_SCORER];
    const size_t n = s->scratch(opts, obs);
    float *scratch = malloc((n + 1) * sizeof *scratch);
    assert_non_null(scratch);
    scratch[n] = 12345; /* nothing is written after what was asked for */
    const int rc = s->score(opts, obs, score, scratch);
    assert_cmp(scratch[n], ==, 12345.0f);
    free(scratch);
    wnw_policy_free(policy);
    return rc;
}

void run_scorer(const char *recipe, const wnw_observation *obs, float *score)
{
    if (try_scorer(recipe, obs, score) != WNW_OK)
        fail_msg("%s: %s", recipe, wnw_last_error());
}

int64_t run_layer_budget(const char *recipe, const wnw_layer_problem *problem, int32_t *n_keep)
{
    int32_t in_order[64];
    wnw_policy *p = test_policy(recipe);
    char warning[256] = "";
    wnw_layer_problem with = *problem;
    assert_cmp(problem->n_layer, <=, 64);
    for (int32_t i = 0; i < 64; i++)
        in_order[i] = i;
    with.il = with.il ? with.il : in_order;
    assert_ok(p->part[WNW_PART_LAYER_BUDGET].layer.allocate(p->opts[WNW_PART_LAYER_BUDGET], &with, n_keep,
                                                            warning));
    wnw_policy_free(p);
    int64_t sum = 0;
    for (int32_t l = 0; l < problem->n_layer; l++)
        sum += n_keep[l];
    return sum;
}
