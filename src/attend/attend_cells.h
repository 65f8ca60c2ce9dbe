/* SPDX-License-Identifier: MIT */
/*
 * Attention where a mask says which query sees which entry, as libllama's graphs have it: entries lie in numbered cells,
 * and the mask has a column for each cell. A head need not have an entry for every cell. What a query makes of an entry
 *
 *     s = scale q . k        s = cap tanh(scale q . k) where there is a cap
 *     s + slope(head) mask   -infinity: the query does not see the entry
 *
 * goes into one softmax per query, with a sink's score next to the entries' where there are sinks. Keys and values may
 * differ in size and type, and values may be part of the keys' rows (MLA). Products are float32, and a result depends
 * neither on the number of threads nor on other queries than its own (but for sums that stop at other tiles).
 */
#ifndef WNW_ATTEND_CELLS_H
#define WNW_ATTEND_CELLS_H

#include "cache/cache.h"

#include <ggml.h>

/* One node of a graph. Pointers into q, mask and out are moved by the given numbers of bytes per head, row and stream. */
struct wnw__cells_op {
    int32_t n_head, n_head_kv, d_k, d_v;
    int32_t n_row, n_stream;    /* rows of queries of each stream */
    int32_t n_cell;             /* columns of the mask; entries of later cells are not seen */
    float scale, cap, max_bias; /* 0: no cap, slope 1 */
    const float *sinks;         /* [n_head] or NULL */

    /* Entries are of layer 0; their positions are their cells. Head ih of stream s is head (first_stream + s) * n_head_kv
     * + ih of the cache. */
    const struct wnw__cache *cache;
    int32_t first_stream;
    enum ggml_type k_type, v_type;
    bool v_in_keys; /* values begin with the first element of the keys' rows */

    const char *q; /* float32 */
    size_t q_head, q_row, q_stream;
    const char *mask; /* NULL: everything is seen */
    bool mask_f16;    /* else float32 */
    size_t mask_row, mask_stream;
    char *out; /* float32 */
    size_t out_head, out_row, out_stream;
    bool columns; /* leaves every row's softmax for wnw__cells_columns_run */

    /* Writes keys and values of those entries from .. to-1 of a head of the cache that are there without them, before they
     * are read. Only where queries are few (wnw__cells_is_few). NULL: all are written. */
    void (*write)(const struct wnw__cells_op *op, int32_t head, int32_t from, int32_t to);
    const void *written_from; /* for `write` */
};

/* Scratch memory, which operations share because they run one after the other. */
struct wnw__cells_shared;
int wnw__cells_shared_new(struct wnw__cells_shared **out, int32_t n_threads);
void wnw__cells_shared_free(struct wnw__cells_shared *sh);

/* Whether keys or values of this type can be read. */
bool wnw__cells_takes(enum ggml_type type);
/* Whether an operation has so few queries that the entries of a head are shared out between threads. Then each of them is a
 * single thread's, who may write it first. */
bool wnw__cells_is_few(const struct wnw__cells_op *op);
/* Makes scratch for the operation with the entries that its cache has. To be called before it runs, by one thread. */
int wnw__cells_reserve(struct wnw__cells_shared *sh, const struct wnw__cells_op *op);
/* The work of thread ith of nth. Every one of them must call it; those after the n_threads of the scratch get no work. */
void wnw__cells_run(struct wnw__cells_shared *sh, const struct wnw__cells_op *op, int ith, int nth);
/* Adds what every entry receives from the operation's queries to the numbers that the cache keeps with it: those of
 * WNW_AUX_ATTN_SUM and WNW_AUX_ATTN_MAX, as far as there are any, with one plane for each query head of the group. To be
 * called as wnw__cells_run is, after it, with the same operation, whose `columns` is set. */
void wnw__cells_columns_run(struct wnw__cells_shared *sh, const struct wnw__cells_op *op, int ith, int nth);

#endif
