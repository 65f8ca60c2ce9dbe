/* SPDX-License-Identifier: MIT */
/* Many new tokens: a unit of work is (KV head, run of tokens), all its entries streamed by one thread. */
#include "attend/attend_impl.h"

static void prefill_unit(const struct wnw__attend_op *op, const struct wnw__attend_rows *r, const float *q,
                         int32_t n_tok, float *out, struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = op->shared;
    const int32_t d = sh->dims.d, rows = r->n_tok * sh->group;
    wnw__attend_load(op, r, q, w);
    wnw__attend_stream(op, r, w->from[0], w->to[rows - 1], w);
    for (int32_t i = 0; i < rows; i++) {
        const float norm = 1.0f / w->l[i];
        const float *o = w->o + (int64_t)i * sh->ld;
        const int64_t t = r->t0 + i / sh->group;
        const int32_t h = r->ih * sh->group + i % sh->group;
        float *dst = out + (t * sh->dims.n_head + h) * d;
        for (int32_t c = 0; c < d; c++)
            dst[c] = norm * o[c];
        if (sh->row_max) {
            sh->row_max[(int64_t)h * n_tok + t] = w->m[i];
            sh->row_norm[(int64_t)h * n_tok + t] = norm;
        }
    }
}

void wnw__attend_prefill(const struct wnw__attend_op *op, const float *q, int32_t n_tok, float *out, int ith,
                         int nth)
{
    struct wnw__attend_shared *sh = op->shared;
    const int32_t n_head_kv = sh->dims.n_head_kv;
    const int32_t step = sh->group < WNW_ATTEND_ROWS ? WNW_ATTEND_ROWS / sh->group : 1;
    const int32_t n_step = (n_tok + step - 1) / step, n_unit = n_step * n_head_kv;

    if (ith < sh->dims.n_threads) {
        struct wnw__attend_work w = wnw__attend_work_at(sh, ith);
        for (int32_t u; (u = wnw__attend_take(sh, n_unit)) >= 0;) {
            /* the last tokens see the most entries: longest first */
            struct wnw__attend_rows r = {.ih = u % n_head_kv, .t0 = (n_step - 1 - u / n_head_kv) * step};
            r.n_tok = n_tok - r.t0 < step ? n_tok - r.t0 : step;
            prefill_unit(op, &r, q, n_tok, out, &w);
        }
    }
    wnw__attend_leave(sh, nth);
}
