/* SPDX-License-Identifier: MIT */
/* Scores of a recipe for an observation that a test made up. */
#ifndef WNW_TESTS_SCORING_H
#define WNW_TESTS_SCORING_H

#include "peek_plan.h"

/* Keys and values of an observation whose .source is &(struct score_rows), whose .keys is row_keys and whose .values is
 * row_values. */
struct score_rows {
    const float *k, *v; /* [n_head_kv][n][n_embd_head] */
};
const float *row_keys(const wnw_observation *obs, int32_t ih);
const float *row_values(const wnw_observation *obs, int32_t ih);

/* score[n_head_kv][n] of the recipe's scorer and head aggregation; a status. Fails the test if it does not
 * parse. */
int try_scorer(const char *recipe, const wnw_observation *obs, float *score);
/* The scorer's own scores, before any aggregation: of query heads where it scores those. Fails the test if the scorer
 * writes beyond the memory that it asked for. A status. */
int try_scores(const char *recipe, const wnw_observation *obs, float *score);
/* try_scorer, and fails the test unless it works. */
void run_scorer(const char *recipe, const wnw_observation *obs, float *score);

/* Sets n_keep[n_layer] to the counts of the recipe's layer budget and returns their sum; fails the test unless it works. The
 * layers are the model's first ones where the problem does not say. */
int64_t run_layer_budget(const char *recipe, const wnw_layer_problem *problem, int32_t *n_keep);

#endif
