/* SPDX-License-Identifier: MIT */
/* Bins of a prompt's risk, and which prompts are tried so that no bin is tried alone. */
#ifndef WNW_CALIBRATE_RISK_BINS_H
#define WNW_CALIBRATE_RISK_BINS_H

#include "base/err.h"

/* Writes the n_bin - 1 edges that cut x[n], n >= 1, at its quantiles i / n_bin (position q (n - 1), straight
 * lines between). Edges are float32 numbers, each above the one before by at least 1e-6 of its size. x is
 * sorted. */
void wnw__risk_edges(double *x, int32_t n, int32_t n_bin, double *edge);
/* The median of x[n], which is sorted. */
double wnw__risk_median(double *x, int32_t n);
/* Chooses among n prompts that fall into cell[n] of n_cell: in an order drawn from the seed, the first `most`
 * of each cell. keep[n] becomes true for them. E_NOMEM. */
int wnw__risk_stratify(const int32_t *cell, int32_t n, int32_t n_cell, int32_t most, int32_t seed,
                       bool *keep);

#endif
