/* SPDX-License-Identifier: MIT */
/* The common part of aggregations over the query heads of a KV head. */
#ifndef WNW_AGGREGATE_GROUP_H
#define WNW_AGGREGATE_GROUP_H

#include "policy/part.h"

/* Their options structs begin with this one. cross_head is a step of KVCompose (arXiv 2509.05165), which adds
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

#endif
