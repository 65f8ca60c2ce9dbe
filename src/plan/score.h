/* SPDX-License-Identifier: MIT */
/* Scores of one layer, as a policy's scorer and head aggregation make them. */
#ifndef WNW_SCORE_H
#define WNW_SCORE_H

#include "policy/policy.h"

/* Scores one layer as the policy says: scorer, aggregation, the scorer's last step. scorer_opts are used in
 * place of the policy's. score is [n_head_kv][n] with n of obs; room is scratch of wnw__score_room(..)
 * floats. */
size_t wnw__score_room(const struct wnw_policy *p, const void *scorer_opts, const wnw_observation *obs);
int wnw__score(const struct wnw_policy *p, const void *scorer_opts, const wnw_observation *obs, float *score,
               float *room);

/* The scores [n_head][n] of query heads, which the last wnw__score of this observation left in its room. */
const float *wnw__score_rows(const wnw_observation *obs, const float *room);

#endif
