/* SPDX-License-Identifier: MIT */
#include "policy/mean_rope.h"

#include <math.h>

struct wnw__turn wnw__mean_turn(double theta, int32_t first, int32_t count)
{
    /* A geometric sum: the middle angle, shortened by sin(count theta / 2) / (count sin(theta / 2)). Near a
     * full turn per position numerator and denominator vanish together and all angles are the same. */
    const double half = sin(theta / 2), middle = theta * (first + (count - 1) / 2.0);
    if (fabs(half) < 1e-9)
        return (struct wnw__turn){.c = cos(theta * first), .s = sin(theta * first)};
    const double length = sin(count * theta / 2) / (count * half);
    return (struct wnw__turn){.c = length * cos(middle), .s = length * sin(middle)};
}

void wnw__turn_rows(const wnw_observation *obs, int32_t first, int32_t count, float *x, int32_t n_row,
                    int32_t stride, int32_t step)
{
    const int32_t n_pair = obs->n_rot / 2;
    for (int32_t i = 0; i < n_pair; i++) {
        const struct wnw__turn t = wnw__mean_turn((double)obs->rope_theta[i], first, count);
        float *a = x + (int64_t)(obs->rope_neox ? i : 2 * i) * step;
        float *b = x + (int64_t)(obs->rope_neox ? i + n_pair : 2 * i + 1) * step;
        for (int32_t k = 0; k < n_row; k++, a += stride, b += stride) {
            const double u = (double)*a, v = (double)*b;
            *a = (float)(t.c * u - t.s * v);
            *b = (float)(t.s * u + t.c * v);
        }
    }
}
