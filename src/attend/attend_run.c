/* SPDX-License-Identifier: MIT */
/*
 * The units of all slices form one list from which threads take. It consists of sections: a section is all
 * units of a slice of many rows, or those of one head of a slice of few rows. Slices of many rows come first,
 * because their units take the longest. The list is not stored: every thread walks along it as the numbers of
 * its units grow.
 */
#include "attend/attend_impl.h"

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
            s->n_unit = wnw__attend_prefill_units(&s->job);
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
            wnw__attend_decode(&s.job, s.ih, &s.cut, u - before, q, k, v, out, &w);
        else if (more)
            wnw__attend_prefill(&s.job, u - before, q, out, ith, &w);
    }
    wnw__attend_leave(sh, nth);
}
