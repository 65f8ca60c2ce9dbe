/* SPDX-License-Identifier: MIT */
#include "aggregate/aggregate.h"

uint32_t wnw__group_flags(const void *opts)
{
    return ((const struct wnw__group_opts *)opts)->cross_head ? WNW_FLAG_MATCHES_HEADS : 0;
}

size_t wnw__group_scratch(const void *opts, const wnw_observation *obs)
{
    return ((const struct wnw__group_opts *)opts)->cross_head ? (size_t)obs->n_past : 0;
}

void wnw__add_cross_head(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    if (!((const struct wnw__group_opts *)opts)->cross_head)
        return;
    wnw__mean_by_position(obs, score, obs->n_head_kv, NULL, scratch);
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            score[(int64_t)ih * obs->n + i] += scratch[obs->pos[(int64_t)ih * obs->n + i]];
}

void wnw__group_max(const wnw_observation *obs, const float *head_score, int32_t n_row, float *score)
{
    const int32_t group = n_row / obs->n_head_kv;
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
