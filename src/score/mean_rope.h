/* SPDX-License-Identifier: MIT */
/* RoPE averaged over a run of positions: what a vector looks like on average from there. */
#ifndef WNW_SCORE_MEAN_ROPE_H
#define WNW_SCORE_MEAN_ROPE_H

#include "policy/part.h"

/* One pair of elements becomes (c x - s y, s x + c y). */
struct wnw__turn {
    double c, s;
};

/* Mean of the rotations by theta * t, t = first .. first + count - 1, count > 0. */
struct wnw__turn wnw__mean_turn(double theta, int32_t first, int32_t count);

/* Turns x[n_row][stride] along its rows or, with stride 1 and step n, along its columns: element i of the
 * head is x[i * step + k * stride], k < n_row. Elements behind obs->n_rot are left alone. */
void wnw__turn_rows(const wnw_observation *obs, int32_t first, int32_t count, float *x, int32_t n_row,
                    int32_t stride, int32_t step);

#endif
