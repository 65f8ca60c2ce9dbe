/* SPDX-License-Identifier: MIT */
#include "aggregate/aggregate.h"

size_t wnw__by_position_scratch(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n_past;
}

void wnw__mean_by_position(const wnw_observation *obs, const float *head_score, int32_t n_row,
                           const bool *used, float *by_pos)
{
    int32_t n_used = 0;
    for (int32_t p = 0; p < obs->n_past; p++)
        by_pos[p] = 0;
    for (int32_t h = 0; h < n_row; h++) {
        const int32_t ih = wnw__row_kv_head(obs, n_row, h);
        const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
        const float *row = head_score + (int64_t)h * obs->n;
        if (used && !used[h])
            continue;
        n_used++;
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            by_pos[pos[i]] += row[i];
    }
    for (int32_t p = 0; p < obs->n_past && n_used > 0; p++)
        by_pos[p] /= (float)n_used;
}

void wnw__spread_by_position(const wnw_observation *obs, const float *by_pos, float *score)
{
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
        float *out = score + (int64_t)ih * obs->n;
        for (int32_t i = 0; i < obs->n; i++)
            out[i] = i < obs->n_entry[ih] ? by_pos[pos[i]] : 0;
    }
}
