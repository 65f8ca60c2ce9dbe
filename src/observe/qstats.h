/* SPDX-License-Identifier: MIT */
/*
 * Mean and covariance of queries before RoPE, per layer and query head, gathered while tokens are read. The
 * covariance is about the mean and divided by the number of queries. Blocks of queries are combined by the
 * pairwise update of Chan, Golub and LeVeque (1983), so that no large sums are subtracted, however the tokens
 * were cut into batches.
 */
#ifndef WNW_QSTATS_H
#define WNW_QSTATS_H

#include "base/err.h"
#include "base/shape.h"

struct wnw__qstats_params {
    struct wnw__shape model; /* layers that take no part are not observed */
    int32_t n_threads;
    int32_t skip; /* positions before this one are left out */
    float scale;  /* factor for the queries that the graph gives */
};

struct wnw__qstats;
int wnw__qstats_new(struct wnw__qstats **out, const struct wnw__qstats_params *params);
int wnw__qstats_copy(struct wnw__qstats **out, const struct wnw__qstats *st);
void wnw__qstats_free(struct wnw__qstats *st);
void wnw__qstats_reset(struct wnw__qstats *st);
const struct wnw__qstats_params *wnw__qstats_params(const struct wnw__qstats *st);

/* The queries of n tokens at positions first, first + 1, ... The query of head h and token t is at
 * q + t * token_stride + h * head_stride; strides are in floats. Every thread ith of nth calls
 * wnw__qstats_add, and each takes some heads. */
struct wnw__qstats_batch {
    const float *q;
    size_t token_stride, head_stride;
    int32_t first, n;
};
void wnw__qstats_add(struct wnw__qstats *st, int32_t il, const struct wnw__qstats_batch *b, int ith, int nth);

/* The position after the last query taken; 0 if none was taken. */
int32_t wnw__qstats_end(const struct wnw__qstats *st, int32_t il);
/* Writes mean[n_head][d] and cov[n_head][d][d]. Returns the number of queries per head; if it is 0, both are
 * zeros. */
int64_t wnw__qstats_get(const struct wnw__qstats *st, int32_t il, float *mean, float *cov);

#endif
