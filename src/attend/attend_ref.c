/* SPDX-License-Identifier: MIT */
#include "attend/attend_impl.h"

#include <math.h>
#include <stdlib.h>

/* The position of entry i of KV head ih. Entries from len on are the slice's own rows. */
static int32_t position(const struct wnw__attend_job *job, int32_t ih, int32_t i)
{
    const int32_t len = job->layer->len[ih];
    return i < len ? job->layer->pos[job->layer->off[ih] + i] : job->slice->n_past + i - len;
}

static bool visible(const struct wnw__attend_job *job, int32_t ih, int32_t i, int32_t t)
{
    return i <= job->layer->len[ih] + t &&
           position(job, ih, i) >=
               wnw__cache_first_seen(job->slice->cache, job->layer, job->slice->n_past + t);
}

/* The row of entry i of KV head ih as row t of the slice finds it: its f16 row, or the quantised one once it has
 * left the tail. Both are there while rows of the slice push it out. */
static struct wnw__kv_rows stored(const struct wnw__attend_job *job, int32_t ih, int32_t i, int32_t t)
{
    const struct wnw__cache *c = job->slice->cache;
    const bool is_quantised = c->n_tail > 0 && i >= job->layer->tail.n_first[ih] &&
                              i < wnw__cache_quantised_to(c, job->layer, ih, t);
    return is_quantised ? wnw__cache_quantised_rows(c, job->layer, ih, i, i + 1)
                        : wnw__cache_rows(c, job->layer, ih, i, i + 1);
}

/* A product as the score of query head h with an entry that is `ahead` positions after it. */
static double formed(const struct wnw__attend_job *job, int32_t h, int32_t ahead, double x)
{
    const struct wnw__shape *shape = &job->op->shared->dims.model;
    const struct wnw__score_form *f = wnw__shape_form(shape, job->op->il);
    if (f && f->cap > 0.0f)
        x = (double)f->cap * tanh(x / (double)f->cap);
    if (f && f->max_bias > 0.0f)
        x += (double)wnw__form_slope(f->max_bias, shape->n_head, h) * ahead;
    return x;
}

struct buffers {
    float *row;    /* [d] */
    double *score; /* [longest head] */
    double *acc;   /* [d] */
};

/* Attention of one query head of row t of the slice. */
static void attend_one(const struct wnw__attend_job *job, int32_t h, int32_t t, const float *q, float *out,
                       const struct buffers *b)
{
    const struct wnw__score_form *f = wnw__shape_form(&job->op->shared->dims.model, job->op->il);
    const int32_t ih = h / job->op->shared->group;
    const int32_t d = job->op->shared->dims.model.d, n = job->layer->len[ih] + t + 1;
    double top = f && f->sinks ? (double)f->sinks[h] : -INFINITY, sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        b->score[i] = -INFINITY;
        if (!visible(job, ih, i, t))
            continue;
        const struct wnw__kv_rows row = stored(job, ih, i, t);
        wnw__rows_to_f32(row.type, row.k, 1, d, b->row);
        wnw__hadamard(b->row, d, job->slice->cache->k_block);
        b->score[i] = 0.0;
        for (int32_t c = 0; c < d; c++)
            b->score[i] += (double)q[c] * (double)b->row[c] * (double)job->op->scale;
        b->score[i] = formed(job, h, position(job, ih, i) - job->slice->n_past - t, b->score[i]);
        if (wnw__cache_bias(job->layer, ih))
            b->score[i] += (double)wnw__cache_bias(job->layer, ih)[i];
        top = fmax(top, b->score[i]);
    }
    sum = f && f->sinks ? exp((double)f->sinks[h] - top) : 0.0;
    for (int32_t c = 0; c < d; c++)
        b->acc[c] = 0.0;
    for (int32_t i = 0; i < n; i++) {
        const double p = exp(b->score[i] - top);
        const struct wnw__kv_rows row = stored(job, ih, i, t);
        wnw__rows_to_f32(row.type, row.v, 1, d, b->row);
        wnw__hadamard(b->row, d, job->slice->cache->v_block);
        sum += p;
        for (int32_t c = 0; c < d; c++)
            b->acc[c] += p * (double)b->row[c];
    }
    for (int32_t c = 0; c < d; c++)
        out[c] = (float)(b->acc[c] / sum);
}

static void attend_slice(const struct wnw__attend_job *job, const float *q, float *out)
{
    const struct wnw__attend_dims *dims = &job->op->shared->dims;
    const size_t d = (size_t)dims->model.d;
    int32_t longest = 0;
    for (int32_t ih = 0; ih < dims->model.n_head_kv; ih++)
        longest = job->layer->len[ih] > longest ? job->layer->len[ih] : longest;
    struct buffers b = {.row = malloc(d * sizeof *b.row),
                        .score = malloc(((size_t)longest + (size_t)job->slice->n_row) * sizeof *b.score),
                        .acc = malloc(d * sizeof *b.acc)};
    for (int32_t t = 0; t < job->slice->n_row; t++) {
        for (int32_t h = 0; h < dims->model.n_head; h++) {
            const size_t at =
                ((size_t)(job->slice->first_row + t) * (size_t)dims->model.n_head + (size_t)h) * d;
            if (b.row && b.score && b.acc)
                attend_one(job, h, t, q + at, out + at, &b);
            else /* the function cannot fail, so the result is made NaN, with which no comparison passes */
                for (size_t c = 0; c < d; c++)
                    out[at + c] = NAN;
        }
    }
    free(b.row);
    free(b.score);
    free(b.acc);
}

void wnw__attend_ref(const struct wnw__attend_op *op, const float *q, float *out)
{
    for (int32_t i = 0; i < op->batch->n_slice; i++) {
        const struct wnw__attend_job job = wnw__attend_job_of(op, i);
        attend_slice(&job, q, out);
    }
}
