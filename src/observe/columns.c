/* SPDX-License-Identifier: MIT */
/* See columns.h. Rows are ordered by query head here, so that a column of a head is added up in registers. */
#include "observe/columns.h"

#include "attend/attend_impl.h"
#include "base/clamp.h"
#include "base/vectors.h"
#include "kernel/noise.h"
#include "observe/recorders.h"
#include "observe/source_impl.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens of one head that are multiplied with a tile together. */
#define RUN WNW_ATTEND_ROWS
/* Tiles per unit of work. Where a tile has few rows, a unit has many tiles, so that taking one is cheap. */
enum { TILES_FEW = 8, TILES_MANY = 1 };

struct wnw__columns {
    struct wnw__shape model;
    int32_t n_ubatch, n_embd;
    const struct wnw__columns_want *wants; /* [n_layer] or NULL */
    float *packed;                         /* [n_head][runs][RUN][d] queries as panels */
    float *row_max, *row_norm; /* [n_head][n_ubatch] m and 1 / l, used if the attention does not leave them */
    float *per_length;         /* [n_ubatch] 1 / length of a token's input, where it is wanted */
    atomic_int next, left;     /* next unit to take; finished threads; the last one resets both */
};

/* One stage of one layer. */
struct sweep {
    struct wnw__columns *c;
    const struct wnw__columns_want *want; /* NULL = everything */
    struct wnw__attend_job job;
    struct wnw__attend_shared *sh; /* scratch of the threads */
    const float *q;                /* [n_tok][n_head][d] */
    int32_t n_tok;
    float *row_max, *row_norm; /* query head h and token t have theirs at h * row_stride + t */
    size_t row_stride;
};

static int32_t n_runs(int32_t n_tok)
{
    return (n_tok + RUN - 1) / RUN;
}

/* Whether the rows of all query heads of a group together are at most WNW_ATTEND_NT_ROWS. Then they are
 * multiplied with the stored keys directly. */
static bool is_few(int32_t n_tok, int32_t group)
{
    return (int64_t)n_tok * group <= WNW_ATTEND_NT_ROWS;
}

static const struct wnw__columns_want *want_of(const struct wnw__columns *c, int32_t il)
{
    return c->wants ? &c->wants[il] : NULL;
}

/* Whether the attention has left its softmax and that is the softmax that is wanted. */
static bool softmax_is_known(const struct wnw__columns *c, int32_t il, const struct wnw__record_pass *pass)
{
    const struct wnw__columns_want *want = want_of(c, il);
    return pass->softmax_known && !(want && want->seen);
}

/* Whether the attention has left the columns themselves. */
static bool columns_are_known(const struct wnw__columns *c, int32_t il, const struct wnw__record_pass *pass)
{
    return pass->columns && softmax_is_known(c, il, pass);
}

static struct sweep sweep_of(struct wnw__columns *c, const struct wnw__record_rows *r)
{
    struct sweep s = {.c = c,
                      .want = want_of(c, r->il),
                      .job = wnw__attend_job_of(r->attend, r->i_slice),
                      .sh = r->attend->shared,
                      .q = r->q,
                      .n_tok = r->pass->n,
                      .row_max = c->row_max,
                      .row_norm = c->row_norm,
                      .row_stride = (size_t)r->pass->n};
    if (softmax_is_known(c, r->il, r->pass)) {
        s.row_stride = (size_t)r->attend->batch->n_row;
        s.row_max = s.sh->row_max + s.job.slice->first_row;
        s.row_norm = s.sh->row_norm + s.job.slice->first_row;
    }
    return s;
}

/* Takes the next unit of the sweep; -1 when all n are taken. Each recorder counts its own units, because
 * other threads may work for other sequences in the same stage. */
static int32_t take_unit(struct wnw__columns *c, int32_t n)
{
    const int i = atomic_fetch_add_explicit(&c->next, 1, memory_order_relaxed);
    return i < n ? i : -1;
}

