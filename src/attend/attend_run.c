/* SPDX-License-Identifier: MIT */
/*
 * The units of all slices form one list from which threads take. It consists of sections: a section is all
 * units of a slice of many rows, or those of one head of a slice of few rows. Slices of many rows come first,
 * because their units take the longest. The list is not stored: every thread walks along it as the numbers of
 * its units grow.
 */
#include "attend/attend_impl.h"

/* ---- A slice of many rows: units are runs of rows and one KV head; all rows have been stored ---- */

static int32_t prefill_units(const struct wnw__attend_job *job)
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

/* One unit of a slice of many rows; ith: of the thread. */
static void prefill(const struct wnw__attend_job *job, int32_t unit, const float *q, float *out, int ith,
                    struct wnw__attend_work *w)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const int32_t n_head_kv = sh->dims.model.n_head_kv, step = wnw__attend_run_length(sh);
    /* The last rows see the most entries. They come first, so that the longest units do. */
    struct wnw__attend_rows r = {.ih = unit % n_head_kv,
                                 .t0 =
                                     (wnw__attend_runs(sh, job->slice->n_row) - 1 - unit / n_head_kv) * step};
    r.n = job->slice->n_row - r.t0 < step ? job->slice->n_row - r.t0 : step;
    r.sinks = true;
    if (r.t0 < wnw__attend_skipped(job->op, job->i_slice))
        return;
    if (job->layer->n_swa <= 0 && wnw__attend_leaves_columns(sh, job->slice))
        wnw__attend_run_columns(job, &r, q, out, ith, w);
    else
        wnw__attend_rows(job, &r, q, out, w);
}

/* ---- The list ---- */

struct section {
    struct wnw__attend_job job;
    bool decode;
    int32_t ih;                 /* used if decode */
    struct wnw__attend_cut cut; /* used if decode */
    int32_t n_unit;
};

static void set_head(struct section *s, int32_t ih)
{
    s->ih = ih;
    s->cut = wnw__attend_cut(&s->job, ih);
    s->n_unit = s->cut.n;
}

/* Sets *s to the first section of the first slice from i_slice on that has few rows (s->decode) or many
 * (otherwise). Returns false if there is none. */
static bool find_slice(const struct wnw__attend_op *op, struct section *s, int32_t i_slice)
{
    for (; i_slice < op->batch->n_slice; i_slice++) {
        if (wnw__attend_is_decode(op->shared, op->batch->slice[i_slice].n_row) != s->decode)
            continue;
        s->job = wnw__attend_job_of(op, i_slice);
        if (s->decode)
            set_head(s, 0);
        else
            s->n_unit = prefill_units(&s->job);
        return true;
    }
    return false;
}

static bool first_section(const struct wnw__attend_op *op, struct section *s)
{
    s->decode = false;
    if (find_slice(op, s, 0))
        return true;
    s->decode = true;
    return find_slice(op, s, 0);
}

static bool next_section(const struct wnw__attend_op *op, struct section *s)
{
    if (s->decode && s->ih + 1 < op->shared->dims.model.n_head_kv) {
        set_head(s, s->ih + 1);
        return true;
    }
    if (find_slice(op, s, s->job.i_slice + 1))
        return true;
    if (s->decode)
        return false;
    s->decode = true;
    return find_slice(op, s, 0);
}

void wnw__attend_run(const struct wnw__attend_op *op, const float *q, const float *k, const float *v,
                     float *out, int ith, int nth)
{
    struct wnw__attend_shared *sh = op->shared;
    const struct wnw__attend_arrays rows = {.q = q, .k = k, .v = v, .out = out};
    struct section s;
    int32_t before = 0; /* units of the sections before s */
    bool more = ith < sh->dims.n_threads && first_section(op, &s);
    while (more) {
        struct wnw__attend_work w = wnw__attend_work_at(sh, ith);
        const int32_t u = wnw__attend_take(sh, INT32_MAX);
        while (more && u - before >= s.n_unit) {
            before += s.n_unit;
            more = next_section(op, &s);
        }
        if (more && s.decode)
            wnw__attend_decode(&s.job, &(struct wnw__attend_piece){s.ih, u - before, &s.cut}, &rows, &w);
        else if (more)
            prefill(&s.job, u - before, q, out, ith, &w);
    }
    wnw__attend_leave(sh, nth);
}
