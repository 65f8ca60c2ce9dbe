/* SPDX-License-Identifier: MIT */
/* Streaming softmax attention of queries over entries of one KV head (arXiv 1805.02867, 2205.14135). */
#include "attend/attend_impl.h"
#include "base/clamp.h"
#include "kernel/noise.h"

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
    const size_t rows = (size_t)sh->rows, d = (size_t)sh->dims.model.d, ld = (size_t)sh->ld;
    return padded(rows * d) + 2 * padded(WNW_TILE * d) + WNW_TILE * ld + rows * WNW_TILE +
           rows * WNW_TILE / 2 + padded(rows * ld) + 10 * padded(rows) + padded(rows * d / 4) +
           wnw__attend_far_floats(sh->dims.model.d, 1);
}

struct wnw__attend_work wnw__attend_work_at(const struct wnw__attend_shared *sh, int ith)
{
    const size_t rows = (size_t)sh->rows, d = (size_t)sh->dims.model.d, ld = (size_t)sh->ld;
    struct wnw__attend_work w;
    w.q = sh->work + (size_t)ith * sh->work_floats;
    w.kf = w.q + padded(rows * d);
    w.kt = w.kf + padded(WNW_TILE * d);
    w.vf = w.kt + padded(WNW_TILE * d);
    w.s = w.vf + WNW_TILE * ld;
    w.pairs = (uint32_t *)(void *)(w.s + rows * WNW_TILE);
    w.o = w.s + rows * WNW_TILE + rows * WNW_TILE / 2;
    w.m = w.o + padded(rows * ld);
    w.l = w.m + padded(rows);
    w.corr = w.l + padded(rows);
    w.from = (int32_t *)(void *)(w.corr + padded(rows));
    w.to = w.from + padded(rows);
    w.quantised_to = w.to + padded(rows);
    w.far = (struct wnw__attend_far){0};
    w.far.q_scale = (float *)(void *)(w.quantised_to + padded(rows));
    w.far.q_square = w.far.q_scale + padded(rows);
    w.far.q_first = (int32_t *)(void *)(w.far.q_square + padded(rows));
    w.far.taken = (uint8_t *)(w.far.q_first + padded(rows));
    w.far.q = (uint32_t *)(void *)(w.far.q_first + 2 * padded(rows));
    w.far.k_room = (float *)(void *)(w.far.q + padded(rows * d / 4));
    w.kept = NULL;
    return w;
}

int32_t wnw__attend_first(const struct wnw__attend_job *job, int32_t ih, int32_t t)
{
    const struct wnw__kv_layer *layer = job->layer;
    const int32_t n_past = job->slice->n_past, len = layer->len[ih];
    if (layer->n_swa <= 0)
        return 0;
    const int64_t hidden = /* last position out of sight */
        (int64_t)wnw__cache_first_seen(job->slice->cache, layer, n_past + t) - 1;
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

/* ---- Queries, keys and values ---- */

void wnw__attend_seal(const struct wnw__attend_job *job, float *panels, int32_t n_query)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const int32_t mr = wnw__attend_panel_rows(job), d = sh->dims.model.d;
    uint32_t *pairs = (uint32_t *)(void *)panels;
    if (!wnw__attend_is_bf16(job))
        return;
    for (int32_t i = 0; i < n_query; i += mr, panels += d * mr, pairs += (d + 1) / 2 * mr)
        sh->bf16->pair_rows(panels, d, mr, pairs);
}

void wnw__attend_keys(const struct wnw__attend_job *job, const struct wnw__kv_rows *rows,
                      const struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const int32_t d = sh->dims.model.d;
    const bool bf16 = wnw__attend_is_bf16(job);
    uint32_t *pairs = (uint32_t *)(void *)w->kt;
    if (bf16 && wnw__attend_is_direct(rows, d)) {
        sh->bf16->keys_f16((const uint16_t *)(const void *)rows->k, rows->n, d, pairs);
        return;
    }
    sh->vec->to_f32(rows->type, rows->k, rows->n, d, w->kf, d);
    sh->vec->transpose(w->kf, d, w->kt);
    if (bf16)
        sh->bf16->pair_rows(w->kt, d, WNW_TILE, pairs);
}

void wnw__attend_scores(const struct wnw__attend_job *job, const float *panels, int32_t n_query,
                        const struct wnw__attend_work *w, float *s)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const int32_t mr = wnw__attend_panel_rows(job), n_panel = (n_query + mr - 1) / mr, d = sh->dims.model.d;
    if (wnw__attend_is_bf16(job))
        sh->bf16->mul_panels((const uint32_t *)(const void *)panels, n_panel, (d + 1) / 2,
                             (const uint32_t *)(const void *)w->kt, s);
    else
        sh->vec->mul_panels(panels, n_panel, d, w->kt, s);
}

