/* SPDX-License-Identifier: MIT */
#include "attend/attend_impl.h"

#include <math.h>
#include <stdlib.h>

/* Position of entry i of KV head ih; entries from len on are the new tokens. */
static int32_t position(const struct wnw__attend_op *op, int32_t ih, int32_t i)
{
    const int32_t len = op->layer->len[ih];
    return i < len ? op->layer->pos[op->layer->off[ih] + i] : op->n_past + i - len;
}

static bool visible(const struct wnw__attend_op *op, int32_t ih, int32_t i, int32_t t)
{
    const int32_t n_swa = op->layer->n_swa;
    return i <= op->layer->len[ih] + t && (n_swa <= 0 || op->n_past + t - position(op, ih, i) < n_swa);
}

static const uint8_t *row(const struct wnw__attend_op *op, const uint8_t *arena, int32_t ih, int32_t i)
{
    return arena + (size_t)(op->layer->off[ih] + i) * op->shared->row_bytes;
}

/* One query head and token. buf float[d], score double[n], acc double[d] */
static void attend_one(const struct wnw__attend_op *op, int32_t ih, int32_t t, const float *q, float *out,
                       float *buf, double *score, double *acc)
{
    const struct wnw__attend_dims *dims = &op->shared->dims;
    const int32_t n = op->layer->len[ih] + t + 1;
    double top = -INFINITY, sum = 0.0;
    for (int32_t i = 0; i < n; i++) {
        score[i] = -INFINITY;
        if (!visible(op, ih, i, t))
            continue;
        wnw__rows_to_f32(dims->type, row(op, op->layer->k, ih, i), 1, dims->d, buf);
        score[i] = 0.0;
        for (int32_t c = 0; c < dims->d; c++)
            score[i] += (double)q[c] * (double)buf[c] * (double)op->scale;
        top = fmax(top, score[i]);
    }
    for (int32_t c = 0; c < dims->d; c++)
        acc[c] = 0.0;
    for (int32_t i = 0; i < n; i++) {
        const double p = exp(score[i] - top);
        wnw__rows_to_f32(dims->type, row(op, op->layer->v, ih, i), 1, dims->d, buf);
        sum += p;
        for (int32_t c = 0; c < dims->d; c++)
            acc[c] += p * (double)buf[c];
    }
    for (int32_t c = 0; c < dims->d; c++)
        out[c] = (float)(acc[c] / sum);
}

void wnw__attend_ref(const struct wnw__attend_op *op, const float *q, int32_t n_tok, float *out)
{
    const struct wnw__attend_dims *dims = &op->shared->dims;
    const size_t d = (size_t)dims->d;
    int32_t longest = 0;
    for (int32_t ih = 0; ih < dims->n_head_kv; ih++)
        longest = op->layer->len[ih] > longest ? op->layer->len[ih] : longest;
    float *buf = malloc(d * sizeof *buf);
    double *score = malloc(((size_t)longest + (size_t)n_tok) * sizeof *score);
    double *acc = malloc(d * sizeof *acc);
    for (int32_t t = 0; t < n_tok; t++) {
        for (int32_t h = 0; h < dims->n_head; h++) {
            const size_t at = ((size_t)t * (size_t)dims->n_head + (size_t)h) * d;
            if (buf && score && acc)
                attend_one(op, h / op->shared->group, t, q + at, out + at, buf, score, acc);
            else /* no way to fail: poison the result, so that no comparison can pass */
                for (size_t c = 0; c < d; c++)
                    out[at + c] = NAN;
        }
    }
    free(buf);
    free(score);
    free(acc);
}
