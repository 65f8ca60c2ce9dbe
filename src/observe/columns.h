/* SPDX-License-Identifier: MIT */
/*
 * Recorder of what every cached entry receives from all queries: the sum and the maximum, over the queries
 * of a pass, of the float32 attention probabilities in the entry's column, per query head. The matrix itself
 * never exists: a sweep over the rows knows each query's softmax (its maximum m and 1 / l; the own attention
 * has both), a second one computes q . k again, tile by tile, and adds up exp(s - m) / l along the columns.
 *
 *     sum[h][i] += sum_t p(h,t,i)    max[h][i] = max(max[h][i], max_t p(h,t,i))    p(h,t,i) = exp(s - m) / l
 *
 * A column is added up by one thread and in the order of the queries, so the result does not depend on the
 * number of threads. Cost per query, head and visible entry: one product of d terms and one exponential,
 * i.e. a little over half of what the attention itself takes.
 */
#ifndef WNW_COLUMNS_H
#define WNW_COLUMNS_H

#include "forward/recorder.h"

struct wnw__range {
    int32_t from, to; /* from <= i < to */
};

/* Stored entries that a restricted softmax runs over: two ranges, in ascending order and apart. */
#define WNW_COLUMN_RANGES 2

/* What is recorded of one layer in place of everything. May change between passes. */
struct wnw__columns_part {
    float *sum, *max; /* [n_head][n] where the numbers go; NULL = not wanted */
    int64_t n;
    /* [n_head_kv] entries whose columns are added up; NULL = all, those of the new tokens included. */
    const struct wnw__range *columns;
    /* [n_head_kv][WNW_COLUMN_RANGES] stored entries that the softmax runs over, besides those from own[ih]
     * on, up to the query's own. NULL = the attention's softmax, over everything. */
    const struct wnw__range (*seen)[WNW_COLUMN_RANGES];
    const int32_t *own; /* [n_head_kv] */
};

struct wnw__columns;
/* parts [n_layer], borrowed; NULL = everything, to the numbers that the cache keeps with its entries. */
int wnw__columns_new(struct wnw__columns **out, const struct wnw__record_shape *shape,
                     const struct wnw__columns_part *parts);
void wnw__columns_free(struct wnw__columns *c);

#endif
