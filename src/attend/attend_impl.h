/* SPDX-License-Identifier: MIT */
/*
 * The inside of the own attention. Query head g of a group and row t of a slice make one query. All queries that share
 * a KV head go through its entries together, so that keys and values are read and converted once per group.
 *
 * attend_tile.c: streams entries past a set of queries.
 * attend_far.c: computes scores of far entries in bytes.
 * attend_columns.c: adds up columns while a prompt is read.
 * attend_decode.c: takes pieces of a head's entries for few queries.
 * attend_run.c: has threads take the units of all slices.
 * attend_own.c: holds the scratch memory and makes operations of a graph.
 */
#ifndef WNW_ATTEND_IMPL_H
#define WNW_ATTEND_IMPL_H

#include "attend/attend.h"
#include "kernel/bf16.h"
#include "kernel/kernel_impl.h"
#include "kernel/score8.h"

#include <stdatomic.h>
#include <string.h>

/* The number of queries of one prefill unit: enough to pay for converting a tile, few enough to stay in the
 * L2 cache. */
#define WNW_ATTEND_ROWS 192
/* Up to this number of queries, one dot product per query is faster than transposing the keys. */
#define WNW_ATTEND_NT_ROWS 8
/* Decoding cuts a head into at most WNW_ATTEND_PIECES pieces of at least WNW_ATTEND_PIECE entries. The cut
 * depends on the length alone, never on the number of threads or on other slices, so the bits of the result
 * do not either. */
#define WNW_ATTEND_PIECES 32
#define WNW_ATTEND_PIECE  256
/* The largest number of rows, and of queries per KV head, of a slice that is treated as decoding. */
#define WNW_ATTEND_DECODE_TOKENS 7
#define WNW_ATTEND_DECODE_ROWS   64

/* Where the partial results of one slice are. */
struct wnw__attend_scratch {
    size_t at;      /* few rows: first float in `partial` */
    int32_t pieces; /* few rows */
    size_t columns; /* many rows whose columns are wanted: first float in `columns` */
    int32_t n;      /* the same: floats per query head of a run, at least its entries */
};

struct wnw__attend_shared {
    struct wnw__attend_dims dims;
    const struct wnw__vec *vec;
    const struct wnw__bf16 *bf16;     /* NULL: the products of many queries are float32, too */
    const struct wnw__score8 *score8; /* NULL: no scores in bytes */
    int32_t group;                    /* query heads per KV head */
    int32_t rows;                     /* most queries in one unit, multiple of WNW_ROWS_PAD */
    int32_t ld;                       /* d rounded up to WNW_TILE_PAD */

    float *work;        /* [n_threads][work_floats], see wnw__attend_work_at */
    size_t work_floats; /* per thread */

    /* The following are of the present batch, see wnw__attend_shared_reserve. */
    struct wnw__attend_scratch *scratch; /* [n_slice] */
    atomic_int *head_done; /* [n_slice][n_head_kv] finished pieces; reset by the thread that combines them */
    float *partial;        /* per slice [n_head_kv][pieces][n_row * group][ld + 2]: O, m, l */
    int32_t cap_slices;
    size_t cap_partial; /* floats */
    float *columns;     /* per slice and kind, sums first: [runs][n_head][n], see attend_columns.c */
    size_t cap_columns; /* floats */
    float *tiles;       /* [n_threads][tiles_floats] kept tiles of probabilities */
    size_t tiles_floats;

    float *row_max,
        *row_norm; /* [n_head][rows of the batch] of the latest operation: m, 1 / l; NULL unless asked for */

    atomic_int next; /* next unit to take */
    atomic_int left; /* threads that have finished; the last one resets both counters */
};

/* One slice in one layer, on which the functions below work. */
struct wnw__attend_job {
    const struct wnw__attend_op *op;
    const struct wnw__attend_slice *slice;
    const struct wnw__kv_layer *layer;
    wnw_kv_type type; /* of the cache; entries of its tail are f16 */
    size_t row_bytes; /* of one key or value of that type */
    int32_t i_slice;
};

/* Entries of a head that lie one after the other as rows of one type. While rows of the slice push a block
 * out of the tail, the block is there twice: later rows see it quantised, earlier ones do not. */
enum wnw__attend_seen { WNW_SEEN_ALWAYS, WNW_SEEN_QUANTISED, WNW_SEEN_F16 };
struct wnw__attend_stretch {
    struct wnw__kv_rows rows;
    int32_t from, to;  /* entries; rows.n = to - from */
    const float *bias; /* of these entries; NULL = none has one */
    enum wnw__attend_seen seen;
};
/* Everything that some rows of a slice see of a head. */
struct wnw__attend_stretches {
    struct wnw__attend_stretch stretch[3];
    int32_t n, n_entry; /* stretches; sum of their entries */
};

