/* SPDX-License-Identifier: MIT */
/* What CompilerKV's scorer and gate share: looking up its tables, its bins, the entropy of the window. */
#ifndef WNW_COMPILER_TABLE_H
#define WNW_COMPILER_TABLE_H

#include "policy/part.h"
#include "profile/profile.h"

/* Options of both by these names. */
enum wnw__table { WNW_TABLE_PROFILE, WNW_TABLE_NONE };
extern const char *const wnw__table_choices[];

/* How a table is going to be used. */
struct wnw__table_use {
    const char *owner; /* for messages */
    int32_t window;
    double budget; /* average entries per head */
    bool force;    /* also if it was made for another model */
};

/* E_MISMATCH where model, window or budget (by more than a factor of 2) are others than the table's. A
 * budget that is only near goes to `warning` (wnw__warn), or where that is NULL to the log. */
int wnw__table_check(const struct wnw__compiler_table *t, const struct wnw__table_use *use, char *warning);

/* Rows of another depth are mapped by relative depth and interpolated. */
double wnw__table_weight(const struct wnw__compiler_table *t, int32_t il, int32_t n_layer, int32_t h,
                         int32_t n_head);
double wnw__table_tau(const struct wnw__compiler_table *t, int32_t il, int32_t n_layer, int32_t entropy_bin,
                      int32_t ppl_bin);

/* Number of edges at or below x: edge[n_bin - 1] ascending. The last bin, which is the one of highest risk,
 * where x is not finite; *odd says so then and is left alone else. */
int32_t wnw__bin(const double *edge, int32_t n_bin, double x, bool *odd);

/* - sum p ln p over p = mass[n] / total, in nats; 0 ln 0 = 0. */
double wnw__entropy(const double *mass, int64_t n, double total);

/* Adds the attention of the last n_row queries, summed over heads and queries, to mass[n_past] by position:
 * the total grows by n_head x n_row. */
void wnw__window_mass(const wnw_observation *obs, int32_t n_row, double *mass);

#endif
