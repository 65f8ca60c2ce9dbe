/* SPDX-License-Identifier: MIT */
/* Scores of a recipe for an observation that a test made up. */
#ifndef WNW_TESTS_SCORING_H
#define WNW_TESTS_SCORING_H

#include "peek_plan.h"

/* score[n_head_kv][n] of the recipe's scorer and head aggregation; a status. Fails the test if it does not
 * parse. */
int try_scorer(const char *recipe, const wnw_observation *obs, float *score);
/* The same, and fails the test unless it works. */
void run_scorer(const char *recipe, const wnw_observation *obs, float *score);

#endif
