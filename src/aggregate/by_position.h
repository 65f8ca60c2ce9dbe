/* SPDX-License-Identifier: MIT */
/* One score per token for a whole layer. Heads need not hold the same tokens, so rows are put together by
 * position; a token counts as 0 in a head that does not hold it. */
#ifndef WNW_AGGREGATE_BY_POSITION_H
#define WNW_AGGREGATE_BY_POSITION_H

#include "policy/part.h"

/* The KV head to whose entries row h of head_score[n_row][n] belongs. */
static inline int32_t wnw__row_kv_head(const wnw_observation *obs, int32_t n_row, int32_t h)
{
    return h / (n_row / obs->n_head_kv);
}

/* The `scratch` function of descriptors: room for by_pos. */
size_t wnw__by_position_scratch(const void *opts, const wnw_observation *obs);

/* by_pos[n_past] = mean over the rows h with used[h]; used[n_row] NULL = all rows. */
void wnw__mean_by_position(const wnw_observation *obs, const float *head_score, int32_t n_row,
                           const bool *used, float *by_pos);

/* score[n_head_kv][n] = by_pos at the position of every entry. */
void wnw__spread_by_position(const wnw_observation *obs, const float *by_pos, float *score);

#endif