/* Every thread calls this once, after its last take. */
static void leave(struct wnw__columns *c, int nth)
{
    if (atomic_fetch_add_explicit(&c->left, 1, memory_order_acq_rel) + 1 < nth)
        return;
    atomic_store_explicit(&c->next, 0, memory_order_relaxed);
    atomic_store_explicit(&c->left, 0, memory_order_release);
}

/* The queries of head h from token t0 on, as panels. */
static float *packed_run(const struct sweep *s, int32_t h, int32_t t0)
{
    const size_t run = (size_t)h * (size_t)n_runs(s->n_tok) + (size_t)(t0 / RUN);
    return s->c->packed + run * RUN * (size_t)s->c->model.d;
}

/* At most a tile of entries that are stored alike, and the tokens that see them so: tokens t_from .. t_to-1. */
struct tile {
    struct wnw__kv_rows rows;
    int32_t ih, j;     /* entries j .. j + rows.n - 1 of KV head ih */
    const float *bias; /* theirs; NULL = no entry has one */
    int32_t t_from, t_to;
};

/* Sets the tiles that begin with entry j < to: one, or two where the entries leave the tail during these tokens,
 * which is when later tokens see them quantised. Returns how many. */
static int tiles_at(const struct sweep *s, int32_t ih, int32_t j, int32_t to, struct tile tiles[2])
{
    const struct wnw__cache *c = s->job.slice->cache;
    const struct wnw__kv_layer *l = s->job.layer;
    const float *bias = wnw__cache_bias(l, ih);
    const int32_t last = to - j < WNW_TILE ? to : j + WNW_TILE;
    tiles[0] = (struct tile){.rows = wnw__cache_rows(c, l, ih, j, last),
                             .ih = ih,
                             .j = j,
                             .bias = bias ? bias + j : NULL,
                             .t_to = s->n_tok};
    const int32_t first_to = wnw__cache_quantised_to(c, l, ih, 0),
                  last_to = wnw__cache_quantised_to(c, l, ih, s->n_tok - 1);
    if (c->n_tail == 0 || j >= last_to || j + tiles[0].rows.n <= first_to)
        return 1;
    if (j < first_to) { /* nothing is quantised yet: the first entries and the last lie together */
        tiles[0].rows.n = first_to - j;
        return 1;
    }
    /* Entries of one block, which become quantised for the same token. */
    const int32_t block_end = first_to + ((j - first_to) / WNW_CACHE_BLOCK + 1) * WNW_CACHE_BLOCK;
    int32_t t = 0;
    while (wnw__cache_quantised_to(c, l, ih, t) < block_end)
        t++;
    if (tiles[0].rows.n > block_end - j)
        tiles[0].rows.n = block_end - j;
    tiles[1] = tiles[0];
    tiles[1].rows = wnw__cache_quantised_rows(c, l, ih, j, j + tiles[0].rows.n);
    tiles[0].t_to = tiles[1].t_from = t;
    return 2;
}

/* Hides a tile from those of its rows whose tokens, t0 and the following, see its entries stored otherwise. */
static void hide_from(float *s, int32_t rows, int32_t t0, const struct tile *tile)
{
    for (int32_t r = 0; r < rows; r++) {
        if (t0 + r >= tile->t_from && t0 + r < tile->t_to)
            continue;
        for (int32_t c = 0; c < WNW_TILE; c++)
            s[(int64_t)r * WNW_TILE + c] = -INFINITY;
    }
}

/* Hides columns of a tile: row r sees the first min(n, first + r) of them. */
static void hide(float *s, int32_t rows, int32_t first, int32_t n)
{
    if (first >= WNW_TILE && n == WNW_TILE)
        return;
    for (int32_t r = 0; r < rows; r++) {
        const int32_t to = (int32_t)wnw__clamp((int64_t)first + r, 0, n);
        for (int32_t c = to; c < WNW_TILE; c++)
            s[(int64_t)r * WNW_TILE + c] = -INFINITY;
    }
}

/* ---- Rows: queries into panels, and their softmax where the attention has not left it ---- */

struct run {
    int32_t h, t0, rows; /* tokens t0 .. t0+rows-1 of query head h */
};

