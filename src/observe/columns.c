/* SPDX-License-Identifier: MIT */
/* See columns.h. Rows are ordered head by head here, so that a column of a head is added up in registers. */
#include "observe/columns.h"

#include "attend/attend_impl.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Tokens of one head that are multiplied with a tile together. */
#define RUN WNW_ATTEND_ROWS
/* Tiles per unit of work: many where a tile has few rows, so that taking units costs nothing. */
enum { TILES_FEW = 8, TILES_MANY = 1 };

static int32_t n_runs(int32_t n_tok)
{
    return (n_tok + RUN - 1) / RUN;
}

size_t wnw__columns_floats(const struct wnw__attend_shared *sh)
{
    return (size_t)sh->dims.n_head * (size_t)n_runs(sh->dims.n_ubatch) * RUN * (size_t)sh->dims.d;
}

/* The slice whose queries and entries the operation is about. */
static struct wnw__attend_job job_of(const struct wnw__columns_op *op)
{
    return wnw__attend_job_of(op->attend, op->slice);
}

/* Where the softmax of query head h, row t of the slice is kept. */
static int64_t softmax_at(const struct wnw__columns_op *op, int32_t h, int32_t t)
{
    const struct wnw__attend_batch *b = op->attend->batch;
    return (int64_t)h * b->n_row + b->slice[op->slice].first_row + t;
}

/* Up to WNW_ATTEND_NT_ROWS rows, all heads of a group together, are multiplied with the stored keys directly. */
static bool is_few(const struct wnw__attend_shared *sh, int32_t n_tok)
{
    return (int64_t)n_tok * sh->group <= WNW_ATTEND_NT_ROWS;
}

static bool rows_are_known(const struct wnw__columns_op *op)
{
    return op->rows_from_attn && !op->seen;
}

/* Queries t0 .. of head h, as panels. */
static float *packed_run(const struct wnw__columns_op *op, int32_t n_tok, int32_t h, int32_t t0)
{
    const int32_t d = op->attend->shared->dims.d;
    return op->packed + ((size_t)h * (size_t)n_runs(n_tok) + (size_t)(t0 / RUN)) * RUN * (size_t)d;
}

static const uint8_t *stored_key(const struct wnw__columns_op *op, int32_t ih, int32_t i)
{
    const struct wnw__attend_job job = job_of(op);
    return job.layer->k + (size_t)(job.layer->off[ih] + i) * job.row_bytes;
}

static void load_tile(const struct wnw__columns_op *op, int32_t ih, int32_t j, int32_t n,
                      const struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = op->attend->shared;
    sh->vec->to_f32(job_of(op).type, stored_key(op, ih, j), n, sh->dims.d, w->kf, sh->dims.d);
    sh->vec->transpose(w->kf, sh->dims.d, w->kt);
}

/* Row r sees the first min(n, first + r) columns of the tile. */
static void hide(float *s, int32_t rows, int32_t first, int32_t n)
{
    if (first >= WNW_TILE && n == WNW_TILE)
        return;
    for (int32_t r = 0; r < rows; r++) {
        const int32_t to = first + r < 0 ? 0 : first + r < n ? first + r : n;
        for (int32_t c = to; c < WNW_TILE; c++)
            s[(int64_t)r * WNW_TILE + c] = -INFINITY;
    }
}

static int32_t n_panels(const struct wnw__attend_shared *sh, int32_t rows)
{
    return (rows + sh->vec->panel_rows - 1) / sh->vec->panel_rows;
}

/* ---- Rows: queries into panels, and their softmax where the attention has not left it ---- */

struct run {
    int32_t h, t0, rows; /* tokens t0 .. t0+rows-1 of query head h */
};

static void pack(const struct wnw__columns_op *op, const struct run *r, const float *q, float *dst)
{
    const struct wnw__attend_shared *sh = op->attend->shared;
    const int32_t d = sh->dims.d, mr = sh->vec->panel_rows;
    for (int32_t i = 0; i < n_panels(sh, r->rows) * mr; i++) {
        float *to = dst + (size_t)(i - i % mr) * (size_t)d + i % mr;
        const float *src = q + ((int64_t)(r->t0 + i) * sh->dims.n_head + r->h) * d;
        for (int32_t c = 0; c < d; c++)
            to[(size_t)c * (size_t)mr] = i < r->rows ? op->attend->scale * src[c] : 0.0f;
    }
}

