/* SPDX-License-Identifier: MIT */
/*
 * Recorder of the attention that every cached entry receives from all queries. For each query head it adds up
 * the float32 attention probabilities in the entry's column and keeps their maximum. The matrix of
 * probabilities never exists: a first sweep over the rows finds each query's softmax, that is, its maximum m
 * and 1 / l (the own attention can leave both), and a second sweep computes q . k again, tile by tile, and
 * adds up exp(s - m) / l along the columns. Where a prompt's attention leaves sums and maxima itself
 * (attend_columns.c), those of its runs are added up in place of both sweeps.
 *
 *     sum[h][i] += sum_t p(h,t,i)    max[h][i] = max(max[h][i], max_t p(h,t,i))    p(h,t,i) = exp(s - m) / l
 *
 * One thread adds up a column in the order of the queries, so the result does not depend on the number of
 * threads. The cost of the second sweep per query, query head and visible entry is one product of d terms and one
 * exponential, i.e. a little over half of what the attention itself takes; that of columns which the attention leaves, one
 * addition and one multiplication.
 */
#ifndef WNW_COLUMNS_H
#define WNW_COLUMNS_H

#include "forward/recorder.h"

struct wnw__range {
    int32_t from, to; /* from <= i < to */
};

/* A restricted softmax runs over two ranges of stored entries, in ascending order and without overlap. */
#define WNW_COLUMN_RANGES 2

/* What is recorded of one layer in place of everything. It may change between passes. */
struct wnw__columns_want {
    float *sum, *max; /* [n_head][n] that receive the numbers; NULL = not wanted */
    int64_t n;
    /* [n_head_kv] the entries whose columns are added up; NULL = all entries and the new tokens. */
    const struct wnw__range *columns;
    /* [n_head_kv][WNW_COLUMN_RANGES] the stored entries that the softmax runs over, in addition to the entries from
     * own[ih] up to the query's own. NULL = the attention's softmax, which runs over everything that the query
     * sees. */
    const struct wnw__range (*seen)[WNW_COLUMN_RANGES];
    const int32_t *own; /* [n_head_kv] */
    /* With `seen`: the attention of each query is divided by the length of what the layer's attention reads of its token. */
    bool by_input;
};

struct wnw__columns;
/* wants [n_layer] is borrowed. If it is NULL, everything is recorded, in the numbers that the cache keeps
 * with its entries. */
int wnw__columns_new(struct wnw__columns **out, const struct wnw__record_shape *shape,
                     const struct wnw__columns_want *wants);
void wnw__columns_free(struct wnw__columns *c);

#endif