static struct wnw__attend_queries queries_of(const struct wnw__attend_job *job,
                                             const struct wnw__attend_rows *r)
{
    const int32_t group = job->op->shared->group;
    return (struct wnw__attend_queries){
        .head = r->ih * group, .n_head = group, .t0 = r->t0, .n = r->n * group};
}

void wnw__attend_load(const struct wnw__attend_job *job, const struct wnw__attend_rows *r, const float *q,
                      struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const int32_t d = sh->dims.model.d, group = sh->group, n_query = r->n * group;
    const bool panels = n_query > WNW_ATTEND_NT_ROWS;
    const int32_t mr = panels ? wnw__attend_panel_rows(job) : 1;
    const int32_t len = job->layer->len[r->ih];

    if (n_query % mr)
        memset(w->q + (size_t)(n_query - n_query % mr) * (size_t)d, 0, (size_t)mr * (size_t)d * sizeof *w->q);
    for (int32_t i = 0; i < n_query; i++) {
        const int32_t t = r->t0 + i / group;
        const int64_t row = job->slice->first_row + t;
        const float *src = q + (row * sh->dims.model.n_head + r->ih * group + i % group) * d;
        wnw__attend_pack(w->q, i, mr, wnw__attend_query(job, src, w->kf), d, job->op->scale);
        w->from[i] = wnw__attend_first(job, r->ih, t);
        w->to[i] = len + t + 1;
        w->quantised_to[i] = wnw__cache_quantised_to(job->slice->cache, job->layer, r->ih, t);
    }
    if (panels) {
        wnw__attend_far_load(job, w->q, n_query, w);
        wnw__attend_seal(job, w->q, n_query);
    }
    for (int32_t i = 0; i < sh->rows; i++) {
        w->m[i] = -FLT_MAX; /* finite, so that m - m and -inf - m are defined */
        w->l[i] = 0.0f;
        w->corr[i] = 1.0f;
    }
    if (r->sinks) {
        const struct wnw__attend_queries queries = queries_of(job, r);
        wnw__attend_begin(job, &queries, w->m, w->l);
    }
    memset(w->o, 0, (size_t)n_query * (size_t)sh->ld * sizeof *w->o);
}

/* Hides, for each query, those of the n entries from i on that it does not see, or not in this stretch. */
static void mask_tile(const struct wnw__attend_work *w, int32_t n_query, enum wnw__attend_seen seen,
                      int32_t i, int32_t n)
{
    for (int32_t r = 0; r < n_query; r++) {
        float *s = w->s + (int64_t)r * WNW_TILE;
        int32_t from = w->from[r], to = w->to[r];
        from = seen == WNW_SEEN_F16 && w->quantised_to[r] > from ? w->quantised_to[r] : from;
        to = seen == WNW_SEEN_QUANTISED && w->quantised_to[r] < to ? w->quantised_to[r] : to;
        from = (int32_t)wnw__clamp((int64_t)from - i, 0, WNW_TILE);
        to -= i;
        if (to > n)
            to = n;
        else if (to < from)
            to = from;
        for (int32_t c = 0; c < from; c++)
            s[c] = -INFINITY;
        for (int32_t c = to; c < WNW_TILE; c++)
            s[c] = -INFINITY;
    }
}

/* Whether n_query queries take stored values of this type in several turns, and so would convert them in every turn.
 * Converting a quantised row takes longer than writing and reading it. */
static bool is_converted_once(const struct wnw__kv_rows *rows, int32_t n_query)
{
    return n_query > 4 && (rows->type == WNW_KV_Q8_0 || rows->type == WNW_KV_Q4_0);
}

/* s = q . k for n stored rows, entries from `at` on. Many queries share a converted and transposed tile; few read the
 * stored rows. */
static void score_tile(const struct wnw__attend_job *job, const struct wnw__kv_rows *rows, int32_t at,
                       int32_t n_query, struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const struct wnw__vec *vec = sh->vec;
    const int32_t d = sh->dims.model.d;
    if (n_query <= WNW_ATTEND_NT_ROWS) {
        vec->mul_rows(rows->type, w->q, n_query, rows->k, rows->row_bytes, rows->n, d, 1.0f, w->s, WNW_TILE);
        return;
    }
    const int32_t far = wnw__attend_far_choose(job, rows, at, n_query, w);
    if (far < n_query) {
        wnw__attend_keys(job, rows, w);
        wnw__attend_scores(job, w->q, n_query, w, w->s);
    }
    if (far > 0)
        wnw__attend_far_scores(job, far, n_query, w);
}

