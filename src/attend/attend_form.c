/* SPDX-License-Identifier: MIT */
#include "attend/attend.h"

#include "attend/attend_impl.h"

#include <float.h>
#include <math.h>

float wnw__form_slope(float max_bias, int32_t n_head, int32_t h)
{
    if (max_bias <= 0.0f)
        return 1.0f;
    int32_t n = 1;
    while (2 * n <= n_head)
        n *= 2;
    return h < n ? powf(powf(2.0f, -max_bias / (float)n), (float)(h + 1))
                 : powf(powf(2.0f, -max_bias / 2.0f / (float)n), (float)(2 * (h - n) + 1));
}

void wnw__form_cap(float cap, float *x, int32_t n)
{
    for (int32_t i = 0; cap > 0.0f && i < n; i++)
        x[i] = cap * tanhf(x[i] / cap);
}

void wnw__form_scores(const struct wnw__score_form *f, float slope, int32_t query, const int32_t *pos,
                      float *x, int32_t n)
{
    if (!f)
        return;
    wnw__form_cap(f->cap, x, n);
    for (int32_t i = 0; f->max_bias > 0.0f && i < n; i++)
        x[i] -= slope * (float)(query - pos[i]);
}

/* The largest probability is 1 / sum exp(x - top), so that the sink's part of the new sum is known from it. */
void wnw__form_share(const struct wnw__score_form *f, int32_t h, float top, float *p, int32_t n)
{
    float most = 0.0f;
    if (!f || !f->sinks)
        return;
    for (int32_t i = 0; i < n; i++)
        most = p[i] > most ? p[i] : most;
    const float factor = (float)(1.0 / (1.0 + (double)most * exp((double)f->sinks[h] - (double)top)));
    for (int32_t i = 0; i < n; i++)
        p[i] *= factor;
}

/* ---- Tiles ---- */

static const struct wnw__score_form *form_of(const struct wnw__attend_job *job)
{
    return wnw__shape_form(&job->op->shared->dims.model, job->op->il);
}

void wnw__attend_begin(const struct wnw__attend_job *job, const struct wnw__attend_queries *q, float *m,
                       float *l)
{
    const struct wnw__score_form *f = form_of(job);
    const float *sinks = f ? f->sinks : NULL;
    for (int32_t i = 0; i < q->n; i++) {
        m[i] = sinks ? sinks[q->head + i % q->n_head] : -FLT_MAX; /* finite, so that m - m is defined */
        l[i] = sinks ? 1.0f : 0.0f;
    }
}

void wnw__attend_form(const struct wnw__attend_job *job, const struct wnw__attend_queries *q, int32_t ih,
                      int32_t at, int32_t n, float *s)
{
    const struct wnw__score_form *f = form_of(job);
    const struct wnw__kv_layer *l = job->layer;
    const int32_t len = l->len[ih], n_past = job->slice->n_past;
    int32_t pos[WNW_TILE];
    if (!f || (f->cap == 0.0f && f->max_bias == 0.0f))
        return;
    for (int32_t i = 0; i < n; i++)
        pos[i] = at + i < len ? l->pos[l->off[ih] + at + i] : n_past + at + i - len;
    for (int32_t r = 0; r < q->n; r++) {
        const int32_t n_head = job->op->shared->dims.model.n_head;
        const float slope = wnw__form_slope(f->max_bias, n_head, q->head + r % q->n_head);
        wnw__form_scores(f, slope, n_past + q->t0 + r / q->n_head, pos, s + (int64_t)r * WNW_TILE, n);
    }
}
