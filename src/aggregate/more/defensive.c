/* SPDX-License-Identifier: MIT */
/*
 * The worst case over a group with a floor. Paper: "Taming the Fragility of KV Cache Eviction in LLM
 * Inference" (DefensiveKV, arXiv 2510.13334). With m_j[i] = max of s_h[i] over the query heads of KV head j:
 *
 *     score_j[i] = max( m_j[i], mean of m_j over the head's entries )
 * The floor is a prior: an entry that no query looked at is not worth less than the average. The mean runs
 * over the entries before the window; the window's entries have a mean of their own, which only matters where
 * a small size shrinks the window. In the paper s_h is itself a maximum over the window's queries, which is
 * snapkv:agg=max here. Cost O(H_q n).
 */
#include "aggregate/aggregate.h"
#include "method/window.h"

struct opts {
    int32_t window;
};

static void aggregate(const void *opts, const wnw_observation *obs, const float *head_score, int32_t n_row,
                      float *score, float *scratch)
{
    const struct opts *o = opts;
    (void)scratch;
    wnw__group_max(obs, head_score, n_row, score);
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *m = score + (int64_t)ih * obs->n;
        const int32_t n_old = wnw__window_n_old(obs, ih, o->window);
        wnw__floor_at_mean(m, n_old);
        wnw__floor_at_mean(m + n_old, obs->n_entry[ih] - n_old);
    }
}

static const wnw_option options[] = {
    {.name = "window",
     .help = "last prompt tokens, which have a mean of their own; as the scorer's",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, window),
     .def = 32,
     .min = 0,
     .max = 4096},
    {0}};

const wnw_aggregation wnw__aggregation_defensive = {
    .part = {WNW_AGGREGATION_INIT, .name = "defensive",
             .about = "Highest score of the group, and never less than the head's mean.",
             .paper = "DefensiveKV, arXiv 2510.13334",
             .details =
                 "`m_j[i] = max_h s_h[i]` over the query heads of KV head j, `score_j[i] = max(m_j[i], "
                 "mean of m_j)`: "
                 "what was never looked at is worth the average. The paper's score is the maximum over "
                 "the window's "
                 "queries too: `snapkv:agg=max+defensive`.\n\n"
                 "Cost O(H_q n).",
             .options = options, .options_size = sizeof(struct opts), .flags = WNW_FLAG_QUERY_HEADS},
    .aggregate = aggregate,
};
