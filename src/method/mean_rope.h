/* SPDX-License-Identifier: MIT */
/* RoPE averaged over a run of positions: the mean of a vector turned to each of them. */
#ifndef WNW_POLICY_MEAN_ROPE_H
#define WNW_POLICY_MEAN_ROPE_H

#include "policy/part.h"

/* Rows of the option table of scorers that expect queries at positions after the prompt; the options struct
 * has the members n_sink and n_future. */
#define WNW_OPTION_N_SINK(opts)                                                                   \
    {                                                                                             \
        .name = "n_sink", .help = "first tokens that always stay and whose queries do not count", \
        .type = WNW_OPT_INT, .offset = offsetof(opts, n_sink), .def = 4, .min = 0, .max = 65536   \
    }
#define WNW_OPTION_N_FUTURE(opts)                                                                     \
    {                                                                                                 \
        .name = "n_future", .help = "positions after the prompt whose queries are expected",          \
        .type = WNW_OPT_INT, .offset = offsetof(opts, n_future), .def = 512, .min = 1, .max = 1 << 20 \
    }

/* One pair of elements becomes (c x - s y, s x + c y). */
struct wnw__turn {
    double c, s;
};

/* Mean of the rotations by theta * t, t = first .. first + count - 1, count > 0. */
struct wnw__turn wnw__mean_turn(double theta, int32_t first, int32_t count);

/* Turns x[n_row][stride] along its rows or, with stride 1 and step n, along its columns: element i of the
 * head is x[i * step + k * stride], k < n_row. Elements after obs->n_rot are left alone. */
void wnw__turn_rows(const wnw_observation *obs, int32_t first, int32_t count, float *x, int32_t n_row,
                    int32_t stride, int32_t step);

#endif
