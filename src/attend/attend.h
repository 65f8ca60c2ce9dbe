/* SPDX-License-Identifier: MIT */
/*
 * Attention of a batch of rows over the caches they belong to, one interface, two implementations.
 *   own  (attend_own.c)   one custom CPU operation over ragged heads; reads the batch and the caches when the
 *                         graph runs, so a graph depends on the number of rows alone and can be kept
 *   ggml (attend_ggml.c)  standard ggml operations: the oracle, and the form that other backends can run
 *
 * A row is one new token. The rows of a batch are cut into slices, one per cache: the tokens at positions
 * n_past .. n_past+n_row-1 behind what that cache holds. Both implementations take q [d, n_head, n_row], k
 * and v [d, n_head_kv, n_row] (ggml order, f32, after RoPE), write the new rows of k and v behind the stored
 * entries of every head (the caller has reserved the room and commits the lengths after the graph has run)
 * and return [d * n_head, n_row] f32. A row sees every entry stored in its slice's cache (within the layer's
 * sliding window, if it has one) and the rows of its slice up to itself; it never sees another slice.
 *
 * What the own attention computes for a slice depends on that slice alone, bit for bit: neither on the slices
 * beside it nor on the number of threads (decision 004).
 */
#ifndef WNW_ATTEND_H
#define WNW_ATTEND_H

#include "cache/cache.h"

#include <ggml.h>

/* Sizes that are the same for all layers, and scratch that layers share because they run one after the
 * other. */
struct wnw__attend_shared;

struct wnw__attend_dims {
    int32_t n_head, n_head_kv, d;
    int32_t n_threads;
    int32_t n_ubatch; /* most rows in one batch */
};

/* Rows first_row .. first_row+n_row-1 of a batch, n_row > 0, at positions n_past, n_past+1, ... behind
 * `cache`. */
struct wnw__attend_slice {
    const struct wnw__cache *cache; /* its heads are as many and as wide as attend_dims says */
    int32_t first_row, n_row, n_past;
    /* For tests of the ggml attention; the own one does not look at it. NULL, or [n_layer * n_head_kv], of
     * which each is NULL or [hidden_n]: 1 = entry i of the head is invisible. */
    const uint8_t *const *hidden;
    int32_t hidden_n;
};

/* Slices in ascending order of their rows, without gaps, each of another cache. */
struct wnw__attend_batch {
    const struct wnw__attend_slice *slice; /* [n_slice] */
    int32_t n_slice, n_row;
};

/* All of dims are checked. Scratch is for n_threads; more threads may run an operation, but no more work. */
int wnw__attend_shared_new(struct wnw__attend_shared **out, const struct wnw__attend_dims *dims);
void wnw__attend_shared_free(struct wnw__attend_shared *sh);
/* Before a graph runs: scratch for the batch in layers from .. to - 1. */
int wnw__attend_shared_reserve(struct wnw__attend_shared *sh, const struct wnw__attend_batch *batch,
                               int32_t from, int32_t to);

/* Whether the own attention leaves the maximum and the inverse sum of every row's softmax behind, for whoever
 * runs next (columns.h). On failure it does not. */
int wnw__attend_shared_keep_rows(struct wnw__attend_shared *sh, bool keep);

/* One layer's operation. It and the batch must outlive every run of the graph. The slices and the caches'
 * lengths may change between runs, the number of rows may not. */
struct wnw__attend_op {
    struct wnw__attend_shared *shared;
    int32_t il;
    float scale; /* applied to q . k */
    const struct wnw__attend_batch *batch;
};

struct ggml_tensor *wnw__attend_own(struct ggml_context *ctx, struct wnw__attend_op *op,
                                    struct ggml_tensor *q, struct ggml_tensor *k, struct ggml_tensor *v);

/* The work behind wnw__attend_own without ggml, for tests: thread ith of nth; every thread must be run. Same
 * result for any nth. q [n_row][n_head][d], k and v [n_row][n_head_kv][d], out [n_row][n_head][d], all
 * contiguous. All rows must be stored before any thread runs, or, where every slice has few rows
 * (wnw__attend_is_decode), k and v are given to `run`, which stores them; else they are NULL there. */
void wnw__attend_store(const struct wnw__attend_op *op, const float *k, const float *v, int ith, int nth);
void wnw__attend_run(const struct wnw__attend_op *op, const float *q, const float *k, const float *v,
                     float *out, int ith, int nth);

/* Slow, obvious, double precision: the reference for both. Reads len[ih] + n_row rows of a slice's cache,
 * i.e. after wnw__attend_store. */
void wnw__attend_ref(const struct wnw__attend_op *op, const float *q, float *out);

#endif
