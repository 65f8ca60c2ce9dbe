/* SPDX-License-Identifier: MIT */
/*
 * What every cached entry receives from many queries: the sum and the maximum, over the queries of a graph,
 * of the float32 attention probabilities in the entry's column, per query head. The matrix itself never
 * exists: a sweep over the rows knows each query's softmax (its maximum m and 1 / l; the own attention has
 * both), a second one computes q . k again, tile by tile, and adds up exp(s - m) / l along the columns.
 *
 *     sum[h][i] += sum_t p(h,t,i)    max[h][i] = max(max[h][i], max_t p(h,t,i))    p(h,t,i) = exp(s - m) / l
 *
 * A column is added up by one thread and in the order of the queries, so the result does not depend on the
 * number of threads. Cost per query, head and visible entry: one product of d terms and one exponential, i.e.
 * a little over half of what the attention itself takes.
 */
#ifndef WNW_COLUMNS_H
#define WNW_COLUMNS_H

#include "attend/attend.h"

struct wnw__range {
    int32_t from, to; /* from <= i < to */
};

/* Stored entries that a restricted softmax runs over: two ranges, in ascending order and apart. */
#define WNW_COLUMN_RANGES 2

/* One layer's operation. Must outlive every run of the graph; everything may change between runs. */
struct wnw__columns_op {
    const struct wnw__attend_op *attend;
    int32_t slice;       /* of the batch, whose queries and entries these are */
    float *packed;       /* wnw__columns_floats floats, which layers may share */
    bool rows_from_attn; /* the attention keeps rows (wnw__attend_shared_keep_rows) in the same graph */

    /* Where numbers go: [n_head][n], or both NULL: to the numbers that the layer keeps with its entries. */
    float *sum, *max;
    int64_t n;
    /* [n_head_kv] entries whose columns are added up; NULL = all, those of the new tokens included. */
    const struct wnw__range *columns;
    /* [n_head_kv][WNW_COLUMN_RANGES] stored entries that the softmax runs over, besides those from own[ih]
     * on, up to the query's own. NULL = the attention's softmax, over everything. */
    const struct wnw__range (*seen)[WNW_COLUMN_RANGES];
    const int32_t *own; /* [n_head_kv] */
};

/* Size of `packed`. */
size_t wnw__columns_floats(const struct wnw__attend_shared *sh);

/* Adds the operation to the graph, behind `out`, the attention of the same queries q [d, n_head, n_tok]. */
void wnw__columns_build(struct ggml_context *ctx, struct ggml_cgraph *gf, struct wnw__columns_op *op,
                        struct ggml_tensor *q, struct ggml_tensor *out);

/* The work behind it, for tests: thread ith of nth, every thread must be run; first all threads of `rows`,
 * then those of `run`. Needs the shared rows even where the attention does not keep them. q
 * [n_tok][n_head][d] of the slice; new keys are stored. */
void wnw__columns_rows(const struct wnw__columns_op *op, const float *q, int32_t n_tok, int ith, int nth);
void wnw__columns_run(const struct wnw__columns_op *op, const float *q, int32_t n_tok, int ith, int nth);

#endif
