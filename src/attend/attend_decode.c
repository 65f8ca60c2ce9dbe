/* SPDX-License-Identifier: MIT */
/*
 * A slice of few new rows. The entries of every head are cut into pieces, and the thread that finishes a
 * head's last piece combines all pieces in order. New keys and values are written by the thread whose piece
 * they fall into.
 */
#include "attend/attend_impl.h"
#include "kernel/noise.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct wnw__attend_cut wnw__attend_cut(const struct wnw__attend_job *job, int32_t ih)
{
    const struct wnw__attend_rows all = {.ih = ih, .n = job->slice->n_row};
    struct wnw__attend_cut c;
    wnw__attend_stretches_of(job, &all, wnw__attend_first(job, ih, 0), job->layer->len[ih] + all.n, &c.p);
    const int32_t even = (c.p.n_entry + WNW_ATTEND_PIECES - 1) / WNW_ATTEND_PIECES;
    c.size = even <= WNW_ATTEND_PIECE ? WNW_ATTEND_PIECE : (even + WNW_TILE - 1) / WNW_TILE * WNW_TILE;
    c.n = (c.p.n_entry + c.size - 1) / c.size;
    return c;
}

static float *partial_at(const struct wnw__attend_job *job, int32_t ih, int32_t piece)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const struct wnw__attend_scratch *p = &sh->scratch[job->i_slice];
    const size_t floats = (size_t)job->slice->n_row * (size_t)sh->group * (size_t)(sh->ld + 2);
    return sh->partial + p->at + ((size_t)ih * (size_t)p->pieces + (size_t)piece) * floats;
}

/* out = sum_p O_p exp(m_p - M) / sum_p l_p exp(m_p - M), pieces in ascending order. */
static void combine(const struct wnw__attend_job *job, int32_t ih, int32_t n_piece, float *out)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const int32_t d = sh->dims.model.d, ld = sh->ld, n_query = job->slice->n_row * sh->group;
    for (int32_t i = 0; i < n_query; i++) {
        const size_t at = (size_t)i * (size_t)(ld + 2);
        const int32_t row = job->slice->first_row + i / sh->group, h = ih * sh->group + i % sh->group;
        float top = -FLT_MAX, sum = 0.0f;
        float *dst = out + ((int64_t)row * sh->dims.model.n_head + h) * d;
        for (int32_t p = 0; p < n_piece; p++) {
            const float m = partial_at(job, ih, p)[at + (size_t)ld];
            top = m > top ? m : top;
        }
        memset(dst, 0, (size_t)d * sizeof *dst);
        for (int32_t p = 0; p < n_piece; p++) {
            const float *o = partial_at(job, ih, p) + at;
            const float weight = expf(o[ld] - top);
            sum += weight * o[ld + 1];
            for (int32_t c = 0; c < d; c++)
                dst[c] += weight * o[c];
        }
        for (int32_t c = 0; c < d; c++)
            dst[c] /= sum;
        wnw__attend_unrotate(job, dst);
        wnw__noise_at("attention of few", dst, d, 1, h * d, d);
        if (sh->row_max) {
            sh->row_max[(int64_t)h * job->op->batch->n_row + row] = top;
            sh->row_norm[(int64_t)h * job->op->batch->n_row + row] = 1.0f / sum;
        }
    }
}

static void decode_piece(const struct wnw__attend_job *job, const struct wnw__attend_rows *r, const float *q,
                         const struct wnw__attend_cut *cut, int32_t piece, struct wnw__attend_work *w)
{
    const int32_t ld = job->op->shared->ld, n_query = r->n * job->op->shared->group;
    const int32_t first = piece * cut->size, left = cut->p.n_entry - first;
    float *partial = partial_at(job, r->ih, piece);
    wnw__attend_load(job, r, q, w);
    wnw__attend_stream(job, r, &cut->p, first, left < cut->size ? cut->p.n_entry : first + cut->size, w);
    for (int32_t i = 0; i < n_query; i++) {
        float *dst = partial + (int64_t)i * (ld + 2);
        memcpy(dst, w->o + (int64_t)i * ld, (size_t)ld * sizeof *dst);
        dst[ld] = w->m[i];
        dst[ld + 1] = w->l[i];
    }
}

/* Writes what the piece reads and the cache does not have yet. */
static void store_piece(const struct wnw__attend_job *job, int32_t ih, const struct wnw__attend_cut *cut,
                        int32_t piece, const float *k, const float *v)
{
    const struct wnw__cache *c = job->slice->cache;
    const int32_t len = job->layer->len[ih], quantised_to = wnw__cache_quantised_to(c, job->layer, ih, 0);
    int32_t at = -piece * cut->size; /* where the stretch begins, counted from the piece */
    for (int32_t i = 0; i < cut->p.n; at += cut->p.stretch[i++].rows.n) {
        const struct wnw__attend_stretch *stretch = &cut->p.stretch[i];
        int32_t from = at < 0 ? stretch->from - at : stretch->from;
        int32_t to =
            stretch->to - stretch->from + at > cut->size ? stretch->from - at + cut->size : stretch->to;
        if (c->n_tail > 0 && stretch->seen == WNW_SEEN_QUANTISED) {
            /* So few rows push out stored entries alone (WNW_CACHE_TAIL_MIN). */
            from = from > quantised_to ? from : quantised_to;
            wnw__cache_quantise(c, job->layer, ih, from, to);
        } else if (to > len) {
            wnw__attend_write(job, ih, from > len ? from - len : 0, to - len, k, v);
        }
    }
}

void wnw__attend_decode(const struct wnw__attend_job *job, const struct wnw__attend_piece *piece,
                        const struct wnw__attend_arrays *x, struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const struct wnw__attend_cut *cut = piece->cut;
    const int32_t ih = piece->ih;
    const struct wnw__attend_rows r = {.ih = ih, .n = job->slice->n_row, .sinks = piece->i == 0};
    if (x->k)
        store_piece(job, ih, cut, piece->i, x->k, x->v);
    decode_piece(job, &r, x->q, cut, piece->i, w);
    atomic_int *done = &sh->head_done[(size_t)job->i_slice * (size_t)sh->dims.model.n_head_kv + (size_t)ih];
    if (atomic_fetch_add_explicit(done, 1, memory_order_acq_rel) + 1 == cut->n) {
        atomic_store_explicit(done, 0, memory_order_relaxed);
        combine(job, ih, cut->n, x->out);
    }
}
