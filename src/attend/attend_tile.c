/* SPDX-License-Identifier: MIT */
/* Streaming softmax attention of a set of rows over entries of one KV head (arXiv 1805.02867, 2205.14135). */
#include "attend/attend_impl.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Floats that keep every array on a cache line of its own. */
static size_t padded(size_t n)
{
    return (n + 15) / 16 * 16;
}

size_t wnw__attend_work_floats(const struct wnw__attend_shared *sh)
{
    const size_t rows = (size_t)sh->rows, d = (size_t)sh->dims.d, ld = (size_t)sh->ld;
    return padded(rows * d) + 2 * padded(WNW_TILE * d) + WNW_TILE * ld + rows * WNW_TILE + padded(rows * ld) +
           5 * padded(rows);
}

struct wnw__attend_work wnw__attend_work_at(const struct wnw__attend_shared *sh, int ith)
{
    const size_t rows = (size_t)sh->rows, d = (size_t)sh->dims.d, ld = (size_t)sh->ld;
    struct wnw__attend_work w;
    w.q = sh->work + (size_t)ith * sh->work_floats;
    w.kf = w.q + padded(rows * d);
    w.kt = w.kf + padded(WNW_TILE * d);
    w.vf = w.kt + padded(WNW_TILE * d);
    w.s = w.vf + WNW_TILE * ld;
    w.o = w.s + rows * WNW_TILE;
    w.m = w.o + padded(rows * ld);
    w.l = w.m + padded(rows);
    w.corr = w.l + padded(rows);
    w.from = (int32_t *)(void *)(w.corr + padded(rows));
    w.to = w.from + padded(rows);
    return w;
}

int32_t wnw__attend_first(const struct wnw__attend_op *op, int32_t ih, int32_t t)
{
    const struct wnw__kv_layer *layer = op->layer;
    if (layer->n_swa <= 0)
        return 0;
    const int64_t hidden = (int64_t)op->n_past + t - layer->n_swa; /* last position out of sight */
    const int32_t len = layer->len[ih];
    int32_t lo = 0, hi = len;
    if (len > 0) {
        const int32_t *pos = layer->pos + layer->off[ih];
        while (lo < hi) {
            const int32_t mid = lo + (hi - lo) / 2;
            if (pos[mid] <= hidden)
                lo = mid + 1;
            else
                hi = mid;
        }
    }
    if (lo == len && hidden >= op->n_past)
        lo += (int32_t)(hidden - op->n_past + 1);
    return lo;
}

void wnw__attend_load(const struct wnw__attend_op *op, const struct wnw__attend_rows *r, const float *q,
                      struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = op->shared;
    const int32_t d = sh->dims.d, group = sh->group, rows = r->n_tok * group;
    const int32_t mr = rows > WNW_ATTEND_NT_ROWS ? sh->vec->panel_rows : 1;
    const int32_t len = op->layer->len[r->ih];

    if (rows % mr)
        memset(w->q + (size_t)(rows - rows % mr) * (size_t)d, 0, (size_t)mr * (size_t)d * sizeof *w->q);
    for (int32_t i = 0; i < rows; i++) {
        const int32_t t = r->t0 + i / group;
        const float *src = q + ((int64_t)t * sh->dims.n_head + r->ih * group + i % group) * d;
        float *dst = w->q + (size_t)(i - i % mr) * (size_t)d + i % mr;
        for (int32_t c = 0; c < d; c++)
            dst[(size_t)c * (size_t)mr] = op->scale * src[c];
        w->from[i] = wnw__attend_first(op, r->ih, t);
        w->to[i] = len + t + 1;
    }
    for (int32_t i = 0; i < sh->rows; i++) {
        w->m[i] = -FLT_MAX; /* finite, so that m - m and -inf - m are defined */
        w->l[i] = 0.0f;
        w->corr[i] = 1.0f;
    }
    memset(w->o, 0, (size_t)rows * (size_t)sh->ld * sizeof *w->o);
}

/* Hides the columns of entries j .. j+WNW_TILE-1 that a row does not see. */
static void mask_tile(const struct wnw__attend_work *w, int32_t rows, int32_t j, int32_t n)
{
    for (int32_t i = 0; i < rows; i++) {
        float *s = w->s + (int64_t)i * WNW_TILE;
        int32_t from = w->from[i] - j, to = w->to[i] - j;
        from = from < 0 ? 0 : from > WNW_TILE ? WNW_TILE : from;
        to = to > n ? n : to < from ? from : to;
        for (int32_t c = 0; c < from; c++)
            s[c] = -INFINITY;
        for (int32_t c = to; c < WNW_TILE; c++)
            s[c] = -INFINITY;
    }
}

/* s = q . k for n entries. Many rows share a converted and transposed tile; few read the stored rows. */
static void score_tile(const struct wnw__attend_shared *sh, const uint8_t *k, int32_t n, int32_t rows,
                       const struct wnw__attend_work *w)
{
    const struct wnw__vec *vec = sh->vec;
    const int32_t d = sh->dims.d;
    if (rows <= WNW_ATTEND_NT_ROWS) {
        vec->mul_rows(sh->dims.type, w->q, rows, k, sh->row_bytes, n, d, 1.0f, w->s, WNW_TILE);
        return;
    }
    vec->to_f32(sh->dims.type, k, n, d, w->kf, d);
    vec->transpose(w->kf, d, w->kt);
    vec->mul_panels(w->q, (rows + vec->panel_rows - 1) / vec->panel_rows, d, w->kt, w->s);
}

/* o = o * corr + s . v */
static void value_tile(const struct wnw__attend_shared *sh, const uint8_t *v, int32_t n, int32_t rows,
                       const struct wnw__attend_work *w)
{
    const struct wnw__vec *vec = sh->vec;
    if (rows <= WNW_ATTEND_NT_ROWS && sh->ld == sh->dims.d) {
        vec->accumulate(sh->dims.type, w->s, rows, w->corr, v, sh->row_bytes, n, sh->ld, w->o);
        return;
    }
    vec->to_f32(sh->dims.type, v, n, sh->dims.d, w->vf, sh->ld);
    vec->accumulate(WNW_KV_F32, w->s, rows, w->corr, w->vf, (size_t)sh->ld * sizeof *w->vf, n, sh->ld, w->o);
}

void wnw__attend_stream(const struct wnw__attend_op *op, const struct wnw__attend_rows *r, int32_t from,
                        int32_t to, struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = op->shared;
    const int32_t rows = r->n_tok * sh->group;
    const uint8_t *k = op->layer->k + (size_t)op->layer->off[r->ih] * sh->row_bytes;
    const uint8_t *v = op->layer->v + (size_t)op->layer->off[r->ih] * sh->row_bytes;

    for (int32_t j = from; j < to; j += WNW_TILE) {
        const int32_t n = to - j < WNW_TILE ? to - j : WNW_TILE;
        score_tile(sh, k + (size_t)j * sh->row_bytes, n, rows, w);
        mask_tile(w, rows, j, n);
        sh->vec->softmax_tile(w->s, rows, w->m, w->l, w->corr);
        value_tile(sh, v + (size_t)j * sh->row_bytes, n, rows, w);
    }
}