/* Takes entries s.from .. s.to-1 into the running softmax of the rows. */
static void stream(const struct wnw__columns_op *op, const struct run *r, struct wnw__range s,
                   const float *panels, struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = op->attend->shared;
    const int32_t ih = r->h / sh->group, first = job_of(op).layer->len[ih] + r->t0 + 1;
    for (int32_t j = s.from; j < s.to; j += WNW_TILE) {
        const int32_t n = s.to - j < WNW_TILE ? s.to - j : WNW_TILE;
        load_tile(op, ih, j, n, w);
        sh->vec->mul_panels(panels, n_panels(sh, r->rows), sh->dims.d, w->kt, w->s);
        hide(w->s, r->rows, first - j, n);
        sh->vec->softmax_tile(w->s, r->rows, w->m, w->l, w->corr);
    }
}

static void rows_unit(const struct wnw__columns_op *op, const struct run *r, const float *q, int32_t n_tok,
                      struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = op->attend->shared;
    const int32_t ih = r->h / sh->group, end = job_of(op).layer->len[ih] + r->t0 + r->rows;
    float *panels = packed_run(op, n_tok, r->h, r->t0);
    pack(op, r, q, panels);
    if (rows_are_known(op))
        return;
    for (int32_t i = 0; i < sh->rows; i++) {
        w->m[i] = -FLT_MAX;
        w->l[i] = 0.0f;
    }
    for (int i = 0; op->seen && i < WNW_COLUMN_RANGES; i++)
        stream(op, r, op->seen[ih][i], panels, w);
    stream(op, r, (struct wnw__range){.from = op->seen ? op->own[ih] : 0, .to = end}, panels, w);
    const int64_t at = softmax_at(op, r->h, r->t0);
    for (int32_t i = 0; i < r->rows; i++) {
        sh->row_max[at + i] = w->m[i];
        sh->row_norm[at + i] = 1.0f / w->l[i];
    }
}

void wnw__columns_rows(const struct wnw__columns_op *op, const float *q, int32_t n_tok, int ith, int nth)
{
    struct wnw__attend_shared *sh = op->attend->shared;
    const int32_t n_head = sh->dims.n_head, n_run = n_runs(n_tok);
    if (ith < sh->dims.n_threads) {
        struct wnw__attend_work w = wnw__attend_work_at(sh, ith);
        for (int32_t u; (u = wnw__attend_take(sh, n_run * n_head)) >= 0;) {
            struct run r = {.h = u % n_head, .t0 = (n_run - 1 - u / n_head) * RUN};
            r.rows = n_tok - r.t0 < RUN ? n_tok - r.t0 : RUN;
            rows_unit(op, &r, q, n_tok, &w);
        }
    }
    wnw__attend_leave(sh, nth);
}

/* ---- Columns ---- */

static struct wnw__range columns_of(const struct wnw__columns_op *op, int32_t ih, int32_t n_tok)
{
    return op->columns ? op->columns[ih] : (struct wnw__range){0, job_of(op).layer->len[ih] + n_tok};
}

/* Numbers of entry i and query head g of the group; NULL = not wanted. */
static float *numbers_at(const struct wnw__columns_op *op, enum wnw__aux kind, int32_t ih, int32_t g,
                         int32_t i)
{
    const struct wnw__kv_layer *layer = job_of(op).layer;
    float *own = kind == WNW_AUX_ATTN_SUM ? op->sum : op->max;
    if (op->sum || op->max)
        return own ? own + (int64_t)(ih * op->attend->shared->group + g) * op->n + i : NULL;
    return layer->aux[kind] ? wnw__cache_aux(layer, kind, g) + layer->off[ih] + i : NULL;
}

static void add_tile(const struct wnw__columns_op *op, int32_t ih, int32_t g, int32_t j, int32_t n,
                     const float *sum, const float *max)
{
    float *to_sum = numbers_at(op, WNW_AUX_ATTN_SUM, ih, g, j),
          *to_max = numbers_at(op, WNW_AUX_ATTN_MAX, ih, g, j);
    for (int32_t c = 0; to_sum && c < n; c++)
        to_sum[c] += sum[c];
    for (int32_t c = 0; to_max && c < n; c++) {
        const float p = max[c] < 1.0f ? max[c] : 1.0f; /* rounding: the rows may come from another kernel */
        to_max[c] = p > to_max[c] ? p : to_max[c];
    }
}