/* Tiles of the softmax of some rows, all that they see, kept until it is complete. */
struct wnw__attend_kept {
    float *tile;  /* one tile after the other, see wnw__attend_kept_tile */
    int32_t n;    /* of them so far */
    int32_t rows; /* queries that a tile has room for */
    /* the run's far keys in bytes, for all of its stretches: attend_far.c; NULL: each converts them again */
    float *keys;
};

/* A kept tile is its probabilities [rows][WNW_TILE], the rows' maxima and, in the rest, its entries: the first, how
 * many. */
enum { WNW_KEPT_HEAD = 16 };
static inline float *wnw__attend_kept_tile(const struct wnw__attend_kept *k, int32_t i)
{
    return k->tile + (size_t)i * ((size_t)k->rows * (WNW_TILE + 1) + WNW_KEPT_HEAD);
}
static inline float *wnw__attend_kept_max(const struct wnw__attend_kept *k, int32_t i)
{
    return wnw__attend_kept_tile(k, i) + (size_t)k->rows * WNW_TILE;
}
static inline int32_t *wnw__attend_kept_entries(const struct wnw__attend_kept *k, int32_t i)
{
    return (int32_t *)(void *)(wnw__attend_kept_max(k, i) + k->rows);
}

/* What scores in bytes need: attend_far.c. */
struct wnw__attend_far {
    bool on;                        /* the current queries are here */
    uint32_t *q;                    /* [rows][d / 4] in panels */
    float *q_scale, *q_square;      /* [rows] */
    int32_t *q_first;               /* [rows] */
    struct wnw__score8_size q_most; /* of all rows */
    float *k_room;                  /* room for a tile of keys in bytes */
    const uint32_t *k;              /* [d / 4][WNW_TILE] of the current tile */
    const float *k_scale;           /* [WNW_TILE] */
    uint8_t *taken;                 /* [rows] whether its scores for the current tile are in bytes */
};

/* One thread's scratch. */
struct wnw__attend_work {
    float *q;              /* [rows][d], or panels: wnw__attend_seal */
    float *kf, *kt;        /* [WNW_TILE][d], [d][WNW_TILE] or its pairs */
    float *vf;             /* [WNW_TILE][ld] or its pairs */
    float *s;              /* [rows][WNW_TILE] */
    uint32_t *pairs;       /* [rows][WNW_TILE / 2] s in bf16 */
    float *o;              /* [rows][ld] */
    float *m, *l;          /* [rows] running maximum and sum */
    float *corr;           /* [rows] */
    int32_t *from, *to;    /* [rows] entries that the row sees: from <= i < to */
    int32_t *quantised_to; /* [rows] wnw__cache_quantised_to of the row */
    struct wnw__attend_far far;
    struct wnw__attend_kept *kept; /* where tiles go that are to be kept; NULL: `s` is used again and again */
};

/* The queries of rows t0 .. t0+n-1 of a slice in the group of KV head ih. */
struct wnw__attend_rows {
    int32_t ih, t0, n;
    bool sinks; /* their softmax begins with the sinks; not in pieces after a head's first */
};

/* Whether a slice of n_row rows takes the decoding path; if so, one of fewer rows does too. */
static inline bool wnw__attend_is_decode(const struct wnw__attend_shared *sh, int32_t n_row)
{
    return n_row == 1 ||
           (n_row <= WNW_ATTEND_DECODE_TOKENS && n_row * (int64_t)sh->group <= WNW_ATTEND_DECODE_ROWS);
}

static inline struct wnw__attend_job wnw__attend_job_of(const struct wnw__attend_op *op, int32_t i_slice)
{
    const struct wnw__attend_slice *slice = &op->batch->slice[i_slice];
    const struct wnw__cache *c = slice->cache;
    return (struct wnw__attend_job){.op = op,
                                    .slice = slice,
                                    .layer = &c->layers[op->il],
                                    .type = c->type,
                                    .row_bytes = c->row_bytes,
                                    .i_slice = i_slice};
}

static inline int32_t wnw__attend_round_up(int32_t x, int32_t to)
{
    return (x + to - 1) / to * to;
}

/* ---- The scores of many queries ---- */

