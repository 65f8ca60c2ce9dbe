/* SPDX-License-Identifier: MIT */
/*
 * KeyDiff: keys that point elsewhere than the average key are hard to replace. Paper: "KeyDiff: Key
 * Similarity-Based KV Cache Eviction for Long-Context LLM Inference in Resource-Constrained Environments"
 * (arXiv 2504.15364). For the n keys k_i of a KV head:
 *
 *     mu    = mean over i of k_i / ||k_i||_2
 *     score = -cos(k_i, mu)
 * The paper evicts block by block while it reads; that is this scorer in the chunk phase. Keys are taken
 * after RoPE, as in kvpress. A zero key, or a zero mean, has cosine 0. Nothing is protected. Observes keys.
 * Range -1..1. Cost O(n d) per KV head.
 *
 * An unusual key is worth as much as its value moves the output. With `values`, from no paper that we know (decision 120), and
 * standardised over the head's n entries, so that both have mean 0 and variance 1:
 *
 *     score = z(-cos(k_i, mu)) + values z(log ||v_i||_2)
 * Scores of different heads are then of one scale and say nothing about which head needs more. Also observes values.
 */
#include "base/vectors.h"
#include "kernel/kernel.h"
#include "score/score.h"

#include <float.h>
#include <math.h>

/* Norms of values are at least this: of a value without length the logarithm is of this. */
#define LEAST 1e-6
/* Standard deviations up to this are those of rounding. */
#define NOISE 1e-6

struct opts {
    double values;
};

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_KEYS | (o->values > 0 ? WNW_NEED_VALUES : 0u);
}

/* Scratch holds mu[d], and with values the number of every entry of a head. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    const struct opts *o = opts;
    return (size_t)obs->n_embd_head + (o->values > 0 ? (size_t)obs->n : 0);
}

void wnw__keydiff(const float *k, int32_t n, int32_t d, float *s, float *mu)
{
    enum { BLOCK = 64 };
    float dot[BLOCK], mean;
    for (int32_t c = 0; c < d; c++)
        mu[c] = 0;
    wnw__dots(k, d, k, d, n, d, s);
    for (int32_t i = 0; i < n; i++) {
        s[i] = sqrtf(s[i]);
        const float by = s[i] > FLT_MIN ? 1 / (s[i] * (float)n) : 0;
        for (int32_t c = 0; c < d; c++)
            mu[c] += k[(int64_t)i * d + c] * by;
    }
    wnw__dots(mu, d, mu, d, 1, d, &mean);
    mean = sqrtf(mean);
    for (int32_t at = 0; at < n; at += BLOCK) {
        const int32_t m = n - at < BLOCK ? n - at : BLOCK;
        wnw__dots(k + (int64_t)at * d, d, mu, 0, m, d, dot);
        for (int32_t i = 0; i < m; i++) {
            const float both = s[at + i] * mean;
            s[at + i] = both > FLT_MIN ? -dot[i] / both : 0;
        }
    }
}

/* Shifts and scales the scores s[n] of a head to mean 0 and variance 1; all become 0 where they differ by rounding alone. */
static void standardise(float *s, int32_t n)
{
    double mean = 0, square = 0;
    for (int32_t i = 0; i < n; i++)
        mean += (double)s[i] / n;
    for (int32_t i = 0; i < n; i++)
        square += ((double)s[i] - mean) * ((double)s[i] - mean) / n;
    for (int32_t i = 0; i < n; i++)
        s[i] = square > NOISE * NOISE ? (float)(((double)s[i] - mean) / sqrt(square)) : 0;
}

/* s[n] = log of the norms of the values v[n][d] of a head. */
static void log_norms(const float *v, int32_t n, int32_t d, float *s)
{
    for (int32_t i = 0; i < n; i++)
        s[i] = (float)log(fmax(wnw__norm(v + (int64_t)i * d, d), LEAST));
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct opts *o = opts;
    const int32_t d = obs->n_embd_head;
    float *mu = scratch, *of_value = scratch + d;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const int32_t n = obs->n_entry[ih];
        float *s = score + (int64_t)ih * obs->n;
        for (int32_t i = 0; i < obs->n; i++)
            s[i] = 0;
        wnw__keydiff(obs->keys(obs, ih), n, d, s, mu);
        if (o->values > 0) {
            log_norms(obs->values(obs, ih), n, d, of_value);
            standardise(of_value, n);
            standardise(s, n);
            for (int32_t i = 0; i < n; i++)
                s[i] += (float)o->values * of_value[i];
        }
    }
    return WNW_OK;
}

static const wnw_option options[] = {
    {.name = "values",
     .help = "weight of the values' norms beside the keys; 0: as in the paper",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, values),
     .min = 0,
     .max = 1000},
    {0}};

const wnw_scorer wnw__scorer_keydiff = {
    .part = {WNW_SCORER_INIT, .name = "keydiff",
             .about = "Keys that point elsewhere than the average key stay.",
             .paper = "KeyDiff, arXiv 2504.15364",
             .details =
                 "`score = -cos(k_i, mu)` with `mu` the mean of the normalised keys of the head, after "
                 "RoPE.\n\nThe paper evicts block by block while it reads: use the chunk phase for that. "
                 "A zero key has cosine 0.\n\n`values`, which is not in the paper, adds that many times the "
                 "logarithm of "
                 "the value's norm, both standardised over the head: a key that stands out is worth as much "
                 "as its "
                 "value moves the output (docs/research/auto.md).\n\n`O(n d)`.",
             .options = options, .options_size = sizeof(struct opts), .needs = needs},
    .scratch = scratch_size,
    .score = score,
};
