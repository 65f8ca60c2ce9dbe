/* SPDX-License-Identifier: MIT */
/* A policy's score over the share that is removed: area under the curve, and how much can go at a given loss. */
#ifndef WNW_EVAL_CURVE_H
#define WNW_EVAL_CURVE_H

#include "eval/results/table.h"

enum { EVAL_MAX_POINTS = 65, EVAL_LEAST_RATIOS = 3, EVAL_N_LOSSES = 4 };
extern const double eval_losses[EVAL_N_LOSSES]; /* 0.01, 0.05, 0.1, 0.2 */

/* A policy with a type of cache, over its sizes. */
struct eval_curve {
    int32_t first;                 /* row of the block: its first size */
    int32_t row[EVAL_MAX_POINTS];  /* [n]: row of each point; -1 for the full cache's */
    double r[EVAL_MAX_POINTS];     /* [n] share removed, ascending from 0 */
    double score[EVAL_MAX_POINTS]; /* [n] points; the mean over informative tasks */
    double loss[EVAL_MAX_POINTS];  /* [n] mean relative loss of these tasks */
    int32_t n;                     /* 0 if there is no full cache */
    double auc, auc_rel,
        auc_one; /* over what was measured; per cent of the full cache; with a point (1, 0) */
    double tolerance[EVAL_N_LOSSES]; /* share that can be removed at each loss; INFINITY: never reached */
    bool has_auc;                    /* there are EVAL_LEAST_RATIOS ratios in addition to the full cache */
};

/* Curves of a block in the order of its rows; the caller frees *out. Returns false if memory runs out. */
bool eval_curves_make(struct eval_curve **out, int32_t *n, const struct eval_tables *t,
                      const struct eval_block *b);

#endif
