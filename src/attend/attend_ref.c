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

/* Work of one KV head. */
struct buffers {
    float *k, *v;  /* [n][d], its entries as the current row finds them */
    int32_t n;     /* that are there */
    int32_t to;    /* those from the tail's first ones to here were quantised for the row before */
    double *score; /* [longest head] */
    double *acc;   /* [d] */
};

/* Entries that row t of the slice looks at. Those that the row before looked at are the same for it, but for entries that leave the
 * tail between them. */
static void unpack(const struct wnw__attend_job *job, int32_t ih, int32_t t, struct buffers *b)
{
    const struct wnw__cache *c = job->slice->cache;
    const int32_t d = job->op->shared->dims.model.d, n = job->layer->len[ih] + t + 1,
                  to = wnw__cache_quantised_to(c, job->layer, ih, t);
    for (int32_t i = to != b->to && b->to < b->n ? b->to : b->n; i < n; i++) {
        const struct wnw__kv_rows row = stored(job, ih, i, t);
        wnw__rows_to_f32(row.type, row.k, 1, d, b->k + (int64_t)i * d);
        wnw__rows_to_f32(row.type, row.v, 1, d, b->v + (int64_t)i * d);
        wnw__hadamard(b->k + (int64_t)i * d, d, c->k_block);
        wnw__hadamard(b->v + (int64_t)i * d, d, c->v_block);
    }
    b->n = n;
    b->to = to;
}

/* In four sums, because one would wait for itself. */
static double dot(const float *a, const float *b, int32_t n)
{
    double sum[4] = {0};
    int32_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += (double)a[i + k] * (double)b[i + k];
    for (; i < n; i++)
        sum[0] += (double)a[i] * (double)b[i];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

/* Attention of one query head of row t of the slice. */
static void attend_one(const struct wnw__attend_job *job, int32_t h, int32_t t, const float *q, float *out,
                       const struct buffers *b)
{
    const struct wnw__score_form *f = wnw__shape_form(&job->op->shared->dims.model, job->op->il);
    const int32_t ih = h / job->op->shared->group, d = job->op->shared->dims.model.d;
    const float *bias = wnw__cache_bias(job->layer, ih);
    double top = f && f->sinks ? (double)f->sinks[h] : -INFINITY, sum = 0.0;
    for (int32_t i = 0; i < b->n; i++) {
        b->score[i] = -INFINITY;
        if (!visible(job, ih, i, t))
            continue;
        const double x = formed(job, h, position(job, ih, i) - job->slice->n_past - t,
                                dot(q, b->k + (int64_t)i * d, d) * (double)job->op->scale);
        b->score[i] = bias ? x + (double)bias[i] : x;
        top = fmax(top, b->score[i]);
    }
    sum = f && f->sinks ? exp((double)f->sinks[h] - top) : 0.0;
    for (int32_t c = 0; c < d; c++)
        b->acc[c] = 0.0;
    for (int32_t i = 0; i < b->n; i++) {
        const double p = exp(b->score[i] - top);
        const float *v = b->v + (int64_t)i * d;
        sum += p;
        for (int32_t c = 0; c < d; c++)
            b->acc[c] += p * (double)v[c];
    }
    for (int32_t c = 0; c < d; c++)
        out[c] = (float)(b->acc[c] / sum);
}

/* All rows of the slice, in the query heads of one KV head. */
static void attend_head(const struct wnw__attend_job *job, int32_t ih, const float *q, float *out)
{
    const struct wnw__attend_shared *sh = job->op->shared;
    const int32_t n_head = sh->dims.model.n_head;
    const size_t d = (size_t)sh->dims.model.d;
    const size_t longest = (size_t)job->layer->len[ih] + (size_t)job->slice->n_row;
    struct buffers b = {.k = malloc(longest * d * sizeof *b.k),
                        .v = malloc(longest * d * sizeof *b.v),
                        .score = malloc(longest * sizeof *b.score),
                        .acc = malloc(d * sizeof *b.acc)};
    const bool is_there = b.k && b.v && b.score && b.acc;
    for (int32_t t = 0; t < job->slice->n_row; t++) {
        if (is_there)
            unpack(job, ih, t, &b);
        for (int32_t h = ih * sh->group; h < (ih + 1) * sh->group; h++) {
            const size_t at = ((size_t)(job->slice->first_row + t) * (size_t)n_head + (size_t)h) * d;
            if (is_there)
                attend_one(job, h, t, q + at, out + at, &b);
            else /* the function cannot fail, so the result is made NaN, with which no comparison passes */
                for (size_t c = 0; c < d; c++)
                    out[at + c] = NAN;
        }
    }
    free(b.k);
    free(b.v);
    free(b.score);
    free(b.acc);
}

void wnw__attend_ref(const struct wnw__attend_op *op, const float *q, float *out)
{
    for (int32_t i = 0; i < op->batch->n_slice; i++) {
        const struct wnw__attend_job job = wnw__attend_job_of(op, i);
        for (int32_t ih = 0; ih < op->shared->dims.model.n_head_kv; ih++)
            attend_head(&job, ih, q, out);
    }
}
