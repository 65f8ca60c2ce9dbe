/* SPDX-License-Identifier: MIT */
/*
 * Attention of a batch of rows over the caches they belong to. One interface has two implementations:
 *   own  (attend_own.c)   one custom CPU operation over ragged heads. It reads the batch and the caches when the graph
 *                         runs. So a graph depends on the number of rows alone and can be kept.
 *   ggml (attend_ggml.c)  standard ggml operations. It is the oracle, and other backends can run it.
 *
 * A row is one new token. The rows of a batch are cut into slices, one per cache: the tokens at positions
 * n_past .. n_past+n_row-1 after what that cache holds. Both implementations take q [d, n_head, n_row], k and v [d,
 * n_head_kv, n_row] (ggml order, f32, after RoPE). They write the new rows of k and v after the stored entries of every
 * head. The caller has reserved the room, and commits the lengths after the graph has run. They return [d * n_head,
 * n_row] f32. A row sees every entry stored in its slice's cache (within the layer's sliding window, if it has one) and
 * the rows of its slice up to itself; it never sees another slice.
 *
 * If the CPU has products in bf16, the own attention uses them for pieces of many rows: it rounds queries, keys,
 * weights and values (decision 039). If the CPU has products of bytes, scores of far entries are computed in bytes
 * (decision 042). A cache of float32 turns off bf16. The result for a slice depends on that slice alone, bit for bit:
 * neither on the other slices of the batch nor on the number of threads (decision 004).
 */
#ifndef WNW_ATTEND_H
#define WNW_ATTEND_H

#include "base/shape.h"
#include "cache/cache.h"

#include <ggml.h>

/* Sizes that all layers have in common, and scratch that layers share because they run one after the other.
 * Belongs to one engine. */
struct wnw__attend_shared;

struct wnw__attend_dims {
    struct wnw__shape model;
    int32_t n_threads;
    int32_t n_ubatch; /* most rows in one batch */
    bool float32;     /* no products in bf16 or bytes */
};

/* Statistics of the columns of the matrix of attention probabilities: for each query head and entry, over the rows. */
enum { WNW_COLUMN_SUMS = 1, WNW_COLUMN_MAXIMA = 2 };

/* What is 0 of a masked query head: its output, or its query, so that its attention is even. */
enum { WNW_MASKED_OUTPUT = 1, WNW_MASKED_QUERY = 2 };

/* Rows first_row .. first_row+n_row-1 of a batch, n_row > 0, whose positions are n_past, n_past+1, ... Their
 * entries follow those of `cache`. */
struct wnw__attend_slice {
    const struct wnw__cache *cache; /* has n_head_kv heads of d elements, as wnw__attend_dims says */
    int32_t first_row, n_row, n_past;
    const uint8_t *masked; /* [n_layer][n_head] 0 or WNW_MASKED_*: query heads that are off; NULL = none is */
    unsigned columns;      /* WNW_COLUMN_*: what is wanted where wnw__attend_leaves_columns */
    int32_t first_out;     /* an operation that is `partial` need not compute rows of the slice before it */
};

/* Slices in ascending order of their rows, without gaps. No two slices have the same cache. */
struct wnw__attend_batch {
    const struct wnw__attend_slice *slice; /* [n_slice] */
    int32_t n_slice, n_row;
};

/* Checks all fields of dims. There is scratch for n_threads; if more threads run an operation, the others get
 * no work. */
int wnw__attend_shared_new(struct wnw__attend_shared **out, const struct wnw__attend_dims *dims);
void wnw__attend_shared_free(struct wnw__attend_shared *sh);
/* Makes scratch for the batch in layers from .. to - 1. The caller calls it before the graph runs. */
int wnw__attend_shared_reserve(struct wnw__attend_shared *sh, const struct wnw__attend_batch *batch,
                               int32_t from, int32_t to);

/* Sets whether the own attention keeps the maximum and the inverse sum of every row's softmax until the next
 * operation, for recorders (columns.h). On failure they are not kept. */
int wnw__attend_shared_keep_rows(struct wnw__attend_shared *sh, bool keep);

/* Whether the own attention leaves the statistics slice->columns of every layer without a sliding window until the next
 * operation, for recorders (columns.h). It does for slices of many rows that want some. */
bool wnw__attend_leaves_columns(const struct wnw__attend_shared *sh, const struct wnw__attend_slice *slice);

/* One layer's operation. It and the batch must outlive every run of the graph. The slices and the caches'
 * lengths may change between runs, the number of rows may not. */
struct wnw__attend_op {
    struct wnw__attend_shared *shared;
    int32_t il;
    float scale;  /* factor of q . k */
    bool partial; /* slices need their rows from first_out on; the own attention leaves others as they are */
    const struct wnw__attend_batch *batch;
};

/* The number of rows at the beginning of slice i that the own attention leaves out. */
int32_t wnw__attend_skipped(const struct wnw__attend_op *op, int32_t i);

