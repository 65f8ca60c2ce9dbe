/* SPDX-License-Identifier: MIT */
/*
 * Mean and covariance of queries before RoPE, per layer and query head, gathered while tokens are read. The
 * covariance is about the mean and divided by the number of queries. Blocks of queries are combined by the
 * pairwise update of Chan, Golub and LeVeque (1983): no large sums are subtracted, however the tokens were
 * cut into batches.
 */
#ifndef WNW_QSTATS_H
#define WNW_QSTATS_H

#include "base/err.h"

struct wnw__qstats_params {
    int32_t n_layer, n_head, d, n_threads;
    int32_t skip; /* positions before this one are left out */
    float scale;  /* of the queries, on top of what the graph gives */
};

struct wnw__qstats;
/* is_left_out[n_layer]: layers that are not observed; NULL = none. */
int wnw__qstats_new(struct wnw__qstats **out, const struct wnw__qstats_params *params,
                    const bool *is_left_out);
int wnw__qstats_copy(struct wnw__qstats **out, const struct wnw__qstats *st);
void wnw__qstats_free(struct wnw__qstats *st);
void wnw__qstats_reset(struct wnw__qstats *st);
const struct wnw__qstats_params *wnw__qstats_params(const struct wnw__qstats *st);

/* Takes the queries of n tokens at positions first, first + 1, ...: head h of token t is q + t *
 * token_stride + h * head_stride (in floats). Called by threads ith of nth, each of which does some heads. */
struct wnw__qstats_batch {
    const float *q;
    size_t token_stride, head_stride;
    int32_t first, n;
};
void wnw__qstats_add(struct wnw__qstats *st, int32_t il, const struct wnw__qstats_batch *b, int ith, int nth);

/* Position behind the last query taken; 0 before any. */
int32_t wnw__qstats_end(const struct wnw__qstats *st, int32_t il);
/* mean[n_head][d], cov[n_head][d][d]; returns how many queries they are of: 0 leaves zeros. */
int64_t wnw__qstats_get(const struct wnw__qstats *st, int32_t il, float *mean, float *cov);

#endif
