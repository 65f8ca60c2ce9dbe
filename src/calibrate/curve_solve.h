/* SPDX-License-Identifier: MIT */
/*
 * How many entries every head should keep, from what its entries turned out to be worth. Paper: "Predicting
 * Future Utility: Global Combinatorial Optimization for Task-Agnostic KV Cache Eviction" (LU-KV, arXiv
 * 2602.08585).
 *
 * A head gives up its entries in the order of a scorer, worst first. The worth of the entry at each rank is known;
 * what a head loses is a sum over the last ranks, and in general not convex in their number. Its convex hull is:
 * the worths are replaced by non-increasing ones with the same sums at the corners of the hull. With those, taking
 * the smallest worth of the whole model away, again and again, is the best choice for every total.
 */
#ifndef WNW_CURVE_SOLVE_H
#define WNW_CURVE_SOLVE_H

#include "base/err.h"

/* Replaces worth[n], best rank first, by the slopes of the concave hull of its sums: neighbours that rise are
 * pooled to their mean. length is scratch of n. */
void wnw__curve_hull(double *worth, int32_t n, int32_t *length);

/* A head of n_entry entries. `worth` [n_worth] is of those that may go, best rank first, non-increasing; at least
 * n_least entries stay. */
struct wnw__curve_head {
    const double *worth;
    int32_t n_worth, n_entry, n_least;
};

/* Gives up entries until round(ratio[i] x all entries) are gone, halves to even, or none may go any more. ratio[n_ratio]
 * ascends. n_keep [n_ratio][n_head] become the counts. Of equal worths, that of the lower head goes first. E_NOMEM. */
int wnw__curve_share_out(const struct wnw__curve_head *heads, int32_t n_head, const double *ratio,
                         int32_t n_ratio, int32_t *n_keep);

#endif
