/* SPDX-License-Identifier: MIT */
#include "session/run/layer_major.h"

#include "base/err.h"
#include "kernel/kernel.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

struct wnw__hidden_rows {
    int32_t n_embd;
    float *x;       /* [n][n_embd], or [n_most][n_embd] of the rows taken if they are stored in f16 */
    uint16_t *half; /* [n][n_embd] or NULL */
    float *scale;   /* [n] powers of two, with `half` */
    int32_t at, n;  /* rows taken */
};

int wnw__hidden_rows_new(struct wnw__hidden_rows **out, int32_t n, int32_t n_embd, int32_t n_most, bool half)
{
    struct wnw__hidden_rows *h = calloc(1, sizeof *h);
    const size_t row = (size_t)n_embd, rows = (size_t)n;
    *out = NULL;
    if (!h)
        goto fail;
    h->n_embd = n_embd;
    h->x = malloc((half ? (size_t)n_most : rows) * row * sizeof *h->x);
    h->half = half ? malloc(rows * row * sizeof *h->half) : NULL;
    h->scale = half ? malloc(rows * sizeof *h->scale) : NULL;
    if (!h->x || (half && (!h->half || !h->scale)))
        goto fail;
    *out = h;
    return WNW_OK;
fail:
    wnw__hidden_rows_free(h);
    return wnw__fail(WNW_E_NOMEM, "no memory for %d hidden states", (int)n);
}

void wnw__hidden_rows_free(struct wnw__hidden_rows *h)
{
    if (!h)
        return;
    free(h->x);
    free(h->half);
    free(h->scale);
    free(h);
}

float *wnw__hidden_rows_take(struct wnw__hidden_rows *h, int32_t at, int32_t n, bool load)
{
    const size_t row = (size_t)h->n_embd, first = (size_t)at * row;
    h->at = at;
    h->n = n;
    if (!h->half)
        return h->x + first;
    if (!load)
        return h->x;
    wnw__rows_to_f32(WNW_KV_F16, h->half + first, n, h->n_embd, h->x);
    for (int32_t i = 0; i < n; i++)
        for (size_t c = 0; c < row; c++)
            h->x[(size_t)i * row + c] *= h->scale[at + i];
    return h->x;
}

/* The power of two by which a row is divided: then its largest value is from 2^14 on and below 2^15, f16's end is at 65504. */
static float scale_of(const float *x, int32_t n)
{
    float top = 0;
    int e = 0;
    for (int32_t c = 0; c < n; c++)
        top = fabsf(x[c]) > top ? fabsf(x[c]) : top;
    if (!(top >= FLT_MIN && top <= FLT_MAX)) /* nothing, or damage, which stays what it is */
        return 1;
    (void)frexpf(top, &e);
    return ldexpf(1, e - 15);
}

void wnw__hidden_rows_put(struct wnw__hidden_rows *h)
{
    const size_t row = (size_t)h->n_embd;
    for (int32_t i = 0; h->half && i < h->n; i++) {
        float *x = h->x + (size_t)i * row;
        h->scale[h->at + i] = scale_of(x, h->n_embd);
        for (size_t c = 0; c < row; c++)
            x[c] /= h->scale[h->at + i];
        wnw__rows_from_f32(WNW_KV_F16, x, 1, h->n_embd, h->half + (size_t)(h->at + i) * row);
    }
}
