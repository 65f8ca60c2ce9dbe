/* SPDX-License-Identifier: MIT */
/* The angles of RoPE. Only rope.c knows the base and scale of a layer. */
#ifndef WNW_ROPE_H
#define WNW_ROPE_H

#include "model/arch/arch.h"

struct wnw__rope {
    float base, scale;
};
struct wnw__rope wnw__rope_of_layer(const struct wnw__hparams *hp, int32_t il);

/* Writes the angle of each pair in radians per position to theta[n_rot / 2]: scale x base^(-2 i / n_rot)
 * / factors[i], as ggml_rope_ext applies it. factors[n_rot / 2] may be NULL (1). */
void wnw__rope_angles(const struct wnw__rope *r, int32_t n_rot, const float *factors, float *theta);
/* The same for a layer of a model. */
void wnw__rope_theta(const struct wnw__hparams *hp, int32_t il, const float *factors, float *theta);

#endif
