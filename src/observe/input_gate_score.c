/* SPDX-License-Identifier: MIT */
#include "observe/input_gate_score.h"

#include "base/err.h"
#include "kernel/kernel.h"

#include <math.h>

enum { BLOCK = WNW_INPUT_BLOCK };

/* Numbers in front of the scores that the form computes of a token: hidden units, or queries and keys. */
static int32_t width_of(const struct wnw__input_gate *g, const struct wnw__shape *shape)
{
    switch (g->form) {
    case WNW_INPUT_MLP:
        return g->n_hidden;
    case WNW_INPUT_ATTENTION:
        return (shape->n_head + shape->n_head_kv) * g->n_dim;
    case WNW_INPUT_LINEAR:
        break;
    }
    return 0;
}

size_t wnw__input_gate_room(const struct wnw__input_gate *g, const struct wnw__shape *shape)
{
    return (size_t)BLOCK * ((size_t)width_of(g, shape) + (size_t)shape->n_head_kv);
}

/* y[n][n_row] = W x + b; W is followed by b where `biased`. Returns what lies after them. */
static const float *affine(const float *w, const float *x, int32_t n, int32_t n_row, int32_t n_col,
                           bool biased, float *y)
{
    const float *b = w + (int64_t)n_row * n_col;
    wnw__mul_nt(x, n, w, n_row, n_col, 1, y, n_row);
    for (int32_t i = 0; biased && i < n; i++)
        for (int32_t r = 0; r < n_row; r++)
            y[(int64_t)i * n_row + r] += b[r];
    return biased ? b + n_row : b;
}

/* out[G][BLOCK] = y[n][G] */
static void by_head(const float *y, int32_t n, int32_t n_head, float *out)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t ih = 0; ih < n_head; ih++)
            out[ih * BLOCK + i] = y[i * n_head + ih];
}

static void gelu(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = 0.5f * x[i] * (1 + erff(x[i] * 0.70710678f));
}

/* x[n_dim] with root mean square 1, times weight. 1e-6 is that of the published gates. */
static void rms_norm(float *x, const float *weight, int32_t n)
{
    float sum = 0;
    for (int32_t c = 0; c < n; c++)
        sum += x[c] * x[c];
    const float scale = 1 / sqrtf(sum / (float)n + 1e-6f);
    for (int32_t c = 0; c < n; c++)
        x[c] *= scale * weight[c];
}

static float dot(const float *a, const float *b, int32_t n)
{
    float sum = 0;
    for (int32_t c = 0; c < n; c++)
        sum += a[c] * b[c];
    return sum;
}

/* A token's score in KV head ih from its normed queries q[H][e] and keys k[G][e]. */
static float attention_score(const struct wnw__input_gate *g, int32_t group, int32_t ih, const float *q,
                             const float *k, const float *sink, const float *bias)
{
    const int32_t e = g->n_dim;
    const float c = 1 / sqrtf((float)e);
    float mean = 0;
    for (int32_t h = ih * group; h < (ih + 1) * group; h++) {
        const float own = c * dot(k + ih * e, q + h * e, e) + bias[h];
        float sum = 1;
        for (int32_t s = 0; s < g->n_sink; s++)
            sum += expf(c * dot(sink + (int64_t)(ih * g->n_sink + s) * e, q + h * e, e) - own);
        mean += 1 / sum;
    }
    return mean / (float)group;
}

static void attention(const struct wnw__input_gate *g, const struct wnw__shape *shape, const float *w,
                      const float *x, int32_t n, float *room, float *out)
{
    const int32_t e = g->n_dim, H = shape->n_head, G = shape->n_head_kv;
    float *q = room, *k = q + (int64_t)BLOCK * H * e;
    const float *wk = affine(w, x, n, H * e, g->n_embd, true, q);
    const float *nq = affine(wk, x, n, G * e, g->n_embd, false, k), *nk = nq + e, *sink = nk + e,
                *bias = sink + (int64_t)G * g->n_sink * e;
    for (int32_t i = 0; i < n; i++) {
        for (int32_t h = 0; h < H; h++)
            rms_norm(q + ((int64_t)i * H + h) * e, nq, e);
        for (int32_t ih = 0; ih < G; ih++) {
            rms_norm(k + ((int64_t)i * G + ih) * e, nk, e);
            out[ih * BLOCK + i] =
                attention_score(g, H / G, ih, q + (int64_t)i * H * e, k + (int64_t)i * G * e, sink, bias);
        }
    }
}

void wnw__input_gate_score(const struct wnw__input_gate *g, const struct wnw__shape *shape, int32_t il,
                           const float *x, int32_t n, float *room, float *out)
{
    const float *w = g->number + (int64_t)il * wnw__input_numbers(g, shape);
    const int32_t G = shape->n_head_kv;
    float *y = room + (int64_t)BLOCK * width_of(g, shape);
    switch (g->form) {
    case WNW_INPUT_LINEAR:
        (void)affine(w, x, n, G, g->n_embd, true, y);
        by_head(y, n, G, out);
        break;
    case WNW_INPUT_MLP:
        w = affine(w, x, n, g->n_hidden, g->n_embd, true, room);
        gelu(room, (int64_t)n * g->n_hidden);
        (void)affine(w, room, n, G, g->n_hidden, true, y);
        by_head(y, n, G, out);
        break;
    case WNW_INPUT_ATTENTION:
        attention(g, shape, w, x, n, room, out);
        break;
    }
}

size_t wnw__input_asked_room(const struct wnw__input_gate *g, const struct wnw__shape *shape)
{
    return wnw__input_gate_room(g, shape) + (size_t)shape->n_head_kv * BLOCK;
}

void wnw__input_ask(const struct wnw__input_asked *a, int ith, int nth)
{
    const int n_thread = nth < a->n_thread ? nth : a->n_thread;
    if (ith >= n_thread)
        return;
    float *room = a->room + (size_t)ith * wnw__input_asked_room(a->g, a->shape);
    float *scores = room + wnw__input_gate_room(a->g, a->shape);
    for (int64_t t = (int64_t)ith * BLOCK; t < a->n; t += (int64_t)n_thread * BLOCK) {
        const int32_t n = a->n - t < BLOCK ? (int32_t)(a->n - t) : BLOCK;
        wnw__input_gate_score(a->g, a->shape, a->il, a->x + (size_t)t * a->stride, n, room, scores);
        a->keep(a->user, t, n, scores);
    }
}