/* Whether products with panels of queries are bf16: not for few rows, which take longer to read than to multiply. */
static inline bool wnw__attend_is_bf16(const struct wnw__attend_job *job)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    return sh->bf16 && job->type != WNW_KV_F32 && !wnw__attend_is_decode(sh, job->slice->n_row);
}

static inline int32_t wnw__attend_panel_rows(const struct wnw__attend_job *job)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    return wnw__attend_is_bf16(job) ? sh->bf16->panel_rows : sh->vec->panel_rows;
}

/* Sets row i of panels of mr rows, [panels][d][mr], to scale * src[d]. */
static inline void wnw__attend_pack(float *panels, int32_t i, int32_t mr, const float *src, int32_t d,
                                    float scale)
{
    float *to = panels + (size_t)(i - i % mr) * (size_t)d + i % mr;
    for (int32_t c = 0; c < d; c++)
        to[(size_t)c * (size_t)mr] = scale * src[c];
}

/* A query as it is multiplied with the stored keys: q[d] itself, or rotated as they are in room[d]. */
static inline const float *wnw__attend_query(const struct wnw__attend_job *job, const float *q, float *room)
{
    const int32_t d = job->op->shared->dims.model.d, block = job->slice->cache->k_block;
    if (block == 0)
        return q;
    memcpy(room, q, (size_t)d * sizeof *q);
    job->op->shared->vec->hadamard(room, d, block);
    return room;
}

/* Turns a sum of stored values out[d] back into one of values. */
static inline void wnw__attend_unrotate(const struct wnw__attend_job *job, float *out)
{
    if (job->slice->cache->v_block > 0)
        job->op->shared->vec->hadamard(out, job->op->shared->dims.model.d, job->slice->cache->v_block);
}

/* Turns panels of n_query queries, complete with zeros, into what wnw__attend_scores takes. */
void wnw__attend_seal(const struct wnw__attend_job *job, float *panels, int32_t n_query);
/* Loads a tile of stored keys into w->kt. */
void wnw__attend_keys(const struct wnw__attend_job *job, const struct wnw__kv_rows *rows,
                      const struct wnw__attend_work *w);
/* s[n_query, rounded up to whole panels][WNW_TILE] = panels . w->kt */
void wnw__attend_scores(const struct wnw__attend_job *job, const float *panels, int32_t n_query,
                        const struct wnw__attend_work *w, float *s);

/* Adds the biases of n entries, if any, to the scores s[n_query][WNW_TILE]. */
static inline void wnw__attend_add_bias(float *s, int32_t n_query, const float *bias, int32_t n)
{
    for (int32_t i = 0; bias && i < n_query; i++, s += WNW_TILE)
        for (int32_t c = 0; c < n; c++)
            s[c] += bias[c];
}

/* Whether what the kernels for many queries take is made of stored rows without going by way of float32. */
static inline bool wnw__attend_is_direct(const struct wnw__kv_rows *rows, int32_t d)
{
    return rows->type == WNW_KV_F16 && d % WNW_TILE_PAD == 0;
}

/* ---- The form of scores ---- */

/* Queries whose scores are rows of a tile: row r is of query head `head` + r % n_head of the slice's token t0 + r /
 * n_head. */
struct wnw__attend_queries {
    int32_t head, n_head, t0, n;
};
/* Begins the softmax of rows that have seen nothing yet, but their sinks where there are some. */
void wnw__attend_begin(const struct wnw__attend_job *job, const struct wnw__attend_queries *q, float *m,
                       float *l);
/* Turns products s [q->n][WNW_TILE] with entries at .. at+n-1 of KV head ih into scores. */
void wnw__attend_form(const struct wnw__attend_job *job, const struct wnw__attend_queries *q, int32_t ih,
                      int32_t at, int32_t n, float *s);

/* ---- Scores of far entries ---- */

/* Floats of n tiles of keys in bytes, and a mark in each that it holds none yet. */
size_t wnw__attend_far_floats(int32_t d, int32_t n);
void wnw__attend_far_clear(float *tiles, int32_t d, int32_t n);
/* Takes panels [panels][d][wnw__attend_panel_rows] of n_query queries, complete with zeros, if some of what they see may
 * be far. */
void wnw__attend_far_load(const struct wnw__attend_job *job, const float *panels, int32_t n_query,
                          struct wnw__attend_work *w);
/* Decides which of those queries' scores with the stored rows, which are entries from `at` on, are computed in bytes.
 * Returns their number. */
int32_t wnw__attend_far_choose(const struct wnw__attend_job *job, const struct wnw__kv_rows *rows, int32_t at,
                               int32_t n_query, struct wnw__attend_work *w);
