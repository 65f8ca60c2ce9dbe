/* SPDX-License-Identifier: MIT */
/*
 * The mean over the query heads that read a KV head: what most methods do with grouped queries.
 *
 *     score_j = (1 / G) sum of s_h over the G query heads h of KV head j
 *
 * aggregate.h has the formula of cross_head. gqa_bug takes the heads j, j + H_kv, j + 2 H_kv, ... in place of the
 * group's own, as the baselines in CompressKV's code (arXiv 2508.02401) do. Scores are not normalised first:
 * a head with more attention outside the window weighs more. Cost O(H_q n).
 */
#include "aggregate/aggregate.h"

struct opts {
    struct wnw__group_opts group;
    int32_t gqa_bug;
};

static void aggregate(const void *opts, const wnw_observation *obs, const float *head_score, int32_t n_row,
                      float *score, float *scratch)
{
    const struct opts *o = opts;
    const int32_t group = n_row / obs->n_head_kv;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *out = score + (int64_t)ih * obs->n;
        for (int32_t i = 0; i < obs->n; i++)
            out[i] = 0;
        for (int32_t g = 0; g < group; g++) {
            const int32_t h = o->gqa_bug ? ih + g * obs->n_head_kv : ih * group + g;
            const int32_t n_theirs = obs->n_entry[wnw__row_kv_head(obs, n_row, h)];
            const int32_t n = n_theirs < obs->n_entry[ih] ? n_theirs : obs->n_entry[ih];
            for (int32_t i = 0; i < n; i++)
                out[i] += head_score[(int64_t)h * obs->n + i];
        }
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            out[i] /= (float)group;
    }
    wnw__add_cross_head(opts, obs, score, scratch);
}

static const wnw_option options[] = {
    WNW_OPTION_CROSS_HEAD,
    {.name = "gqa_bug",
     .help = "average over foreign groups, as the baselines in CompressKV's code do",
     .type = WNW_OPT_BOOL,
     .offset = offsetof(struct opts, gqa_bug)},
    {0}};

const wnw_aggregation wnw__aggregation_group_mean = {
    .part = {WNW_AGGREGATION_INIT, .name = "group_mean",
             .about = "Mean over the query heads that read a KV head.",
             .details = "`score_j = (1/G) sum_h s_h` over the query heads of KV head j. Heads are not "
                        "normalised: one with "
                        "more attention outside the window weighs more.\n\n"
                        "`cross_head` adds the mean over all KV heads of the layer (KVCompose). `gqa_bug` "
                        "takes heads j, "
                        "j + H_kv, ... of foreign groups, as the baselines in CompressKV's code do.\n\n"
                        "Cost O(H_q n).",
             .options = options, .options_size = sizeof(struct opts), .flags = WNW_FLAG_QUERY_HEADS,
             .flags_of = wnw__group_flags},
    .scratch = wnw__group_scratch,
    .aggregate = aggregate,
};
