/* SPDX-License-Identifier: MIT */
/*
 * The grid that CompilerKV's thresholds live on: layer x bin of the prompt's entropy x bin of its perplexity.
 * A cell has number (layer * n_entropy + entropy bin) * n_ppl + perplexity bin.
 */
#ifndef WNW_CALIBRATE_RISK_GRID_H
#define WNW_CALIBRATE_RISK_GRID_H

#include "calibrate/bandit.h"

struct wnw__risk_grid {
    int32_t n_layer, n_entropy, n_ppl;
};

static inline int32_t wnw__risk_cell(const struct wnw__risk_grid *g, int32_t il, int32_t entropy, int32_t ppl)
{
    return (il * g->n_entropy + entropy) * g->n_ppl + ppl;
}

/* Writes mean[n_cell][n_action]: the means of b, drawn towards those of larger parts of the grid the fewer
 * rewards there are: (sum + k parent) / (n + k). The parents of a cell: four bins of entropy; all of them;
 * the layer; everything, which is not drawn anywhere. */
void wnw__risk_shrink(const struct wnw__risk_grid *g, const struct wnw__bandit *b, double k, double *mean);
/* Where the choice of a cell comes from; their names, NULL-terminated. */
enum wnw__risk_from { WNW_FROM_CELL, WNW_FROM_LAYER, WNW_FROM_ALL, WNW_N_FROM };
extern const char *const wnw__risk_from[];
/* Writes the best action of every cell to choice[n_cell] and to from[n_cell] whose prompts chose it: the cell's own where
 * there are `least` of them, else the layer's, else all. rule->mean is that of cells; layers and all go by their own
 * means. Without any reward it is the reference. */
void wnw__risk_choose(const struct wnw__risk_grid *g, const struct wnw__bandit *b,
                      const struct wnw__bandit_rule *rule, int64_t least, int32_t *choice, uint8_t *from);

/* ---- Bins, and which prompts are tried so that no bin is tried alone ---- */

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