/* Sets these scores, `chosen` many, in w->s. */
void wnw__attend_far_scores(const struct wnw__attend_job *job, int32_t chosen, int32_t n_query,
                            struct wnw__attend_work *w);

/* ---- One thread ---- */

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

/* The first entry of KV head ih that row t of the slice sees. New rows count as entries len, len+1, ... */
int32_t wnw__attend_first(const struct wnw__attend_job *job, int32_t ih, int32_t t);

/* Loads the scaled queries and the visible ranges of r into w and empties its softmax. q is as in
 * wnw__attend_run. */
void wnw__attend_load(const struct wnw__attend_job *job, const struct wnw__attend_rows *r, const float *q,
                      struct wnw__attend_work *w);
/* Sets *p to the entries from .. to-1 of KV head ih as rows t0 .. t0+n-1 of the slice see them. */
void wnw__attend_stretches_of(const struct wnw__attend_job *job, const struct wnw__attend_rows *r,
                              int32_t from, int32_t to, struct wnw__attend_stretches *p);
/* Takes entries first .. last-1 of p, which are counted through its stretches, into the softmax and output of the
 * queries in w. */
void wnw__attend_stream(const struct wnw__attend_job *job, const struct wnw__attend_rows *r,
                        const struct wnw__attend_stretches *p, int32_t first, int32_t last,
                        struct wnw__attend_work *w);

/* Writes rows first .. last-1 of the slice after the entries of KV head ih. k and v are as in
 * wnw__attend_run. */
void wnw__attend_write(const struct wnw__attend_job *job, int32_t ih, int32_t first, int32_t last,
                       const float *k, const float *v);

/* ---- A slice of few rows: units are pieces of a head's entries ---- */

/* The entries of one head that a slice sees, cut into n pieces of `size` (the last may be shorter). */
struct wnw__attend_cut {
    struct wnw__attend_stretches p;
    int32_t size, n;
};
/* One of them. */
struct wnw__attend_piece {
    int32_t ih, i; /* KV head; its i-th piece */
    const struct wnw__attend_cut *cut;
};
/* Arrays of an operation, as in wnw__attend_run. */
struct wnw__attend_arrays {
    const float *q, *k, *v;
    float *out;
};
struct wnw__attend_cut wnw__attend_cut(const struct wnw__attend_job *job, int32_t ih);
/* Stores the new rows that fall into the piece and quantises what leaves the tail in it, unless k and v are NULL,
 * and computes the piece's partial sums. The thread that finishes the last piece of a head writes `out`. */
void wnw__attend_decode(const struct wnw__attend_job *job, const struct wnw__attend_piece *piece,
                        const struct wnw__attend_arrays *x, struct wnw__attend_work *w);

/* ---- A slice of many rows: units are runs of rows and one KV head; all rows have been stored ---- */

/* A run is at most this number of rows. */
static inline int32_t wnw__attend_run_length(const struct wnw__attend_shared *sh)
{
    return sh->group < WNW_ATTEND_ROWS ? WNW_ATTEND_ROWS / sh->group : 1;
}
static inline int32_t wnw__attend_runs(const struct wnw__attend_shared *sh, int32_t n_row)
{
    const int32_t step = wnw__attend_run_length(sh);
    return (n_row + step - 1) / step;
}
/* Takes everything that the rows r see, and writes their output. */
void wnw__attend_rows(const struct wnw__attend_job *job, const struct wnw__attend_rows *r, const float *q,
                      float *out, struct wnw__attend_work *w);

/* ---- Columns of a slice of many rows ---- */

/* Floats that columns need: all slices together; kept tiles of one thread. */
struct wnw__attend_columns_room {
    size_t columns, tiles;
};
/* Sets where the columns of a slice begin in *p, whose n is set, and adds their size to *room. */
void wnw__attend_reserve_columns(const struct wnw__attend_shared *sh, const struct wnw__attend_slice *s,
                                 struct wnw__attend_scratch *p, struct wnw__attend_columns_room *room);
/* wnw__attend_rows of a run, and its columns; ith: of the thread. */
void wnw__attend_run_columns(const struct wnw__attend_job *job, const struct wnw__attend_rows *run,
                             const float *q, float *out, int ith, struct wnw__attend_work *w);
/* The statistics of one run and query head h: floats for the entries that the run's last row sees. kind: a single
 * WNW_COLUMN_*, which the slice asked for. */
float *wnw__attend_columns_of(const struct wnw__attend_job *job, unsigned kind, int32_t run, int32_t h);

#endif