/* Entries j .. j+n-1 of KV head ih. few: the rows of the group are in w->q. */
static void column_tile(const struct wnw__columns_op *op, int32_t ih, int32_t n_tok, int32_t j, int32_t n,
                        bool few, const struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = op->attend->shared;
    const int32_t d = sh->dims.d, first = job_of(op).layer->len[ih] + 1 - j;
    if (few)
        sh->vec->mul_rows(job_of(op).type, w->q, sh->group * n_tok, stored_key(op, ih, j),
                          job_of(op).row_bytes, n, d, 1.0f, w->s, WNW_TILE);
    else
        load_tile(op, ih, j, n, w);
    for (int32_t g = 0; g < sh->group; g++) {
        const int32_t h = ih * sh->group + g;
        float sum[WNW_TILE] = {0}, max[WNW_TILE] = {0};
        for (int32_t t0 = 0; t0 < n_tok; t0 += RUN) {
            const int32_t rows = n_tok - t0 < RUN ? n_tok - t0 : RUN;
            const int64_t at = softmax_at(op, h, t0);
            float *s = few ? w->s + (int64_t)g * n_tok * WNW_TILE : w->s;
            if (first + t0 + rows - 1 <= 0)
                continue; /* before the first of these entries */
            if (!few)
                sh->vec->mul_panels(packed_run(op, n_tok, h, t0), n_panels(sh, rows), d, w->kt, s);
            hide(s, rows, first + t0, n);
            sh->vec->column_tile(s, rows, sh->row_max + at, sh->row_norm + at, sum, max);
        }
        add_tile(op, ih, g, j, n, sum, max);
    }
}

static void load_few(const struct wnw__columns_op *op, const float *q, int32_t ih, int32_t n_tok, float *dst)
{
    const struct wnw__attend_shared *sh = op->attend->shared;
    const int32_t d = sh->dims.d;
    for (int32_t i = 0; i < sh->group * n_tok; i++) {
        const float *src = q + ((int64_t)(i % n_tok) * sh->dims.n_head + ih * sh->group + i / n_tok) * d;
        for (int32_t c = 0; c < d; c++)
            dst[(int64_t)i * d + c] = op->attend->scale * src[c];
    }
}

void wnw__columns_run(const struct wnw__columns_op *op, const float *q, int32_t n_tok, int ith, int nth)
{
    struct wnw__attend_shared *sh = op->attend->shared;
    const int32_t n_head_kv = sh->dims.n_head_kv;
    const bool few = is_few(sh, n_tok);
    const int32_t size = (few ? TILES_FEW : TILES_MANY) * WNW_TILE;
    int32_t longest = 0;
    for (int32_t ih = 0; ih < n_head_kv; ih++) {
        const struct wnw__range s = columns_of(op, ih, n_tok);
        longest = s.to - s.from > longest ? s.to - s.from : longest;
    }
    if (ith < sh->dims.n_threads) {
        struct wnw__attend_work w = wnw__attend_work_at(sh, ith);
        for (int32_t u; (u = wnw__attend_take(sh, (longest + size - 1) / size * n_head_kv)) >= 0;) {
            const int32_t ih = u % n_head_kv;
            const struct wnw__range s = columns_of(op, ih, n_tok);
            const int32_t from = s.from + u / n_head_kv * size, to = s.to - from < size ? s.to : from + size;
            if (few && from < to)
                load_few(op, q, ih, n_tok, w.q);
            for (int32_t j = from; j < to; j += WNW_TILE)
                column_tile(op, ih, n_tok, j, to - j < WNW_TILE ? to - j : WNW_TILE, few, &w);
        }
    }
    wnw__attend_leave(sh, nth);
}

/* ---- Graph operations. src: q, what must have run before ---- */

/* Queries of the slice. */
static const float *queries_of(const struct wnw__columns_op *op, const struct ggml_tensor *q)
{
    return (const float *)q->data + job_of(op).slice->first_row * q->ne[0] * q->ne[1];
}

static void rows_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    const struct wnw__columns_op *op = userdata;
    wnw__columns_rows(op, queries_of(op, dst->src[0]), job_of(op).slice->n_row, ith, nth);
}

static void columns_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    const struct wnw__columns_op *op = userdata;
    wnw__columns_run(op, queries_of(op, dst->src[0]), job_of(op).slice->n_row, ith, nth);
}

void wnw__columns_build(struct ggml_context *ctx, struct ggml_cgraph *gf, struct wnw__columns_op *op,
                        struct ggml_tensor *q, struct ggml_tensor *out)
{
    struct ggml_tensor *args[2] = {ggml_is_contiguous(q) ? q : ggml_cont(ctx, q), out};
    /* A node of its own: all rows must be known before any column is begun, and an operation has no barrier. */
    if (!rows_are_known(op) || !is_few(op->attend->shared, (int32_t)q->ne[2]))
        args[1] = ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, args, 2, rows_node, GGML_N_TASKS_MAX, op);
    ggml_build_forward_expand(
        gf, ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, args, 2, columns_node, GGML_N_TASKS_MAX, op));
}
