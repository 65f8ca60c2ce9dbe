/* SPDX-License-Identifier: MIT */
/* Scores of one layer, as a policy's scorer and head aggregation make them. */
#ifndef WNW_SCORE_H
#define WNW_SCORE_H

#include "policy/policy.h"

/* Scores of one layer as the policy wants them: scorer, aggregation, the scorer's last step. scorer_opts: in
 * place of the policy's. score[n_head_kv][n]; room[wnw__score_room(..)] floats. */
size_t wnw__score_room(const struct wnw_policy *p, const void *scorer_opts, const wnw_observation *obs);
int wnw__score(const struct wnw_policy *p, const void *scorer_opts, const wnw_observation *obs, float *score,
               float *room);

/* Scores of the query heads as the last wnw__score of this observation left them in its room: [n_head][n]. */
const float *wnw__score_rows(const wnw_observation *obs, const float *room);

#endif
