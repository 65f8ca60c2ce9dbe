/* SPDX-License-Identifier: MIT */
/* A slice of many new rows. A unit of work is a run of rows with one KV head; one thread takes all entries
 * that the run sees. */
#include "attend/attend_impl.h"

int32_t wnw__attend_run_length(const struct wnw__attend_shared *sh)
{
    return sh->group < WNW_ATTEND_ROWS ? WNW_ATTEND_ROWS / sh->group : 1;
}

int32_t wnw__attend_runs(const struct wnw__attend_shared *sh, int32_t n_row)
{
    const int32_t step = wnw__attend_run_length(sh);
    return (n_row + step - 1) / step;
}

int32_t wnw__attend_prefill_units(const struct wnw__attend_job *job)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    return wnw__attend_runs(sh, job->slice->n_row) * sh->dims.model.n_head_kv;
}

int32_t wnw__attend_skipped(const struct wnw__attend_op *op, int32_t i)
{
    const struct wnw__attend_slice *s = &op->batch->slice[i];
    const int32_t step = wnw__attend_run_length(op->shared);
    if (!op->partial || wnw__attend_is_decode(op->shared, s->n_row))
        return 0;
    return s->first_out < s->n_row ? s->first_out / step * step : s->n_row;
}

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
        if (sh->row_max) {
            sh->row_max[(int64_t)h * job->op->batch->n_row + row] = w->m[i];
            sh->row_norm[(int64_t)h * job->op->batch->n_row + row] = norm;
        }
    }
}

void wnw__attend_rows(const struct wnw__attend_job *job, const struct wnw__attend_rows *r, const float *q,
                      float *out, struct wnw__attend_work *w)
{
    struct wnw__attend_parts p;
    wnw__attend_load(job, r, q, w);
    wnw__attend_parts_of(job, r, w->from[0], w->to[r->n * job->op->shared->group - 1], &p);
    wnw__attend_stream(job, r, &p, 0, p.n_entry, w);
    write_out(job, r, w, out);
}

void wnw__attend_prefill(const struct wnw__attend_job *job, int32_t unit, const float *q, float *out, int ith,
                         struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const int32_t n_head_kv = sh->dims.model.n_head_kv, step = wnw__attend_run_length(sh);
    /* The last rows see the most entries. They come first, so that the longest units do. */
    struct wnw__attend_rows r = {.ih = unit % n_head_kv,
                                 .t0 =
                                     (wnw__attend_runs(sh, job->slice->n_row) - 1 - unit / n_head_kv) * step};
    r.n = job->slice->n_row - r.t0 < step ? job->slice->n_row - r.t0 : step;
    if (r.t0 < wnw__attend_skipped(job->op, job->i_slice))
        return;
    if (job->layer->n_swa <= 0 && wnw__attend_leaves_columns(sh, job->slice))
        wnw__attend_run_columns(job, &r, q, out, ith, w);
    else
        wnw__attend_rows(job, &r, q, out, w);
}
