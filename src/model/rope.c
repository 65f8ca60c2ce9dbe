/* SPDX-License-Identifier: MIT */
#include "model/rope.h"

#include <math.h>

struct wnw__rope wnw__rope_of_layer(const struct wnw__hparams *hp, int32_t il)
{
    if (wnw__layer_is_swa(hp, il) && hp->rope_freq_base_swa > 0.0f)
        return (struct wnw__rope){.base = hp->rope_freq_base_swa, .scale = hp->rope_freq_scale_swa};
    return (struct wnw__rope){.base = hp->rope_freq_base, .scale = hp->rope_freq_scale};
}

void wnw__rope_angles(const struct wnw__rope *r, int32_t n_rot, const float *factors, float *theta)
{
    /* ggml rounds the step between two pairs to float and multiplies repeatedly. The same is done here,
     * except that products are not rounded. */
    const double step = (double)powf(r->base, -2.0f / (float)n_rot);
    double angle = 1.0;
    for (int32_t i = 0; i < n_rot / 2; i++, angle *= step)
        theta[i] = (float)((double)r->scale * angle / (factors ? (double)factors[i] : 1.0));
}

void wnw__rope_theta(const struct wnw__hparams *hp, int32_t il, const float *factors, float *theta)
{
    const struct wnw__rope r = wnw__rope_of_layer(hp, il);
    wnw__rope_angles(&r, hp->n_rot, factors, theta);
}