/* room[d] */
static void pack(const struct sweep *s, const struct run *r, float *dst, float *room)
{
    const int32_t d = s->c->model.d, mr = wnw__attend_panel_rows(&s->job);
    const float scale = s->job.op->scale;
    if (r->rows % mr)
        memset(dst + (size_t)(r->rows - r->rows % mr) * (size_t)d, 0, (size_t)mr * (size_t)d * sizeof *dst);
    for (int32_t i = 0; i < r->rows; i++) {
        const float *q = s->q + ((int64_t)(r->t0 + i) * s->c->model.n_head + r->h) * d;
        wnw__attend_pack(dst, i, mr, wnw__attend_query(&s->job, q, room), d, scale);
    }
    wnw__attend_seal(&s->job, dst, r->rows);
}

/* Turns products of the tokens of a run with a tile's entries into scores. */
static void form(const struct sweep *s, const struct run *r, const struct tile *tile, float *scores)
{
    const struct wnw__attend_queries queries = {.head = r->h, .n_head = 1, .t0 = r->t0, .n = r->rows};
    wnw__attend_form(&s->job, &queries, tile->ih, tile->j, tile->rows.n, scores);
}

static void stream_tile(const struct sweep *s, const struct run *r, const struct tile *tile,
                        const float *panels, struct wnw__attend_work *w)
{
    const int32_t first = s->job.layer->len[tile->ih] + r->t0 + 1;
    wnw__attend_keys(&s->job, &tile->rows, w);
    wnw__attend_scores(&s->job, panels, r->rows, w, w->s);
    form(s, r, tile, w->s);
    wnw__attend_add_bias(w->s, r->rows, tile->bias, tile->rows.n);
    hide(w->s, r->rows, first - tile->j, tile->rows.n);
    hide_from(w->s, r->rows, r->t0, tile);
    s->sh->vec->softmax_tile(w->s, r->rows, w->m, w->l, w->corr);
}

/* Takes entries e.from .. e.to-1 into the running softmax of the rows. */
static void stream(const struct sweep *s, const struct run *r, struct wnw__range e, const float *panels,
                   struct wnw__attend_work *w)
{
    struct tile tiles[2];
    for (int32_t j = e.from; j < e.to; j += tiles[0].rows.n) {
        const int n = tiles_at(s, r->h / s->sh->group, j, e.to, tiles);
        for (int i = 0; i < n; i++)
            stream_tile(s, r, &tiles[i], panels, w);
    }
}

static void rows_unit(const struct sweep *s, const struct run *r, struct wnw__attend_work *w)
{
    const struct wnw__columns_want *want = s->want && s->want->seen ? s->want : NULL;
    const int32_t ih = r->h / s->sh->group, end = s->job.layer->len[ih] + r->t0 + r->rows;
    float *panels = packed_run(s, r->h, r->t0);
    pack(s, r, panels, w->kf);
    if (s->row_max != s->c->row_max)
        return; /* the attention has left m and 1 / l */
    for (int32_t i = 0; i < s->sh->rows; i++) {
        w->m[i] = -FLT_MAX;
        w->l[i] = 0.0f;
    }
    const struct wnw__attend_queries queries = {.head = r->h, .n_head = 1, .t0 = r->t0, .n = r->rows};
    wnw__attend_begin(&s->job, &queries, w->m, w->l);
    for (int i = 0; want && i < WNW_COLUMN_RANGES; i++)
        stream(s, r, want->seen[ih][i], panels, w);
    stream(s, r, (struct wnw__range){.from = want ? want->own[ih] : 0, .to = end}, panels, w);
    const size_t at = (size_t)r->h * s->row_stride + (size_t)r->t0;
    for (int32_t i = 0; i < r->rows; i++) {
        s->row_max[at + (size_t)i] = w->m[i];
        s->row_norm[at + (size_t)i] = (want && want->by_input ? s->c->per_length[r->t0 + i] : 1.0f) / w->l[i];
    }
}

