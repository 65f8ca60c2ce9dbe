/* SPDX-License-Identifier: MIT */
/*
 * Inside of the own attention. Work is done in "rows": query head g of the group and token t of a batch make
 * one row, and all rows that share a KV head go through its entries together, so that keys and values are
 * read and converted once per group. attend_tile.c streams entries past a set of rows; attend_decode.c and
 * attend_prefill.c decide which rows and entries make a piece of work.
 */
#ifndef WNW_ATTEND_IMPL_H
#define WNW_ATTEND_IMPL_H

#include "attend/attend.h"
#include "kernel/kernel_impl.h"

#include <stdatomic.h>

/* Rows of one prefill unit: enough to amortise converting a tile, few enough to stay in the L2 cache. */
#define WNW_ATTEND_ROWS 96
/* Up to this many rows a dot product per row beats transposing the keys. */
#define WNW_ATTEND_NT_ROWS 8
/* Decoding cuts a head into at most this many pieces of at least WNW_ATTEND_PIECE entries. Both depend on the
 * length alone, never on the number of threads, so that every number of threads gives the same bits. */
#define WNW_ATTEND_PIECES 32
#define WNW_ATTEND_PIECE  256
/* Most tokens, and rows, of a batch that is treated as decoding. */
#define WNW_ATTEND_DECODE_TOKENS 7
#define WNW_ATTEND_DECODE_ROWS   64

struct wnw__attend_shared {
    struct wnw__attend_dims dims;
    const struct wnw__vec *vec;
    int32_t group;       /* query heads per KV head */
    int32_t rows;        /* most rows in one unit, multiple of WNW_ROWS_PAD */
    int32_t ld;          /* d rounded up to WNW_TILE_PAD */
    int32_t decode_rows; /* most rows of a decoding batch */
    size_t row_bytes;

    float *work;        /* [n_threads][work_floats], see wnw__attend_work_at */
    size_t work_floats; /* per thread */
    float *partial;     /* [n_head_kv][pieces][decode_rows][ld + 2]: O, m, l */
    int32_t pieces;

    float *row_max, *row_norm; /* [n_head][n_tok] of the latest operation: m, 1 / l; NULL unless asked for */

    atomic_int next;       /* next unit to take */
    atomic_int left;       /* threads that have finished; the last one resets both */
    atomic_int *head_done; /* [n_head_kv] finished pieces; reset by the thread that combines them */
};

/* One thread's scratch. */
struct wnw__attend_work {
    float *q;           /* [rows][d] or panels [rows / panel_rows][d][panel_rows] */
    float *kf, *kt;     /* [WNW_TILE][d], [d][WNW_TILE] */
    float *vf;          /* [WNW_TILE][ld] */
    float *s;           /* [rows][WNW_TILE] */
    float *o;           /* [rows][ld] */
    float *m, *l;       /* [rows] running maximum and sum */
    float *corr;        /* [rows] */
    int32_t *from, *to; /* [rows] entries that the row sees: from <= i < to */
};

/* Tokens t0 .. t0+n_tok-1 of the group of KV head ih. */
struct wnw__attend_rows {
    int32_t ih, t0, n_tok;
};

/* Whether n_tok new tokens take the decoding path. */
static inline bool wnw__attend_is_decode(const struct wnw__attend_shared *sh, int32_t n_tok)
{
    return n_tok == 1 ||
           (n_tok <= WNW_ATTEND_DECODE_TOKENS && n_tok * (int64_t)sh->group <= WNW_ATTEND_DECODE_ROWS);
}

size_t wnw__attend_work_floats(const struct wnw__attend_shared *sh);
struct wnw__attend_work wnw__attend_work_at(const struct wnw__attend_shared *sh, int ith);

/* Takes the next unit; -1 when all n are taken. */
static inline int32_t wnw__attend_take(struct wnw__attend_shared *sh, int32_t n)
{
    const int i = atomic_fetch_add_explicit(&sh->next, 1, memory_order_relaxed);
    return i < n ? i : -1;
}

/* Every thread calls this once, after its last take. */
static inline void wnw__attend_leave(struct wnw__attend_shared *sh, int nth)
{
    if (atomic_fetch_add_explicit(&sh->left, 1, memory_order_acq_rel) + 1 < nth)
        return;
    atomic_store_explicit(&sh->next, 0, memory_order_relaxed);
    atomic_store_explicit(&sh->left, 0, memory_order_release);
}

/* First entry of KV head ih that new token t sees. New tokens count as entries len, len+1, ... */
int32_t wnw__attend_first(const struct wnw__attend_op *op, int32_t ih, int32_t t);

/* Loads the queries (scaled) and visible ranges of r, with an empty softmax. q as in wnw__attend_run. */
void wnw__attend_load(const struct wnw__attend_op *op, const struct wnw__attend_rows *r, const float *q,
                      struct wnw__attend_work *w);
/* Streams entries from .. to-1 past the rows. */
void wnw__attend_stream(const struct wnw__attend_op *op, const struct wnw__attend_rows *r, int32_t from,
                        int32_t to, struct wnw__attend_work *w);

/* Rows first .. last-1 of the new tokens of KV head ih are written behind its entries. */
void wnw__attend_write(const struct wnw__attend_op *op, int32_t ih, int32_t first, int32_t last,
                       const float *k, const float *v);

/* k and v may be NULL when the new rows are stored already. */
void wnw__attend_decode(const struct wnw__attend_op *op, const float *q, const float *k, const float *v,
                        int32_t n_tok, float *out, int ith, int nth);
void wnw__attend_prefill(const struct wnw__attend_op *op, const float *q, int32_t n_tok, float *out, int ith,
                         int nth);

#endif
