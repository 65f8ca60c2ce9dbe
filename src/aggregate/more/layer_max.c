/* SPDX-License-Identifier: MIT */
/*
 * The highest score among all heads of a layer: all of its KV heads get one list of tokens, led by those that
 * some head scores highest. Tokens are matched by position. Cost O(H_q n).
 */
#include "aggregate/aggregate.h"

#include <math.h>

static void aggregate(const void *opts, const wnw_observation *obs, const float *head_score, int32_t n_row,
                      float *score, float *by_pos)
{
    (void)opts;
    for (int32_t p = 0; p < obs->n_past; p++)
        by_pos[p] = -INFINITY;
    for (int32_t h = 0; h < n_row; h++) {
        const int32_t ih = wnw__row_kv_head(obs, n_row, h);
        const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
        const float *row = head_score + (int64_t)h * obs->n;
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            by_pos[pos[i]] = row[i] > by_pos[pos[i]] ? row[i] : by_pos[pos[i]];
    }
    wnw__spread_by_position(obs, by_pos, score);
}

const wnw_aggregation wnw__aggregation_layer_max = {
    .part = {WNW_AGGREGATION_INIT, .name = "layer_max",
             .about = "Highest score among all heads of the layer, which then has one list of tokens.",
             .details = "`score = max_h s_h` over all heads of the layer, by position.\n\nCost O(H n).",
             .flags = WNW_FLAG_MATCHES_HEADS | WNW_FLAG_ONE_LIST},
    .scratch = wnw__by_position_scratch,
    .aggregate = aggregate,
};