static void sweep_rows(const struct sweep *s, int ith, int nth)
{
    const int32_t n_head = s->c->model.n_head, n_run = n_runs(s->n_tok);
    if (ith < s->sh->dims.n_threads) {
        struct wnw__attend_work w = wnw__attend_work_at(s->sh, ith);
        for (int32_t u; (u = take_unit(s->c, n_run * n_head)) >= 0;) {
            struct run r = {.h = u % n_head, .t0 = (n_run - 1 - u / n_head) * RUN};
            r.rows = s->n_tok - r.t0 < RUN ? s->n_tok - r.t0 : RUN;
            rows_unit(s, &r, &w);
        }
    }
    leave(s->c, nth);
}

/* ---- Columns ---- */

static struct wnw__range columns_of(const struct sweep *s, int32_t ih)
{
    const struct wnw__range all = {0, s->job.layer->len[ih] + s->n_tok};
    return s->want && s->want->columns ? s->want->columns[ih] : all;
}

/* The numbers of entries i, i + 1, ... for query head g of the group; NULL = not wanted. */
static float *numbers_at(const struct sweep *s, enum wnw__aux kind, int32_t ih, int32_t g, int32_t i)
{
    const struct wnw__kv_layer *layer = s->job.layer;
    if (!s->want)
        return layer->aux[kind] ? wnw__cache_aux(layer, kind, g) + layer->off[ih] + i : NULL;
    float *own = kind == WNW_AUX_ATTN_SUM ? s->want->sum : s->want->max;
    return own ? own + (int64_t)(ih * s->sh->group + g) * s->want->n + i : NULL;
}

static void add_tile(const struct sweep *s, int32_t ih, int32_t g, int32_t j, int32_t n, const float *sum,
                     const float *max)
{
    float *to_sum = numbers_at(s, WNW_AUX_ATTN_SUM, ih, g, j),
          *to_max = numbers_at(s, WNW_AUX_ATTN_MAX, ih, g, j);
    for (int32_t c = 0; to_sum && c < n; c++)
        to_sum[c] += sum[c];
    for (int32_t c = 0; to_max && c < n; c++) {
        /* Rounding: m may come from another kernel. What is divided by a length may be above 1. */
        const float p = max[c] < 1.0f || (s->want && s->want->by_input) ? max[c] : 1.0f;
        to_max[c] = p > to_max[c] ? p : to_max[c];
    }
}

/* Adds up the columns of a tile. If `few`, the rows of the group are in w->q. */
static void column_tile(const struct sweep *s, const struct tile *tile, bool few,
                        const struct wnw__attend_work *w)
{
    const struct wnw__vec *vec = s->sh->vec;
    const int32_t d = s->c->model.d, group = s->sh->group, first = s->job.layer->len[tile->ih] + 1 - tile->j;
    if (few)
        vec->mul_rows(tile->rows.type, w->q, group * s->n_tok, tile->rows.k, tile->rows.row_bytes,
                      tile->rows.n, d, 1.0f, w->s, WNW_TILE);
    else
        wnw__attend_keys(&s->job, &tile->rows, w);
    for (int32_t g = 0; g < group; g++) {
        const int32_t h = tile->ih * group + g;
        float sum[WNW_TILE] = {0}, max[WNW_TILE] = {0};
        for (int32_t t0 = 0; t0 < s->n_tok; t0 += RUN) {
            const int32_t rows = s->n_tok - t0 < RUN ? s->n_tok - t0 : RUN;
            const size_t at = (size_t)h * s->row_stride + (size_t)t0;
            float *p = few ? w->s + (int64_t)g * s->n_tok * WNW_TILE : w->s;
            if (first + t0 + rows - 1 <= 0 || t0 + rows <= tile->t_from || t0 >= tile->t_to)
                continue; /* these queries come before the first of the entries, or see them stored otherwise */
            if (!few)
                wnw__attend_scores(&s->job, packed_run(s, h, t0), rows, w, p);
            form(s, &(struct run){.h = h, .t0 = t0, .rows = rows}, tile, p);
            wnw__attend_add_bias(p, rows, tile->bias, tile->rows.n);
            hide(p, rows, first + t0, tile->rows.n);
            hide_from(p, rows, t0, tile);
            vec->column_tile(p, rows, s->row_max + at, s->row_norm + at, sum, max);
        }
        wnw__noise("sums of columns", sum, WNW_TILE, 1, WNW_TILE);
        wnw__noise("maxima of columns", max, WNW_TILE, 1, WNW_TILE);
        add_tile(s, tile->ih, g, tile->j, tile->rows.n, sum, max);
    }
}