/* Whether the products of n_query queries are bf16. */
static bool takes_bf16(const struct wnw__attend_job *job, int32_t n_query)
{
    return n_query > WNW_ATTEND_NT_ROWS && wnw__attend_is_bf16(job);
}

/* s = exp(s - m), with m, l and corr as they are after the tile; in bf16 in w->pairs, and in s if that is kept */
static void softmax_tile(const struct wnw__attend_job *job, int32_t n_query, const struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    if (takes_bf16(job, n_query))
        sh->bf16->softmax_tile(w->s, n_query, w->m, w->l, w->corr, w->kept != NULL, w->pairs);
    else
        sh->vec->softmax_tile(w->s, n_query, w->m, w->l, w->corr);
}

/* o = o * corr + pairs . v */
static void value_tile_bf16(const struct wnw__attend_shared *sh, const struct wnw__kv_rows *rows,
                            int32_t n_query, const struct wnw__attend_work *w)
{
    uint32_t *v = (uint32_t *)(void *)w->vf;
    if (wnw__attend_is_direct(rows, sh->dims.model.d)) {
        sh->bf16->values_f16((const uint16_t *)(const void *)rows->v, rows->n, sh->dims.model.d, v);
    } else {
        sh->vec->to_f32(rows->type, rows->v, rows->n, sh->dims.model.d, w->vf, sh->ld);
        sh->bf16->pair_rows(w->vf, rows->n, sh->ld, v);
    }
    sh->bf16->accumulate(w->pairs, n_query, w->corr, v, (rows->n + 1) / 2, sh->ld, w->o);
}

/* o = o * corr + s . v */
static void value_tile(const struct wnw__attend_job *job, const struct wnw__kv_rows *rows, int32_t n_query,
                       const struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const struct wnw__vec *vec = sh->vec;
    if (n_query <= WNW_ATTEND_NT_ROWS && sh->ld == sh->dims.model.d && !is_converted_once(rows, n_query)) {
        vec->accumulate(rows->type, w->s, n_query, w->corr, rows->v, rows->row_bytes, rows->n, sh->ld, w->o);
        return;
    }
    if (takes_bf16(job, n_query)) {
        value_tile_bf16(sh, rows, n_query, w);
        return;
    }
    vec->to_f32(rows->type, rows->v, rows->n, sh->dims.model.d, w->vf, sh->ld);
    vec->accumulate(WNW_KV_F32, w->s, n_query, w->corr, w->vf, (size_t)sh->ld * sizeof *w->vf, rows->n,
                    sh->ld, w->o);
}

/* Adds the entries from .. to-1, unless there are none. */
static void add_stretch(struct wnw__attend_stretches *p, enum wnw__attend_seen seen, int32_t from, int32_t to,
                        const struct wnw__kv_rows *rows, const float *bias)
{
    p->stretch[p->n++] = (struct wnw__attend_stretch){
        .rows = *rows, .from = from, .to = to, .bias = bias ? bias + from : NULL, .seen = seen};
    p->n_entry += to - from;
}

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

void wnw__attend_stretches_of(const struct wnw__attend_job *job, const struct wnw__attend_rows *r,
                              int32_t from, int32_t to, struct wnw__attend_stretches *p)
{
    const struct wnw__cache *c = job->slice->cache;
    const struct wnw__kv_layer *l = job->layer;
    const float *bias = wnw__cache_bias(l, r->ih);
    p->n = p->n_entry = 0;
    const int32_t n_first = c->n_tail > 0 ? l->tail.n_first[r->ih] : 0;
    const int32_t first_to = wnw__cache_quantised_to(c, l, r->ih, r->t0),
                  last_to = wnw__cache_quantised_to(c, l, r->ih, r->t0 + r->n - 1);
    if (c->n_tail == 0 || last_to == n_first) { /* all entries are stored alike */
        const struct wnw__kv_rows rows = wnw__cache_rows(c, l, r->ih, from, to);
        add_stretch(p, WNW_SEEN_ALWAYS, from, to, &rows, bias);
        return;
    }
    if (from < n_first) {
        const struct wnw__kv_rows rows = wnw__cache_rows(c, l, r->ih, from, n_first);
        add_stretch(p, WNW_SEEN_ALWAYS, from, n_first, &rows, bias);
    }
    if (larger(from, n_first) < last_to) {
        const struct wnw__kv_rows rows =
            wnw__cache_quantised_rows(c, l, r->ih, larger(from, n_first), last_to);
        add_stretch(p, WNW_SEEN_QUANTISED, larger(from, n_first), last_to, &rows, bias);
    }
    if (larger(from, first_to) < to) {
        const struct wnw__kv_rows rows = wnw__cache_rows(c, l, r->ih, larger(from, first_to), to);
        add_stretch(p, WNW_SEEN_F16, larger(from, first_to), to, &rows, bias);
    }
}

