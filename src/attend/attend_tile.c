/* SPDX-License-Identifier: MIT */
/* Streaming softmax attention of queries over entries of one KV head (arXiv 1805.02867, 2205.14135). */
#include "attend/attend_impl.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* n rounded up so that every array starts on a cache line of its own. */
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

int32_t wnw__attend_first(const struct wnw__attend_job *job, int32_t ih, int32_t t)
{
    const struct wnw__kv_layer *layer = job->layer;
    const int32_t n_past = job->slice->n_past, len = layer->len[ih];
    if (layer->n_swa <= 0)
        return 0;
    const int64_t hidden = (int64_t)n_past + t - layer->n_swa; /* last position out of sight */
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
    if (lo == len && hidden >= n_past)
        lo += (int32_t)(hidden - n_past + 1);
    return lo;
}

void wnw__attend_load(const struct wnw__attend_job *job, const struct wnw__attend_rows *r, const float *q,
                      struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const int32_t d = sh->dims.d, group = sh->group, n_query = r->n * group;
    const int32_t mr = n_query > WNW_ATTEND_NT_ROWS ? sh->vec->panel_rows : 1;
    const int32_t len = job->layer->len[r->ih];

    if (n_query % mr)
        memset(w->q + (size_t)(n_query - n_query % mr) * (size_t)d, 0, (size_t)mr * (size_t)d * sizeof *w->q);
    for (int32_t i = 0; i < n_query; i++) {
        const int32_t t = r->t0 + i / group;
        const int64_t row = job->slice->first_row + t;
        const float *src = q + (row * sh->dims.n_head + r->ih * group + i % group) * d;
        float *dst = w->q + (size_t)(i - i % mr) * (size_t)d + i % mr;
        for (int32_t c = 0; c < d; c++)
            dst[(size_t)c * (size_t)mr] = job->op->scale * src[c];
        w->from[i] = wnw__attend_first(job, r->ih, t);
        w->to[i] = len + t + 1;
    }
    for (int32_t i = 0; i < sh->rows; i++) {
        w->m[i] = -FLT_MAX; /* finite, so that m - m and -inf - m are defined */
        w->l[i] = 0.0f;
        w->corr[i] = 1.0f;
    }
    memset(w->o, 0, (size_t)n_query * (size_t)sh->ld * sizeof *w->o);
}

/* Hides, for each query, the entries of j .. j+WNW_TILE-1 that it does not see. */
static void mask_tile(const struct wnw__attend_work *w, int32_t n_query, int32_t j, int32_t n)
{
    for (int32_t i = 0; i < n_query; i++) {
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

/* s = q . k for n entries. Many queries share a converted and transposed tile; few read the stored rows. */
static void score_tile(const struct wnw__attend_job *job, const uint8_t *k, int32_t n, int32_t n_query,
                       const struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const struct wnw__vec *vec = sh->vec;
    const int32_t d = sh->dims.d;
    if (n_query <= WNW_ATTEND_NT_ROWS) {
        vec->mul_rows(job->type, w->q, n_query, k, job->row_bytes, n, d, 1.0f, w->s, WNW_TILE);
        return;
    }
    vec->to_f32(job->type, k, n, d, w->kf, d);
    vec->transpose(w->kf, d, w->kt);
    vec->mul_panels(w->q, (n_query + vec->panel_rows - 1) / vec->panel_rows, d, w->kt, w->s);
}

/* o = o * corr + s . v */
static void value_tile(const struct wnw__attend_job *job, const uint8_t *v, int32_t n, int32_t n_query,
                       const struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const struct wnw__vec *vec = sh->vec;
    if (n_query <= WNW_ATTEND_NT_ROWS && sh->ld == sh->dims.d) {
        vec->accumulate(job->type, w->s, n_query, w->corr, v, job->row_bytes, n, sh->ld, w->o);
        return;
    }
    vec->to_f32(job->type, v, n, sh->dims.d, w->vf, sh->ld);
    vec->accumulate(WNW_KV_F32, w->s, n_query, w->corr, w->vf, (size_t)sh->ld * sizeof *w->vf, n, sh->ld,
                    w->o);
}

void wnw__attend_stream(const struct wnw__attend_job *job, const struct wnw__attend_rows *r, int32_t from,
                        int32_t to, struct wnw__attend_work *w)
{
    const int32_t n_query = r->n * job->op->shared->group;
    const uint8_t *k = job->layer->k + (size_t)job->layer->off[r->ih] * job->row_bytes;
    const uint8_t *v = job->layer->v + (size_t)job->layer->off[r->ih] * job->row_bytes;

    for (int32_t j = from; j < to; j += WNW_TILE) {
        const int32_t n = to - j < WNW_TILE ? to - j : WNW_TILE;
        score_tile(job, k + (size_t)j * job->row_bytes, n, n_query, w);
        mask_tile(w, n_query, j, n);
        job->op->shared->vec->softmax_tile(w->s, n_query, w->m, w->l, w->corr);
        value_tile(job, v + (size_t)j * job->row_bytes, n, n_query, w);
    }
}
