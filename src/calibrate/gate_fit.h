/* SPDX-License-Identifier: MIT */
/* Linear forms by ridge regression in closed form: moments of features and targets, then one solve for each head. */
#ifndef WNW_CALIBRATE_GATE_FIT_H
#define WNW_CALIBRATE_GATE_FIT_H

#include "base/err.h"

/* Of every row the entries of all pieces so far. A row is what has features of its own: a KV head with one target, or a
 * layer with a target for each of its heads. Sums of squares are of features and targets whose mean over the entries of
 * their piece is taken off. */
struct wnw__gate_fit {
    int32_t n_row, p, n_target;
    int64_t *n;     /* [n_row] entries */
    double *gram;   /* [n_row][p][p], the lower triangle */
    double *cross;  /* [n_row][n_target][p] of features and targets */
    double *sum;    /* [n_row][p] of features as they are */
    double *target; /* [n_row][n_target] sums of targets as they are */
};

/* *fit starts as {0}. The caller frees it, after a failure too. */
int wnw__gate_fit_new(struct wnw__gate_fit *fit, int32_t n_row, int32_t p, int32_t n_target);
void wnw__gate_fit_free(struct wnw__gate_fit *fit);
/* Adds the n entries of a piece to a row: features f[n][p], targets y[n_target][n]. Changes f and y. */
void wnw__gate_fit_add(struct wnw__gate_fit *fit, int32_t row, float *f, double *y, int32_t n);
/* Writes w[n_target][p] and b[n_target] of the row, for each target. Let G and r be the sums divided by the number of
 * entries, and D the square roots of G's diagonal. Then w = D^-1 (D^-1 G D^-1 + lambda I)^-1 D^-1 r. b makes the means of
 * predictions and targets the same. Features that do not vary get the weight 0. E_NOT_FINITE: sums are not finite.
 * E_NOMEM. */
int wnw__gate_fit_solve(const struct wnw__gate_fit *fit, int32_t row, double lambda, float *w, float *b);

#endif
