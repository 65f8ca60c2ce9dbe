/* SPDX-License-Identifier: MIT */
#include "session/compact/turn.h"

#include "model/rope.h"

#include <math.h>

void wnw__turn_angles(const wnw_session *s, int32_t il, float *theta)
{
    const struct ggml_tensor *freqs = s->m->w.rope_freqs;
    wnw__rope_theta(&s->m->hp, il, freqs ? freqs->data : NULL, theta);
}

bool wnw__turns_halves(const wnw_session *s)
{
    return s->m->arch->rope_type == GGML_ROPE_TYPE_NEOX;
}

void wnw__turn_set(struct wnw__turn *t, int32_t delta)
{
    if (t->delta == delta)
        return;
    t->delta = delta;
    for (int32_t i = 0; i < t->n_pair; i++) {
        const double angle = (double)delta * (double)t->theta[i];
        t->cs[2 * i] = (float)cos(angle);
        t->cs[2 * i + 1] = (float)sin(angle);
    }
}

void wnw__turn_key(const struct wnw__turn *t, float *k)
{
    for (int32_t i = 0; i < t->n_pair; i++) {
        float *a = k + (t->neox ? i : 2 * i), *b = k + (t->neox ? i + t->n_pair : 2 * i + 1);
        const float x = *a, y = *b, c = t->cs[2 * i], s = t->cs[2 * i + 1];
        *a = c * x - s * y;
        *b = s * x + c * y;
    }
}