static void column_tiles(const struct sweep *s, int32_t ih, int32_t from, int32_t to, bool few,
                         const struct wnw__attend_work *w)
{
    struct tile tiles[2];
    for (int32_t j = from; j < to; j += tiles[0].rows.n) {
        const int n = tiles_at(s, ih, j, to, tiles);
        for (int i = 0; i < n; i++)
            column_tile(s, &tiles[i], few, w);
    }
}

/* room[d] */
static void load_few(const struct sweep *s, int32_t ih, float *dst, float *room)
{
    const int32_t d = s->c->model.d, group = s->sh->group;
    for (int32_t i = 0; i < group * s->n_tok; i++) {
        const float *src = wnw__attend_query(
            &s->job, s->q + ((int64_t)(i % s->n_tok) * s->c->model.n_head + ih * group + i / s->n_tok) * d,
            room);
        for (int32_t c = 0; c < d; c++)
            dst[(int64_t)i * d + c] = s->job.op->scale * src[c];
    }
}

static void sweep_columns(const struct sweep *s, int ith, int nth)
{
    const int32_t n_head_kv = s->sh->dims.model.n_head_kv;
    const bool few = is_few(s->n_tok, s->sh->group);
    const int32_t size = (few ? TILES_FEW : TILES_MANY) * WNW_TILE;
    int32_t longest = 0;
    for (int32_t ih = 0; ih < n_head_kv; ih++) {
        const struct wnw__range e = columns_of(s, ih);
        longest = e.to - e.from > longest ? e.to - e.from : longest;
    }
    if (ith < s->sh->dims.n_threads) {
        struct wnw__attend_work w = wnw__attend_work_at(s->sh, ith);
        for (int32_t u; (u = take_unit(s->c, (longest + size - 1) / size * n_head_kv)) >= 0;) {
            const int32_t ih = u % n_head_kv;
            const struct wnw__range e = columns_of(s, ih);
            const int32_t from = e.from + u / n_head_kv * size, to = e.to - from < size ? e.to : from + size;
            if (few && from < to)
                load_few(s, ih, w.q, w.kf);
            column_tiles(s, ih, from, to, few, &w);
        }
    }
    leave(s->c, nth);
}

/* ---- Columns that the attention has left ---- */

/* Adds those of one run: entries from .. to - 1 of query head h. */
static void add_run(const struct sweep *s, unsigned columns, int32_t run, int32_t h, int32_t from, int32_t to)
{
    const int32_t group = s->sh->group;
    float *sum = numbers_at(s, WNW_AUX_ATTN_SUM, h / group, h % group, 0),
          *max = numbers_at(s, WNW_AUX_ATTN_MAX, h / group, h % group, 0);
    if (sum && columns & WNW_COLUMN_SUMS) {
        const float *more = wnw__attend_columns_of(&s->job, WNW_COLUMN_SUMS, run, h);
        for (int32_t i = from; i < to; i++)
            sum[i] += more[i];
    }
    if (max && columns & WNW_COLUMN_MAXIMA) {
        const float *other = wnw__attend_columns_of(&s->job, WNW_COLUMN_MAXIMA, run, h);
        for (int32_t i = from; i < to; i++) {
            const float p = other[i] < 1.0f ? other[i] : 1.0f; /* rounding */
            max[i] = p > max[i] ? p : max[i];
        }
    }
}

