/* SPDX-License-Identifier: MIT */
/* Expected attention: a scorer of its own, and one of the numbers from which gates predict scores. */
#ifndef WNW_EXPECTED_ATTENTION_H
#define WNW_EXPECTED_ATTENTION_H

#include "policy/part.h"

enum wnw__expected_stats { WNW_STATS_PROMPT, WNW_STATS_PROFILE };
struct wnw__expected_opts {
    int32_t n_sink;
    int32_t n_future;
    int32_t covariance;
    int32_t vnorm;
    double epsilon;
    int32_t stats; /* enum wnw__expected_stats */
};
/* Floats of scratch memory. */
size_t wnw__expected_scratch(const wnw_observation *obs);
/* Fills score[n_head][n] as the scorer does. Needs keys, values with vnorm, and the statistics of queries. */
int wnw__expected_attention(const struct wnw__expected_opts *o, const wnw_observation *obs, float *score,
                            float *scratch);

#endif
