/* SPDX-License-Identifier: MIT */
/*
 * A slice of few new rows. The entries of every head are cut into pieces, and the thread that finishes a
 * head's last piece combines all pieces in order. New keys and values are written by the thread whose piece
 * they fall into.
 */
#include "attend/attend_impl.h"

#include <float.h>
#include <math.h>
#include <string.h>

struct wnw__attend_cut wnw__attend_cut(const struct wnw__attend_job *job, int32_t ih)
{
    struct wnw__attend_cut c = {.from = wnw__attend_first(job, ih, 0),
                                .to = job->layer->len[ih] + job->slice->n_row};
    const int32_t span = c.to - c.from;
    const int32_t even = (span + WNW_ATTEND_PIECES - 1) / WNW_ATTEND_PIECES;
    c.size = even <= WNW_ATTEND_PIECE ? WNW_ATTEND_PIECE : (even + WNW_TILE - 1) / WNW_TILE * WNW_TILE;
    c.n = (span + c.size - 1) / c.size;
    return c;
}

static float *partial_at(const struct wnw__attend_job *job, int32_t ih, int32_t piece)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const struct wnw__attend_place *p = &sh->place[job->i_slice];
    const size_t floats = (size_t)job->slice->n_row * (size_t)sh->group * (size_t)(sh->ld + 2);
    return sh->partial + p->at + ((size_t)ih * (size_t)p->pieces + (size_t)piece) * floats;
}

/* out = sum_p O_p exp(m_p - M) / sum_p l_p exp(m_p - M), pieces in ascending order. */
static void combine(const struct wnw__attend_job *job, int32_t ih, int32_t n_piece, float *out)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const int32_t d = sh->dims.d, ld = sh->ld, n_query = job->slice->n_row * sh->group;
    for (int32_t i = 0; i < n_query; i++) {
        const size_t at = (size_t)i * (size_t)(ld + 2);
        const int32_t row = job->slice->first_row + i / sh->group, h = ih * sh->group + i % sh->group;
        float top = -FLT_MAX, sum = 0.0f;
        float *dst = out + ((int64_t)row * sh->dims.n_head + h) * d;
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
        if (sh->row_max) {
            sh->row_max[(int64_t)h * job->op->batch->n_row + row] = top;
            sh->row_norm[(int64_t)h * job->op->batch->n_row + row] = 1.0f / sum;
        }
    }
}

static void decode_piece(const struct wnw__attend_job *job, const struct wnw__attend_rows *r, const float *q,
                         int32_t from, int32_t to, float *partial, struct wnw__attend_work *w)
{
    const int32_t ld = job->op->shared->ld, n_query = r->n * job->op->shared->group;
    wnw__attend_load(job, r, q, w);
    wnw__attend_stream(job, r, from, to, w);
    for (int32_t i = 0; i < n_query; i++) {
        float *dst = partial + (int64_t)i * (ld + 2);
        memcpy(dst, w->o + (int64_t)i * ld, (size_t)ld * sizeof *dst);
        dst[ld] = w->m[i];
        dst[ld + 1] = w->l[i];
    }
}

void wnw__attend_decode(const struct wnw__attend_job *job, int32_t ih, const struct wnw__attend_cut *cut,
                        int32_t piece, const float *q, const float *k, const float *v, float *out,
                        struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const int32_t from = cut->from + piece * cut->size, len = job->layer->len[ih];
    const int32_t to = cut->to - from < cut->size ? cut->to : from + cut->size;
    const struct wnw__attend_rows r = {.ih = ih, .n = job->slice->n_row};
    if (k && to > len)
        wnw__attend_write(job, ih, from > len ? from - len : 0, to - len, k, v);
    decode_piece(job, &r, q, from, to, partial_at(job, ih, piece), w);
    atomic_int *done = &sh->head_done[(size_t)job->i_slice * (size_t)sh->dims.n_head_kv + (size_t)ih];
    if (atomic_fetch_add_explicit(done, 1, memory_order_acq_rel) + 1 == cut->n) {
        atomic_store_explicit(done, 0, memory_order_relaxed);
        combine(job, ih, cut->n, out);
    }
}
