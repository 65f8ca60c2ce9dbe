/* SPDX-License-Identifier: MIT */
/*
 * Statistical leverage: keys stay that no combination of the head's other keys gives. Paper: "Compactor:
 * Calibrated Query-Agnostic KV Cache Compression with Approximate Leverage Scores" (arXiv 2507.08143). With K
 * the n x d keys before RoPE, their mean taken off, and Phi a random d x s matrix of variance 1 / s:
 *
 *     X = K Phi,   l_i = x_i^T (X^T X + eps I)^-1 x_i,   score = (l_i - mean) / std over the layer
 * eps is 0.01; while the matrix cannot be factored eps is multiplied by ten, five times at most, as in
 * kvpress. Keys are turned back from the cached ones; kvpress computes them again from the hidden states. Phi
 * depends on seed, layer and head alone; kvpress draws it from a generator in sequence, so that its scores
 * cannot be reproduced.
 * Observes keys. Cost O(n s (d + s)) per KV head.
 */
#include "base/random.h"
#include "base/vectors.h"
#include "score/score.h"

#include <math.h>

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_KEYS | WNW_NEED_ROPE;
}

/* Scratch holds X[n][s], Phi[d][s] and one key [d]. */
size_t wnw__leverage_scratch(const struct wnw__leverage_opts *o, const wnw_observation *obs)
{
    const size_t s = (size_t)o->sketch, d = (size_t)obs->n_embd_head;
    return (size_t)obs->n * s + d * s + d;
}

/* out[d] = key as it was before RoPE. */
static void turn_back(const wnw_observation *obs, const float *key, int32_t pos, float *out)
{
    const int32_t half = obs->rope_theta ? obs->n_rot / 2 : 0;
    for (int32_t c = 0; c < obs->n_embd_head; c++)
        out[c] = key[c];
    for (int32_t i = 0; i < half; i++) {
        const int32_t a = obs->rope_neox ? i : 2 * i, b = obs->rope_neox ? i + half : 2 * i + 1;
        const double angle = pos * (double)obs->rope_theta[i];
        const float cosine = (float)cos(angle), sine = (float)sin(angle);
        out[a] = key[a] * cosine + key[b] * sine;
        out[b] = key[b] * cosine - key[a] * sine;
    }
}

/* Rows first .. end - 1 of X[n][s], centred: the mean of the sketches is the sketch of the mean. */
static void sketch_keys(const struct wnw__leverage_opts *o, const wnw_observation *obs, int32_t ih,
                        int32_t first, int32_t end, float *x)
{
    const int32_t s = o->sketch, d = obs->n_embd_head;
    const float *k = obs->keys(obs, ih); /* [n][d] */
    const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
    float *phi = x + (int64_t)obs->n * s, *key = phi + (int64_t)d * s;
    const uint64_t stream = wnw__stream(o->seed, obs->il, ih);
    double mean[WNW_MAX_SKETCH] = {0};
    for (int32_t c = 0; c < d * s; c++)
        phi[c] = wnw__normal(stream, (uint32_t)c) / sqrtf((float)s);
    for (int32_t i = first; i < end; i++) {
        float *row = x + (int64_t)i * s;
        turn_back(obs, k + (int64_t)i * d, pos[i], key);
        for (int32_t j = 0; j < s; j++)
            row[j] = 0;
        for (int32_t c = 0; c < d; c++)
            for (int32_t j = 0; j < s; j++)
                row[j] += key[c] * phi[(int64_t)c * s + j];
        for (int32_t j = 0; j < s; j++)
            mean[j] += (double)row[j] / (end - first);
    }
    for (int32_t i = first; i < end; i++)
        for (int32_t j = 0; j < s; j++)
            x[(int64_t)i * s + j] -= (float)mean[j];
}

/* Computes L, the Cholesky factor of X^T X + eps I. */
static int factor(const float *x, int32_t first, int32_t end, int32_t s, double *l)
{
    double gram[WNW_MAX_SKETCH * WNW_MAX_SKETCH] = {0};
    for (int32_t i = first; i < end; i++)
        for (int32_t a = 0; a < s; a++)
            for (int32_t b = 0; b <= a; b++)
                gram[a * s + b] += (double)x[(int64_t)i * s + a] * (double)x[(int64_t)i * s + b];
    double eps = 0.01;
    for (int32_t try = 0; try < 5; try++, eps *= 10) {
        for (int32_t a = 0; a < s; a++)
            for (int32_t b = 0; b <= a; b++)
                l[a * s + b] = gram[a * s + b] + (a == b ? eps : 0);
        if (wnw__cholesky(l, s))
            return WNW_OK;
    }
    return wnw__fail(WNW_E_NOT_FINITE,
                     "leverage: the keys' Gram matrix cannot be factored; are there infinite keys?");
}

/* x^T (L L^T)^-1 x = || L^-1 x ||^2 */
static float leverage_of(const double *l, int32_t s, const float *x)
{
    double y[WNW_MAX_SKETCH], sum = 0;
    for (int32_t i = 0; i < s; i++) {
        y[i] = (double)x[i];
        for (int32_t j = 0; j < i; j++)
            y[i] -= l[i * s + j] * y[j];
        y[i] /= l[i * s + i];
        sum += y[i] * y[i];
    }
    return (float)sum;
}

int wnw__leverage(const struct wnw__leverage_opts *o, const wnw_observation *obs, struct wnw__ends ends,
                  float *score, float *x)
{
    double l[WNW_MAX_SKETCH * WNW_MAX_SKETCH];
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *out = score + (int64_t)ih * obs->n;
        int32_t first;
        const int32_t end = wnw__between_ends(obs, ih, ends, &first);
        for (int32_t i = 0; i < obs->n; i++)
            out[i] = 0;
        if (first == end)
            continue;
        sketch_keys(o, obs, ih, first, end, x);
        WNW_TRY(factor(x, first, end, o->sketch, l));
        for (int32_t i = first; i < end; i++)
            out[i] = leverage_of(l, o->sketch, x + (int64_t)i * o->sketch);
    }
    wnw__standardise(obs, ends, score);
    return WNW_OK;
}

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    return wnw__leverage_scratch(opts, obs);
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    return wnw__leverage(opts, obs, (struct wnw__ends){0, 0}, score, scratch);
}

static const wnw_option options[] = {WNW_OPTION_SKETCH(struct wnw__leverage_opts, sketch),
                                     WNW_OPTION_PROJECTION_SEED(struct wnw__leverage_opts, seed),
                                     {0}};

const wnw_scorer wnw__scorer_leverage = {
    .part = {WNW_SCORER_INIT, .name = "leverage",
             .about = "Keys that the other keys of the head cannot be combined to; sees no attention.",
             .paper = "Compactor, arXiv 2507.08143",
             .details =
                 "`X = K Phi` with the centred keys before RoPE and a random `Phi` of `sketch` columns; `l_i "
                 "= "
                 "x_i^T (X^T X + 0.01 I)^-1 x_i`, standardised over the layer.\n\n"
                 "Keys are turned back from what the cache holds. `Phi` depends on seed, layer and head "
                 "alone; "
                 "kvpress draws it in sequence, so its choices cannot be reproduced.\n\n`O(n s (d + s))`.",
             .options = options, .options_size = sizeof(struct wnw__leverage_opts), .needs = needs},
    .scratch = scratch_size,
    .score = score,
};
