/* SPDX-License-Identifier: MIT */
/*
 * Norms of cached values after the output projection. The G query heads of the group of KV head j read its
 * value v, and each has a slice W_O^h (d x D) of the projection:
 *
 *     L1       nu = (1/G) sum_h ||v W_O^h||_1;
 *     L2       nu = sqrt((1/G) sum_h ||v W_O^h||_2^2) = sqrt(v G_j v^T),  G_j = (1/G) sum_h W_O^h (W_O^h)^T;
 *     SKETCH   L1 over a fixed random sample of D' of the D columns, times D / D'
 *
 * W_O is the weight that the model computes with, dequantised and times its factor; v is the value as it is cached. A bias of the
 * projection and norms after it (Gemma) are not part of nu. RoPE does not change values, so nu never changes.
 *
 * L1 costs as much as one output projection (2 d D flops per entry and query head); v W_O^h is never written
 * anywhere. L2 costs 2 d d flops per entry and KV head once the matrices G_j are there.
 */
#ifndef WNW_PROJNORM_H
#define WNW_PROJNORM_H

#include "base/err.h"
#include "base/parallel.h"
#include "winnow_method.h"

#include <ggml.h>

/* The largest number of output columns of the sketch. */
#define WNW_PROJ_SKETCH_COLUMNS 512

/* The projection of one layer as the file has it: n_out rows of n_head x d inputs each. */
struct wnw__proj_weight {
    enum ggml_type type;
    const void *data;
    int32_t n_head, n_head_kv, d, n_out;
    const float *factor; /* of all weights; NULL = 1 */
};
/* E_UNSUPPORTED where the output projection of a layer is not known. */
int wnw__proj_check(const struct wnw_model *m, int32_t il);
/* That of layer il; m must outlive it. */
struct wnw__proj_weight wnw__proj_weight_of(const wnw_model *m, int32_t il);

/* The values of one KV head and their norms, in the same order. */
struct wnw__proj_values {
    const uint8_t *v; /* packed rows of d values, in the type of wnw__proj_new */
    float *norm;      /* [n]; negative = to be computed */
    int32_t n;
    /* NULL, or f16 rows: of the first n_first values and of those after the n_v that `v` holds. */
    const uint8_t *f16;
    int32_t n_first, n_v;
    int32_t block; /* of the rotation of all rows (cache.h), 0 = they are the values */
};

/* Matrices G_j of all layers and scratch memory. Belongs to one session. */
struct wnw__proj;
int wnw__proj_new(struct wnw__proj **out, int32_t n_layer, wnw_kv_type type);
void wnw__proj_free(struct wnw__proj *p);

/* Computes the missing norms of layer il; heads[n_head_kv]. The result of an entry depends on its value and
 * the weight alone, not on other entries or the number of threads. Nothing changes on failure. w must be the
 * same for a layer every time. pool: NULL = the caller's thread alone. */
int wnw__proj_fill(struct wnw__proj *p, struct wnw__pool *pool, const struct wnw__proj_weight *w, int32_t il,
                   wnw_proj_norm kind, const struct wnw__proj_values *heads);

/* Writes the output columns that count for the kind to column, which has room for n_out, in ascending order.
 * Returns their number. */
int32_t wnw__proj_columns(wnw_proj_norm kind, int32_t n_out, int32_t *column);

/* Multiplies n rows x[n][n_head x d] by the dequantised weight: y[n][n_out]. Every number of y is one sum in float32,
 * regardless of the number of threads. pool: NULL = the caller's thread alone. */
int wnw__proj_apply(struct wnw__pool *pool, const struct wnw__proj_weight *w, const float *x, int32_t n,
                    float *y);

/* The definition in double precision, for one value v[d], against which the fast version is tested. Returns a
 * negative number if memory runs out. */
double wnw__proj_norm_ref(const struct wnw__proj_weight *w, int32_t ih, wnw_proj_norm kind, const float *v);

#endif
