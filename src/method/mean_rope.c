/* SPDX-License-Identifier: MIT */
#include "method/mean_rope.h"

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

/* Rotations whose angles are known at once. */
enum { TURNS = 64 };
struct turns {
    double c[TURNS], s[TURNS];
    int32_t n;
};

/* Turns pairs (a[i * apart], b[i * apart]) of n_row rows, row by row: neighbours in memory. `apart` is known at compile time. */
static inline void turn_along(const struct turns *t, float *a, float *b, const int32_t apart, int32_t n_row,
                              int32_t stride)
{
    for (int32_t k = 0; k < n_row; k++, a += stride, b += stride)
        for (int32_t i = 0; i < t->n; i++) {
            const double u = (double)a[i * apart], v = (double)b[i * apart];
            a[i * apart] = (float)(t->c[i] * u - t->s[i] * v);
            b[i * apart] = (float)(t->s[i] * u + t->c[i] * v);
        }
}

/* Turns the pair at a and b of n_row rows by the i-th rotation. */
static void turn_one(const struct turns *t, int32_t i, float *a, float *b, int32_t n_row, int32_t stride)
{
    for (int32_t k = 0; k < n_row; k++, a += stride, b += stride) {
        const double u = (double)*a, v = (double)*b;
        *a = (float)(t->c[i] * u - t->s[i] * v);
        *b = (float)(t->s[i] * u + t->c[i] * v);
    }
}

void wnw__turn_rows(const wnw_observation *obs, int32_t first, int32_t count, float *x, int32_t n_row,
                    int32_t stride, int32_t step)
{
    const int32_t n_pair = obs->n_rot / 2;
    struct turns t;
    for (int32_t at = 0; at < n_pair; at += TURNS) {
        t.n = n_pair - at < TURNS ? n_pair - at : TURNS;
        for (int32_t i = 0; i < t.n; i++) {
            const struct wnw__turn turn = wnw__mean_turn((double)obs->rope_theta[at + i], first, count);
            t.c[i] = turn.c;
            t.s[i] = turn.s;
        }
        if (step == 1 && obs->rope_neox)
            turn_along(&t, x + at, x + at + n_pair, 1, n_row, stride);
        else if (step == 1)
            turn_along(&t, x + 2 * at, x + 2 * at + 1, 2, n_row, stride);
        for (int32_t i = 0; i < t.n && step != 1; i++) {
            const int32_t a = obs->rope_neox ? at + i : 2 * (at + i), b = obs->rope_neox ? a + n_pair : a + 1;
            turn_one(&t, i, x + (int64_t)a * step, x + (int64_t)b * step, n_row, stride);
        }
    }
}