/* Thread ith of nth takes its share of every head's entries, run after run. */
static void gather_columns(const struct sweep *s, unsigned columns, int ith, int nth)
{
    const int32_t n_run = wnw__attend_runs(s->sh, s->n_tok), step = wnw__attend_run_length(s->sh);
    for (int32_t h = 0; h < s->c->model.n_head; h++) {
        const struct wnw__range e = columns_of(s, h / s->sh->group);
        const int32_t len = s->job.layer->len[h / s->sh->group], n = e.to - e.from;
        const int32_t from = e.from + (int32_t)((int64_t)n * ith / nth),
                      to = e.from + (int32_t)((int64_t)n * (ith + 1) / nth);
        for (int32_t run = 0; run < n_run; run++) {
            const int32_t seen = len + (s->n_tok < (run + 1) * step ? s->n_tok : (run + 1) * step);
            add_run(s, columns, run, h, from, to < seen ? to : seen);
        }
    }
}

/* ---- The recorder ---- */

void wnw__columns_free(struct wnw__columns *c)
{
    if (!c)
        return;
    free(c->packed);
    free(c->row_max);
    free(c->per_length);
    free(c);
}

int wnw__columns_new(struct wnw__columns **out, const struct wnw__record_shape *shape,
                     const struct wnw__columns_want *wants)
{
    struct wnw__columns *c = *out = calloc(1, sizeof *c);
    const size_t n_row = (size_t)shape->model.n_head * (size_t)shape->n_ubatch;
    if (c) {
        c->model = shape->model;
        c->n_ubatch = shape->n_ubatch;
        c->wants = wants;
        c->packed = malloc((size_t)shape->model.n_head * (size_t)n_runs(shape->n_ubatch) * RUN *
                           (size_t)shape->model.d * sizeof *c->packed);
        c->row_max = calloc(2 * n_row, sizeof *c->row_max);
        c->row_norm = c->row_max ? c->row_max + n_row : NULL;
        c->per_length = malloc((size_t)shape->n_ubatch * sizeof *c->per_length);
        c->n_embd = shape->n_embd;
        atomic_init(&c->next, 0);
        atomic_init(&c->left, 0);
    }
    if (c && c->packed && c->row_max && c->per_length)
        return WNW_OK;
    wnw__columns_free(c);
    *out = NULL;
    return wnw__fail(WNW_E_NOMEM, "no memory for attention statistics");
}

static bool needed(const struct wnw__record_needs *needs, const struct wnw__record_shape *shape,
                   struct wnw__record_arg *arg)
{
    (void)shape;
    *arg = (struct wnw__record_arg){0};
    return needs->merged.flags & WNW_NEED_ATTN_NUMBERS;
}

static void close_columns(void *rec)
{
    wnw__columns_free(rec);
}

static int open_columns(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    struct wnw__columns *c;
    (void)arg;
    const int rc = wnw__columns_new(&c, shape, NULL);
    *rec = c;
    return rc;
}

/* The numbers belong to the cache and are copied with it. */
static int copy_columns(void **rec, const void *from, const struct wnw__record_shape *shape)
{
    (void)from;
    return open_columns(rec, shape, NULL);
}

/* Before any column is begun, the softmax of all rows must be known, and many rows must be packed. So the
 * rows are a stage of their own, which is left out for few rows whose softmax is known. */
static int stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    const struct wnw__columns *c = rec;
    const struct wnw__columns_want *want = want_of(c, il);
    if (point == WNW_POINT_INPUT)
        return want && want->by_input && wnw__layer_takes_part(&c->model, il);
    if (point != WNW_POINT_ATTENTION || !wnw__layer_takes_part(&c->model, il))
        return 0;
    if (columns_are_known(c, il, pass))
        return 1;
    return softmax_is_known(c, il, pass) && is_few(pass->n, wnw__shape_group(&c->model)) ? 1 : 2;
}

static void take_lengths(struct wnw__columns *c, const struct wnw__record_rows *r, int ith, int nth)
{
    for (int32_t t = ith; t < r->pass->n; t += nth) {
        const double length = wnw__norm(r->q + (size_t)t * r->token_stride, c->n_embd);
        c->per_length[t] = length > 0 ? (float)(1 / length) : 0;
    }
}

