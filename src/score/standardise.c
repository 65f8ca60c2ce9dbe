/* SPDX-License-Identifier: MIT */
#include "score/score.h"

#include <math.h>

/* Sum of (score - centre), or of its square, over the entries between the ends; *count = their number. */
static double sum_of(const wnw_observation *obs, struct wnw__ends ends, const float *score, double centre,
                     bool square, int64_t *count)
{
    double sum = 0;
    *count = 0;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        int32_t first;
        const int32_t end = wnw__between_ends(obs, ih, ends, &first);
        for (int32_t i = first; i < end; i++) {
            const double x = (double)score[(int64_t)ih * obs->n + i] - centre;
            sum += square ? x * x : x;
        }
        *count += end - first;
    }
    return sum;
}

void wnw__standardise(const wnw_observation *obs, struct wnw__ends ends, float *score)
{
    int64_t count;
    const double sum = sum_of(obs, ends, score, 0, false, &count);
    const double mean = count > 0 ? sum / (double)count : 0;
    const double square = sum_of(obs, ends, score, mean, true, &count);
    const double deviation = count > 1 ? sqrt(square / (double)(count - 1)) : 0;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        int32_t first;
        const int32_t end = wnw__between_ends(obs, ih, ends, &first);
        for (int32_t i = first; i < end; i++) {
            float *s = &score[(int64_t)ih * obs->n + i];
            *s = deviation > 0 ? (float)(((double)*s - mean) / deviation) : 0;
        }
    }
}