/* ---- Kept tiles ---- */

/* Makes w->s room for another tile, of n entries from entry `at` on. */
static void keep_tile(struct wnw__attend_work *w, int32_t at, int32_t n)
{
    struct wnw__attend_kept *k = w->kept;
    int32_t *entries = wnw__attend_kept_entries(k, k->n);
    entries[0] = at;
    entries[1] = n;
    w->s = wnw__attend_kept_tile(k, k->n++);
}

/* Notes the maxima of the rows with which the tile was made. */
static void keep_max(const struct wnw__attend_work *w)
{
    const struct wnw__attend_kept *k = w->kept;
    memcpy(wnw__attend_kept_max(k, k->n - 1), w->m, (size_t)k->rows * sizeof *w->m);
}

/* Takes n entries of a stretch, those from its i-th on, tile by tile. */
static void stream_stretch(const struct wnw__attend_job *job, const struct wnw__attend_rows *r,
                           const struct wnw__attend_stretch *stretch, int32_t i, int32_t n,
                           struct wnw__attend_work *w)
{
    const struct wnw__attend_queries queries = queries_of(job, r);
    const int32_t n_query = queries.n;
    struct wnw__kv_rows tile = stretch->rows;
    tile.k += (size_t)i * tile.row_bytes;
    tile.v += (size_t)i * tile.row_bytes;
    for (int32_t j = 0; j < n; j += WNW_TILE) {
        tile.n = n - j < WNW_TILE ? n - j : WNW_TILE;
        if (w->kept)
            keep_tile(w, stretch->from + i + j, tile.n);
        score_tile(job, &tile, stretch->from + i + j, n_query, w);
        wnw__attend_form(job, &queries, r->ih, stretch->from + i + j, tile.n, w->s);
        if (stretch->bias)
            wnw__attend_add_bias(w->s, n_query, stretch->bias + i + j, tile.n);
        mask_tile(w, n_query, stretch->seen, stretch->from + i + j, tile.n);
        softmax_tile(job, n_query, w);
        if (w->kept)
            keep_max(w);
        value_tile(job, &tile, n_query, w);
        tile.k += WNW_TILE * tile.row_bytes;
        tile.v += WNW_TILE * tile.row_bytes;
    }
}

void wnw__attend_stream(const struct wnw__attend_job *job, const struct wnw__attend_rows *r,
                        const struct wnw__attend_stretches *p, int32_t first, int32_t last,
                        struct wnw__attend_work *w)
{
    for (int32_t i = 0; i < p->n; i++) {
        const int32_t from = first > 0 ? first : 0,
                      to = last < p->stretch[i].rows.n ? last : p->stretch[i].rows.n;
        if (from < to)
            stream_stretch(job, r, &p->stretch[i], from, to - from, w);
        first -= p->stretch[i].rows.n;
        last -= p->stretch[i].rows.n;
    }
}

/* ---- A run of rows ---- */

static void write_out(const struct wnw__attend_job *job, const struct wnw__attend_rows *r,
                      const struct wnw__attend_work *w, float *out)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const int32_t d = sh->dims.model.d, n_query = r->n * sh->group;
    for (int32_t i = 0; i < n_query; i++) {
        const float norm = 1.0f / w->l[i];
        const float *o = w->o + (int64_t)i * sh->ld;
        const int64_t row = job->slice->first_row + r->t0 + i / sh->group;
        const int32_t h = r->ih * sh->group + i % sh->group;
        float *dst = out + (row * sh->dims.model.n_head + h) * d;
        for (int32_t c = 0; c < d; c++)
            dst[c] = norm * o[c];
        wnw__attend_unrotate(job, dst);
        wnw__noise_at("attention of many", dst, d, 1, h * d, d);
        if (sh->row_max) {
            sh->row_max[(int64_t)h * job->op->batch->n_row + row] = w->m[i];
            sh->row_norm[(int64_t)h * job->op->batch->n_row + row] = norm;
        }
    }
}

void wnw__attend_rows(const struct wnw__attend_job *job, const struct wnw__attend_rows *r, const float *q,
                      float *out, struct wnw__attend_work *w)
{
    struct wnw__attend_stretches p;
    wnw__attend_load(job, r, q, w);
    wnw__attend_stretches_of(job, r, w->from[0], w->to[r->n * job->op->shared->group - 1], &p);
    wnw__attend_stream(job, r, &p, 0, p.n_entry, w);
    write_out(job, r, w, out);
}
