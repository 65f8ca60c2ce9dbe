/* SPDX-License-Identifier: MIT */
/*
 * The mean over all heads of a layer: one list of tokens for all of its KV heads, as TOVA has (arXiv
 * 2401.06104). The mean is over query heads where the scorer scores those, else over KV heads. Tokens are
 * matched by position, because an earlier compression may have left different entries in the heads. Cost
 * O(H_q n).
 */
#include "aggregate/aggregate.h"

static void aggregate(const void *opts, const wnw_observation *obs, const float *head_score, int32_t n_row,
                      float *score, float *by_pos)
{
    (void)opts;
    wnw__mean_by_position(obs, head_score, n_row, NULL, by_pos);
    wnw__spread_by_position(obs, by_pos, score);
}

const wnw_aggregation wnw__aggregation_layer_mean = {
    .part = {WNW_AGGREGATION_INIT, .name = "layer_mean",
             .about = "Mean over all heads of the layer, which then has one list of tokens.",
             .paper = "TOVA, arXiv 2401.06104",
             .details = "`score = (1/H) sum_h s_h` over all heads of the layer, by position: every KV head "
                        "keeps the same "
                        "tokens, so that one list per layer is enough.\n\nCost O(H n).",
             .flags = WNW_FLAG_MATCHES_HEADS | WNW_FLAG_ONE_LIST},
    .scratch = wnw__by_position_scratch,
    .aggregate = aggregate,
};
