/* SPDX-License-Identifier: MIT */
/* CompilerKV's scorer, its gate and the calibration of its tables share this code: table look-up, bins, the
 * entropy of the window, norms of values. */
#ifndef WNW_COMPILER_TABLE_H
#define WNW_COMPILER_TABLE_H

#include "policy/part.h"
#include "profile/profile.h"

/* The values of the option that says where the table comes from. */
enum wnw__table { WNW_TABLE_PROFILE, WNW_TABLE_NONE };
extern const char *const wnw__table_choices[];

/* Weight of query head h, and threshold of a layer. Where the table has another number of layers, rows are
 * mapped by relative depth and interpolated. */
double wnw__table_weight(const struct wnw__compiler_table *t, int32_t il, int32_t n_layer, int32_t h,
                         int32_t n_head);
double wnw__table_tau(const struct wnw__compiler_table *t, int32_t il, int32_t n_layer, int32_t entropy_bin,
                      int32_t ppl_bin);

/* The bin of x, 0 .. n_bin - 1: the number of edges at or below x, where edge[n_bin - 1] ascends. If x is not
 * finite it is the last bin, which has the highest risk, and *odd becomes true; otherwise *odd stays. */
int32_t wnw__bin(const double *edge, int32_t n_bin, double x, bool *odd);

/* - sum p ln p over p = mass[n] / total, in nats; 0 ln 0 = 0. */
double wnw__entropy(const double *mass, int64_t n, double total);

/* Adds the attention of the last n_row queries, summed over query heads and queries, to mass[n_past] by
 * position. The total grows by n_head x n_row. */
void wnw__window_mass(const wnw_observation *obs, int32_t n_row, double *mass);

/* rho[n_entry] of KV head ih: the L2 norm of every value over the mean of these norms + 1e-8 (eq. 7). */
void wnw__relative_norms(const wnw_observation *obs, int32_t ih, float *rho);

#endif
