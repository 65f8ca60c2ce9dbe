/* SPDX-License-Identifier: MIT */
/* CompilerKV (arXiv 2602.08686): what its scorer, its gate and the calibration of its tables share. */
#ifndef WNW_COMPILER_H
#define WNW_COMPILER_H

#include "policy/policy.h"
#include "profile/profile.h"

/* ---- The tables, bins, the entropy of the window, norms of values (compiler_table.c) ---- */

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

/* ---- How many entries of a layer clear the threshold, and how many then stay (eq. 15 and 16; compiler_count.c) ----
 * The gate counts with it, and so do the trials that calibrate its thresholds. */

/* The number of scores of u[n] that are at or above tau once they are normalised; norm is a
 * wnw__score_norm. Where their sum is not above 0 every normalised score counts as 1. */
int32_t wnw__gate_above(const float *u, int32_t n, int32_t norm, double tau);

/* elastic: what stays of n entries if `above` of them clear the threshold: at most c, at least the part `floor` of
 * c. */
int32_t wnw__gate_elastic(int32_t above, int32_t n, int32_t c, double floor);

/* pooled: n_layer layers share n_layer x c entries in proportion to count[n_layer], the entries above their
 * thresholds, which becomes what stays of each. room[n_layer] are whole numbers: the entries that a layer
 * has. A layer keeps at least the part `floor` of c (or all its entries) and at most 4 c. Largest remainders
 * are rounded up, ties to the lower layer. */
void wnw__gate_pooled(const double *room, int32_t n_layer, int32_t c, double floor, int32_t *count);

/* ---- Whether tables serve a policy (compiler_fit.c) ----
 * They belong to a model, to a size and to the options of the parts that read them. */

/* What a table would be used for. */
struct wnw__table_use {
    const struct wnw__shape *model;
    double budget;    /* average entries per head */
    int32_t n_tokens; /* of the prompt; 0 = not known */
};
/* E_MISMATCH where the profile's table does not serve a part of the policy that reads it. A table that was only
 * found (wnw_profile_set_found) is left out instead: *without becomes a copy of the profile that lacks it, which
 * borrows all arrays and is freed with free(), and `warning` gets the reason. *without is NULL where there is
 * nothing to leave out. A table serves budgets from half to twice its own. The same holds for the budget as a share of the
 * prompt, compared with the prompts that made the table. The reason: thresholds are parts of the mean score, so what
 * clears them is a share of the prompt. A budget other than its own is noted in `warning` too. */
int wnw__table_fit(wnw_profile **without, const wnw_policy *p, const wnw_profile *profile,
                   const struct wnw__table_use *use, char *warning);

#endif
