/* SPDX-License-Identifier: MIT */
/*
 * The highest score among the query heads that read a KV head: an entry stays if any of them wants it. KVzip
 * (arXiv 2505.23416) does so, DefensiveKV with a floor (defensive.c). Cost O(H_q n).
 */
#include "method.h"

static void aggregate(const void *opts, const wnw_observation *obs, const float *head_score, int32_t n_row,
                      float *score, float *scratch)
{
    const int32_t group = n_row / obs->n_head_kv;
    (void)opts;
    (void)scratch;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *out = score + (int64_t)ih * obs->n;
        const float *rows = head_score + (int64_t)ih * group * obs->n;
        for (int32_t i = 0; i < obs->n; i++) {
            out[i] = i < obs->n_entry[ih] ? rows[i] : 0;
            for (int32_t g = 1; g < group && i < obs->n_entry[ih]; g++)
                out[i] = rows[(int64_t)g * obs->n + i] > out[i] ? rows[(int64_t)g * obs->n + i] : out[i];
        }
    }
}

extern const struct wnw__aggregation wnw__aggregation_group_max;
const struct wnw__aggregation wnw__aggregation_group_max = {
    .name = "group_max",
    .about = "Highest score among the query heads that read a KV head.",
    .paper = "",
    .details =
        "`score_j = max_h s_h` over the query heads of KV head j: an entry stays if any of them wants it.\n\n"
        "Cost O(H_q n).",
    .of_query_heads = true,
    .aggregate = aggregate,
};
