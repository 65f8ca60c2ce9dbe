/* SPDX-License-Identifier: MIT */
/*
 * Attention over the cache, one interface, two implementations.
 *   own  (attend_own.c)   one custom CPU operation over ragged heads; reaches the cache through its userdata,
 *                         so a decode graph does not depend on cache lengths and is built once
 *   ggml (attend_ggml.c)  standard ggml operations: the oracle, and the form that other backends can run
 *
 * Both take q [d, n_head, n_tok], k and v [d, n_head_kv, n_tok] (ggml order, f32, after RoPE), the new tokens
 * sit at positions n_past .. n_past+n_tok-1. Both write the new rows of k and v behind the stored entries of
 * every head (the caller has reserved the room and commits the lengths after the graph has run) and return [d
 * * n_head, n_tok] f32. A new token sees every stored entry (within the layer's sliding window, if it has
 * one) and the new tokens up to itself.
 */
#ifndef WNW_ATTEND_H
#define WNW_ATTEND_H

#include "cache/cache.h"

#include <ggml.h>

/* Sizes that are the same for all layers, and scratch that layers share because they run one after the other. */
struct wnw__attend_shared;

struct wnw__attend_dims {
    int32_t n_head, n_head_kv, d;
    int32_t n_threads;
    int32_t n_ubatch; /* most new tokens in one call */
    wnw_kv_type type;
};

int wnw__attend_shared_new(struct wnw__attend_shared **out, const struct wnw__attend_dims *dims);
void wnw__attend_shared_free(struct wnw__attend_shared *sh);
/* Before a graph runs: scratch for heads of up to max_len entries, new ones included. */
int wnw__attend_shared_reserve(struct wnw__attend_shared *sh, int32_t max_len);

/* Whether the own attention leaves the maximum and the inverse sum of every row's softmax behind, for whoever
 * runs next (columns.h). On failure it does not. */
int wnw__attend_shared_keep_rows(struct wnw__attend_shared *sh, bool keep);

/* One layer's operation. Must outlive every run of the graph; n_past and the layer's lengths may change
 * between runs. */
struct wnw__attend_op {
    struct wnw__attend_shared *shared;
    const struct wnw__kv_layer *layer;
    int32_t n_past;
    float scale; /* applied to q . k */
};

struct ggml_tensor *wnw__attend_own(struct ggml_context *ctx, struct wnw__attend_op *op,
                                    struct ggml_tensor *q, struct ggml_tensor *k, struct ggml_tensor *v);

/* The work behind wnw__attend_own without ggml, for tests: thread ith of nth; every thread must be run. Same
 * result for any nth. q [n_tok][n_head][d], k and v [n_tok][n_head_kv][d], out [n_tok][n_head][d], all
 * contiguous. */
void wnw__attend_store(const struct wnw__attend_op *op, const float *k, const float *v, int32_t n_tok,
                       int ith, int nth);
void wnw__attend_run(const struct wnw__attend_op *op, const float *q, int32_t n_tok, float *out, int ith,
                     int nth);

/* Slow, obvious, double precision: the reference for both. Reads len[ih] + n_tok rows, i.e. after
 * wnw__attend_store. */
void wnw__attend_ref(const struct wnw__attend_op *op, const float *q, int32_t n_tok, float *out);

#endif
