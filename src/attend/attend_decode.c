/* SPDX-License-Identifier: MIT */
/*
 * Few new tokens: the entries of every head are cut into pieces, and whoever finishes a head's last piece
 * combines them in order. Lengths differ between heads, so the pieces of all heads form one list from which
 * threads take. New keys and values are written by the thread that owns the piece they fall into.
 */
#include "attend/attend_impl.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Entries of one head that a batch looks at, cut into n pieces of `size` (the last may be shorter). */
struct cut {
    int32_t from, to, size, n;
};

static struct cut cut_head(const struct wnw__attend_op *op, int32_t ih, int32_t n_tok)
{
    struct cut c = {.from = wnw__attend_first(op, ih, 0), .to = op->layer->len[ih] + n_tok};
    const int32_t span = c.to - c.from, most = op->shared->pieces;
    const int32_t even = (span + most - 1) / most;
    c.size = even <= WNW_ATTEND_PIECE ? WNW_ATTEND_PIECE : (even + WNW_TILE - 1) / WNW_TILE * WNW_TILE;
    c.n = (span + c.size - 1) / c.size;
    return c;
}

static float *partial_at(const struct wnw__attend_shared *sh, int32_t ih, int32_t piece)
{
    const size_t floats = (size_t)sh->decode_rows * (size_t)(sh->ld + 2);
    return sh->partial + ((size_t)ih * (size_t)sh->pieces + (size_t)piece) * floats;
}

/* out = sum_p O_p exp(m_p - M) / sum_p l_p exp(m_p - M), pieces in ascending order. */
static void combine(const struct wnw__attend_op *op, int32_t ih, int32_t n_piece, int32_t n_tok, float *out)
{
    const struct wnw__attend_shared *sh = op->shared;
    const int32_t d = sh->dims.d, ld = sh->ld, rows = n_tok * sh->group;
    for (int32_t i = 0; i < rows; i++) {
        const size_t at = (size_t)i * (size_t)(ld + 2);
        float top = -FLT_MAX, sum = 0.0f;
        float *dst = out + ((int64_t)(i / sh->group) * sh->dims.n_head + ih * sh->group + i % sh->group) * d;
        for (int32_t p = 0; p < n_piece; p++) {
            const float m = partial_at(sh, ih, p)[at + (size_t)ld];
            top = m > top ? m : top;
        }
        memset(dst, 0, (size_t)d * sizeof *dst);
        for (int32_t p = 0; p < n_piece; p++) {
            const float *o = partial_at(sh, ih, p) + at;
            const float weight = expf(o[ld] - top);
            sum += weight * o[ld + 1];
            for (int32_t c = 0; c < d; c++)
                dst[c] += weight * o[c];
        }
        for (int32_t c = 0; c < d; c++)
            dst[c] /= sum;
        if (sh->row_max) {
            const int32_t row = (ih * sh->group + i % sh->group) * n_tok + i / sh->group;
            sh->row_max[row] = top;
            sh->row_norm[row] = 1.0f / sum;
        }
    }
}

static void decode_piece(const struct wnw__attend_op *op, const struct wnw__attend_rows *r, const float *q,
                         int32_t from, int32_t to, float *partial, struct wnw__attend_work *w)
{
    const int32_t ld = op->shared->ld, rows = r->n_tok * op->shared->group;
    wnw__attend_load(op, r, q, w);
    wnw__attend_stream(op, r, from, to, w);
    for (int32_t i = 0; i < rows; i++) {
        float *dst = partial + (int64_t)i * (ld + 2);
        memcpy(dst, w->o + (int64_t)i * ld, (size_t)ld * sizeof *dst);
        dst[ld] = w->m[i];
        dst[ld + 1] = w->l[i];
    }
}

void wnw__attend_decode(const struct wnw__attend_op *op, const float *q, const float *k, const float *v,
                        int32_t n_tok, float *out, int ith, int nth)
{
    struct wnw__attend_shared *sh = op->shared;
    const int32_t n_head_kv = sh->dims.n_head_kv;
    if (ith < sh->dims.n_threads) {
        struct wnw__attend_work w = wnw__attend_work_at(sh, ith);
        struct cut c = cut_head(op, 0, n_tok);
        int32_t ih = 0, before = 0; /* pieces of the heads before ih */
        for (int32_t u; (u = wnw__attend_take(sh, INT32_MAX)) >= 0;) {
            while (ih < n_head_kv && u - before >= c.n) {
                before += c.n;
                if (++ih < n_head_kv)
                    c = cut_head(op, ih, n_tok);
            }
            if (ih == n_head_kv)
                break;
            const int32_t from = c.from + (u - before) * c.size;
            const int32_t to = c.to - from < c.size ? c.to : from + c.size;
            const int32_t len = op->layer->len[ih];
            if (k && to > len)
                wnw__attend_write(op, ih, from > len ? from - len : 0, to - len, k, v);
            const struct wnw__attend_rows r = {.ih = ih, .t0 = 0, .n_tok = n_tok};
            decode_piece(op, &r, q, from, to, partial_at(sh, ih, u - before), &w);
            if (atomic_fetch_add_explicit(&sh->head_done[ih], 1, memory_order_acq_rel) + 1 == c.n) {
                atomic_store_explicit(&sh->head_done[ih], 0, memory_order_relaxed);
                combine(op, ih, c.n, n_tok, out);
            }
        }
    }
    wnw__attend_leave(sh, nth);
}
