/* SPDX-License-Identifier: MIT */
/* Shared arithmetic of counts: rounding, sharing out, protected entries. */
#ifndef WNW_COUNT_H
#define WNW_COUNT_H

#include "policy/part.h"

/* x as a whole number. */
int32_t wnw__round_count(double x, wnw_rounding rounding);

/* Shares total out over n parts in proportion to weight[n] >= 0 (equally where all are 0): out[n] are whole
 * numbers up to `most` that add up to the total, as far as n x most allows. What is over `most` goes to the
 * others in proportion; rounding is by largest fraction, lower index first. */
void wnw__share_out(const double *weight, int32_t n, int64_t total, int32_t most, int32_t *out);

/* Hands out `missing` entries to n rows that keep n_keep[n] of n_entry[n], one at a time to the one with the
 * largest fraction[n] (lower index first), which then counts 1 less, as long as any has room. */
void wnw__hand_out(const int32_t *n_entry, int32_t n, int64_t missing, float *fraction, int32_t *n_keep);

/* Copies scores of a head's n_entry entries that are neither protected nor among the n_skip best others;
 * returns how many. */
int32_t wnw__candidates(const float *score, int32_t n_entry, wnw_protected prot, int32_t n_skip, float *out);

/* Limits protected entries to the n that exist: the last ones go before the first ones. */
wnw_protected wnw__protected_clamp(wnw_protected p, int32_t n);
/* Leaves room for chosen entries beside protected ones: of n_keep the window takes min(n_keep - 1, max(8,
 * n_keep / 4)) at most, the sinks what is left. */
wnw_protected wnw__protected_make_room(wnw_protected p, int32_t n_keep);
/* Makes protected entries fit into n_keep, with room for chosen ones. Unchanged if they fit. */
wnw_protected wnw__protected_shrink(wnw_protected p, int32_t n_keep);
/* What the size leaves of n_row rows together, whose lengths are n_entry[n_row] <= p->n. Rounded once, so
 * that it is exact where n_row times a rounded count is not. Model scope. */
int32_t wnw__count_together(const wnw_layer_problem *p, const int32_t *n_entry, int32_t n_row);

#endif
