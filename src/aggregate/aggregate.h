/* SPDX-License-Identifier: MIT */
/* What head aggregations share: the group of query heads that read one KV head, and one score per token for a whole layer. */
#ifndef WNW_AGGREGATE_H
#define WNW_AGGREGATE_H

#include "policy/part.h"

/* ---- Over the query heads of a KV head (group.c) ---- */

/* The options structs of such aggregations begin with this one. cross_head is a step of KVCompose (arXiv 2509.05165), which adds
 * the layer's mean to the scores of every KV head.
 *
 *     score_j += (1 / H_kv) sum over all KV heads i of score_i
 */
struct wnw__group_opts {
    int32_t cross_head;
};
#define WNW_OPTION_CROSS_HEAD                                                                           \
    {                                                                                                   \
        .name = "cross_head", .help = "add the mean over all KV heads of the layer, as KVCompose does", \
        .type = WNW_OPT_BOOL, .offset = offsetof(struct wnw__group_opts, cross_head)                    \
    }
/* Functions of the descriptor, for options structs that begin with struct wnw__group_opts. */
uint32_t wnw__group_flags(const void *opts);
size_t wnw__group_scratch(const void *opts, const wnw_observation *obs);
/* Adds the layer's mean to score[n_head_kv][n] in place, if cross_head is set. */
void wnw__add_cross_head(const void *opts, const wnw_observation *obs, float *score, float *scratch);

/* score[n_head_kv][n] = the highest of the group's rows in head_score[n_row][n]. */
void wnw__group_max(const wnw_observation *obs, const float *head_score, int32_t n_row, float *score);

/* ---- One score per token for a whole layer (by_position.c) ----
 * Heads need not hold the same tokens, so rows are put together by position; a token counts as 0 in a head that does not hold
 * it. */

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
