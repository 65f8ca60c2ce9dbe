/* SPDX-License-Identifier: MIT */
/* How many entries of a layer clear CompilerKV's threshold, and how many then stay (arXiv 2602.08686, eq. 15
 * and 16). The gate counts with it, and so do the trials that calibrate its thresholds. */
#ifndef WNW_GATE_COUNT_H
#define WNW_GATE_COUNT_H

#include "policy/part.h"

/* The number of scores of u[n] that are at or above tau once they are normalised; norm is a
 * wnw__score_norm. Where their sum is not above 0 every normalised score counts as 1. */
int32_t wnw__gate_above(const float *u, int32_t n, int32_t norm, double tau);

/* elastic: what stays of n entries of which `above` clear the threshold: at most c, at least the part
 * `floor` of c. */
int32_t wnw__gate_elastic(int32_t above, int32_t n, int32_t c, double floor);

/* pooled: n_layer layers share n_layer x c entries in proportion to count[n_layer], the entries above their
 * thresholds, which becomes what stays of each. room[n_layer] are whole numbers: the entries that a layer
 * has. A layer keeps at least the part `floor` of c (or all its entries) and at most 4 c. Largest remainders
 * are rounded up, ties to the lower layer. */
void wnw__gate_pooled(const double *room, int32_t n_layer, int32_t c, double floor, int32_t *count);

#endif
