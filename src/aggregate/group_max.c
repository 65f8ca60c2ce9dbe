/* SPDX-License-Identifier: MIT */
/*
 * The highest score among the query heads that read a KV head: an entry stays if any of them wants it. KVzip
 * (arXiv 2505.23416) does so, DefensiveKV with a floor (defensive.c). Cost O(H_q n).
 */
#include "aggregate/aggregate.h"

static void aggregate(const void *opts, const wnw_observation *obs, const float *head_score, int32_t n_row,
                      float *score, float *scratch)
{
    wnw__group_max(obs, head_score, n_row, score);
    wnw__add_cross_head(opts, obs, score, scratch);
}

static const wnw_option options[] = {WNW_OPTION_CROSS_HEAD, {0}};

const wnw_aggregation wnw__aggregation_group_max = {
    .part = {WNW_AGGREGATION_INIT, .name = "group_max",
             .about = "Highest score among the query heads that read a KV head.",
             .details = "`score_j = max_h s_h` over the query heads of KV head j: an entry stays if any of "
                        "them wants it. "
                        "`cross_head` adds the mean over all KV heads of the layer (KVCompose).\n\n"
                        "Cost O(H_q n).",
             .options = options, .options_size = sizeof(struct wnw__group_opts),
             .flags = WNW_FLAG_QUERY_HEADS, .flags_of = wnw__group_flags},
    .scratch = wnw__group_scratch,
    .aggregate = aggregate,
};