/* The number of (row, entry) pairs of KV head ih where the row sees the entry, if n_row new rows follow the layer's
 * entries. */
double wnw__attend_pairs(const struct wnw__kv_layer *layer, int32_t ih, int32_t n_row);

struct ggml_tensor *wnw__attend_own(struct ggml_context *ctx, struct wnw__attend_op *op,
                                    struct ggml_tensor *q, struct ggml_tensor *k, struct ggml_tensor *v);

/* The same for further queries of the batch, where an operation on the layer that ran before has stored its rows. */
struct ggml_tensor *wnw__attend_again(struct ggml_context *ctx, struct wnw__attend_op *op,
                                      struct ggml_tensor *q);

/* Sets the output of heads with WNW_MASKED_OUTPUT to 0, in place, in front of the output projection; `out` is the result of
 * either implementation. */
struct ggml_tensor *wnw__attend_mask(struct ggml_context *ctx, struct wnw__attend_op *op,
                                     struct ggml_tensor *out);
/* Sets queries q of heads with WNW_MASKED_QUERY to 0, in place, in front of either implementation. Nothing else of the
 * attention depends on masks. */
struct ggml_tensor *wnw__attend_mask_queries(struct ggml_context *ctx, struct wnw__attend_op *op,
                                             struct ggml_tensor *q);
/* The work of one thread ith of nth on rows [n_row][n_head][d] of heads that are masked so. */
void wnw__attend_mask_run(const struct wnw__attend_op *op, uint8_t how, float *rows, int ith, int nth);

/* The work of wnw__attend_own without ggml, for tests. Every thread ith of nth must call it; the result is
 * the same for any nth. q [n_row][n_head][d], k and v [n_row][n_head_kv][d] and out [n_row][n_head][d] are
 * contiguous. If every slice has few rows (wnw__attend_is_decode), k and v may be given to wnw__attend_run,
 * which stores them. Otherwise wnw__attend_store must have stored all rows before any thread runs, and k and
 * v are NULL. */
void wnw__attend_store(const struct wnw__attend_op *op, const float *k, const float *v, int ith, int nth);
void wnw__attend_run(const struct wnw__attend_op *op, const float *q, const float *k, const float *v,
                     float *out, int ith, int nth);

/* The reference for both implementations: slow, obvious, in double precision. It reads len[ih] + n_row rows
 * of a slice's cache, so wnw__attend_store must have stored the new rows. */
void wnw__attend_ref(const struct wnw__attend_op *op, const float *q, float *out);

/* ---- The forms of scores that models have (base/shape.h; attend_form.c) ----
 * Soft caps (arXiv 2408.00118, section 2), ALiBi (arXiv 2108.12409) and attention sinks, scores in a query's softmax that have
 * no entry (arXiv 2309.17453, section 3.2). Everything that computes attention goes by these functions. */

/* Slope of query head h of n_head, for any number of heads; 1 where there is no ALiBi. */
float wnw__form_slope(float max_bias, int32_t n_head, int32_t h);
/* x = cap tanh(x / cap), unless cap is 0. */
void wnw__form_cap(float cap, float *x, int32_t n);
/* Turns products x = scale q . k of a query of head h at position `query` with n entries at positions pos into scores.
 * f = NULL: they are. */
void wnw__form_scores(const struct wnw__score_form *f, float slope, int32_t query, const int32_t *pos,
                      float *x, int32_t n);
/* Gives the sink of head h its share of a softmax p[n] over scores whose largest is `top`. */
void wnw__form_share(const struct wnw__score_form *f, int32_t h, float top, float *p, int32_t n);

/* ---- Attention with standard ggml operations, the oracle of our own (attend_ggml.c) ---- */

/* The inputs of one graph: masks and the arena rows that receive new keys and values. Belongs to one thread
 * at a time. */
struct wnw__attend_ggml;

/* Makes the inputs of one graph over `batch`, which is borrowed. Slices and the caches' lengths must not
 * change until the graph has run. */
int wnw__attend_ggml_new(struct wnw__attend_ggml **out, const struct wnw__attend_batch *batch);
void wnw__attend_ggml_free(struct wnw__attend_ggml *ag);
/* Adds the attention of one layer, which stores k and v first. Only layer and scale of op are used. Shapes
 * are those above. */
struct ggml_tensor *wnw__attend_ggml_build(struct wnw__attend_ggml *ag, struct ggml_context *ctx,
                                           struct ggml_cgraph *gf, const struct wnw__attend_op *op,
                                           struct ggml_tensor *q, struct ggml_tensor *k,
                                           struct ggml_tensor *v);
/* Fills masks and row indices. The graph must have its memory. E_NOMEM. */
int wnw__attend_ggml_fill(struct wnw__attend_ggml *ag);
/* The largest number of nodes and leaves that one layer adds to the graph of such a batch. */
size_t wnw__attend_ggml_nodes(const struct wnw__attend_batch *batch);

#endif