static void take(void *rec, const struct wnw__record_rows *r, int ith, int nth)
{
    if (r->point == WNW_POINT_INPUT) {
        take_lengths(rec, r, ith, nth);
        return;
    }
    const struct sweep s = sweep_of(rec, r);
    if (columns_are_known(rec, r->il, r->pass))
        gather_columns(&s, r->pass->columns, ith, nth);
    else if (r->stage + 1 == stages(rec, r->point, r->il, r->pass))
        sweep_columns(&s, ith, nth);
    else
        sweep_rows(&s, ith, nth);
}

/* Every query is multiplied with every key that it sees, and once more where the attention has not left its
 * softmax; neither where it has left the columns. What the ranges of a second pass leave out is counted too. */
static double ops(const void *rec, int32_t il, const struct wnw__record_pass *pass)
{
    const struct wnw__columns *c = rec;
    const struct wnw__kv_layer *layer = &pass->cache->layers[il];
    const int32_t group = wnw__shape_group(&c->model);
    double pairs = 0;
    if (stages(rec, WNW_POINT_ATTENTION, il, pass) == 0 || columns_are_known(c, il, pass))
        return 0;
    for (int32_t ih = 0; ih < pass->cache->n_head_kv; ih++)
        pairs += wnw__attend_pairs(layer, ih, pass->n);
    return (softmax_is_known(c, il, pass) ? 2.0 : 4.0) * c->model.d * group * pairs;
}

/* The attention's columns are those of its own softmax over everything. */
static unsigned reads_columns(const void *rec, const struct wnw__record_pass *pass)
{
    const struct wnw__columns *c = rec;
    unsigned columns = 0;
    for (int32_t il = pass->from; il < pass->to; il++) {
        const struct wnw__columns_want *want = want_of(c, il);
        if (!wnw__layer_takes_part(&c->model, il))
            continue;
        if (want && want->seen)
            return 0;
        if (want ? want->sum != NULL : pass->cache->aux_planes[WNW_AUX_ATTN_SUM] > 0)
            columns |= WNW_COLUMN_SUMS;
        if (want ? want->max != NULL : pass->cache->aux_planes[WNW_AUX_ATTN_MAX] > 0)
            columns |= WNW_COLUMN_MAXIMA;
    }
    return columns;
}

/* Copies the numbers that the cache keeps per query head to *out, [n_head][n]; *out is unchanged if none are
 * kept. */
static int fill_numbers(struct wnw__source *source, const wnw_observation *obs, enum wnw__aux kind,
                        const float **out)
{
    const struct wnw__cache *c = source->of.cache;
    const struct wnw__kv_layer *l = &c->layers[obs->il];
    const int32_t group = wnw__shape_group(&source->shape);
    float *to;
    if (c->aux_planes[kind] == 0)
        return WNW_OK;
    WNW_TRY(wnw__source_need(source, (int)kind, (size_t)obs->n_head * (size_t)obs->n + 1, &to));
    *out = to;
    for (int32_t h = 0; h < obs->n_head; h++, to += obs->n) {
        const int32_t ih = h / group, len = l->len[ih];
        memcpy(to, wnw__cache_aux(l, kind, h % group) + l->off[ih], (size_t)len * sizeof *to);
        memset(to + len, 0, (size_t)(obs->n - len) * sizeof *to);
    }
    return WNW_OK;
}

static int fill(void *rec, struct wnw__source *source, const wnw_needs *needs, const bool *heads,
                wnw_observation *obs)
{
    (void)rec;
    (void)heads;
    if (needs->flags & WNW_NEED_ATTN_SUM)
        WNW_TRY(fill_numbers(source, obs, WNW_AUX_ATTN_SUM, &obs->attn_sum));
    if (needs->flags & WNW_NEED_ATTN_MAX)
        WNW_TRY(fill_numbers(source, obs, WNW_AUX_ATTN_MAX, &obs->attn_max));
    return WNW_OK;
}

const struct wnw__recorder_type wnw__columns_recorder = {
    .name = "columns",
    .needs = WNW_NEED_ATTN_NUMBERS,
    .reads_softmax = true,
    .every_reader = true,
    .reads_columns = reads_columns,
    .needed = needed,
    .open = open_columns,
    .free = close_columns,
    .copy = copy_columns,
    .stages = stages,
    .take = take,
    .ops = ops,
    .fill = fill,
};
