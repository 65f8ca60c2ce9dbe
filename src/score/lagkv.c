/* SPDX-License-Identifier: MIT */
/*
 * LagKV: no attention at all. Behind S sinks the entries form blocks of L; a block is seen relative to the
 * next one. Paper: "LagKV: Lag-Relative Information of the KV Cache Tells Which Tokens Are Important" (arXiv
 * 2504.04704). For Z = keys or values of one KV head, block p, channel c, token t:
 *
 *     lo_c, hi_c = extrema of Z^{p+1}[., c]
 *     u[t] = std over c of (Z^p[t, c] - lo_c) / (hi_c - lo_c)        divisor d - 1
 *     s_Z[t] = softmax of u over the tokens of the block
 *     score[t] = s_K[t] + wv s_V[t]
 * A channel with hi_c = lo_c adds a constant (the authors' code divides by zero there). Scores of different
 * blocks cannot be compared: that is the partition selector's business.
 * ranked: kvpress' form, where the rank inside the block is the score and one cut goes through the whole
 * head; of equal ranks the later block's goes first. n < S + 2 L is scored by recency there.
 * Observes keys (after RoPE) and values. Cost O(n d) per KV head.
 */
#include "method.h"

#include <math.h>
#include <string.h>

struct opts {
    int32_t sink;
    int32_t lag;
    double wv;
    int32_t ranked;
};

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_KEYS | (o->wv != 0 ? WNW_NEED_VALUES : 0u);
}

static void blocks(const void *opts, struct wnw__blocks *out)
{
    const struct opts *o = opts;
    *out = (struct wnw__blocks){.sink = o->sink, .lag = o->lag};
}

/* Complete blocks behind the sinks. */
static int32_t n_block(const struct opts *o, int32_t n)
{
    return n < o->sink ? 0 : (n - o->sink) / o->lag;
}

static void protect(const void *opts, int32_t n, wnw_protected *out)
{
    const struct opts *o = opts;
    const int32_t nb = n_block(o, n);
    if (nb < 2) {
        out->n_first = o->ranked && o->sink < n ? o->sink : n;
        return;
    }
    out->n_first = o->sink;
    out->n_last = n - o->sink - (nb - 1) * o->lag;
}

/* Shorter blocks have a shorter protected tail: halve them until the tail and one entry per block fit, then
 * give up sinks. */
static bool shrink(void *opts, int32_t n, int32_t n_keep)
{
    struct opts *o = opts;
    if (o->ranked)
        return false;
    for (int32_t sink = o->sink;; sink /= 2) {
        for (int32_t lag = o->lag; lag >= 4; lag /= 2) {
            struct opts t = *o;
            t.sink = sink;
            t.lag = lag;
            const int32_t nb = n_block(&t, n);
            if (nb >= 2 && n - (nb - 1) * lag + (nb - 1) <= n_keep) {
                *o = t;
                return true;
            }
        }
        if (sink == 0)
            return false;
    }
}

/* Per channel extrema and one normalised row (3 d), then std or rank of one block. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    const struct opts *o = opts;
    return (size_t)obs->n_embd_head * 3 + (size_t)o->lag;
}

/* Standard deviation of (row[c] - lo[c]) * scale[c] over d channels. Eight partial sums, so that the compiler
 * can use vectors without changing the order of additions. x[d] is scratch. */
static float row_std(const float *row, int32_t d, const float *lo, const float *scale, float *x)
{
    float part[8] = {0};
    int32_t c = 0;
    for (int32_t i = 0; i < d; i++)
        x[i] = (row[i] - lo[i]) * scale[i];
    for (; c + 8 <= d; c += 8)
        for (int32_t i = 0; i < 8; i++)
            part[i] += x[c + i];
    for (; c < d; c++)
        part[c & 7] += x[c];
    float sum = 0;
    for (int32_t i = 0; i < 8; i++)
        sum += part[i];
    const float mean = sum / (float)d;
    memset(part, 0, sizeof part);
    for (c = 0; c + 8 <= d; c += 8)
        for (int32_t i = 0; i < 8; i++)
            part[i] += (x[c + i] - mean) * (x[c + i] - mean);
    for (; c < d; c++)
        part[c & 7] += (x[c] - mean) * (x[c] - mean);
    sum = 0;
    for (int32_t i = 0; i < 8; i++)
        sum += part[i];
    return d > 1 ? sqrtf(sum / (float)(d - 1)) : 0;
}

/* u[n] of the block z[n][d] against the reference block right behind it. channels[3 * d] is scratch. */
static void block_std(const float *z, int32_t n, int32_t d, float *channels, float *u)
{
    float *lo = channels, *scale = lo + d, *row = scale + d;
    const float *ref = z + (int64_t)n * d;
    for (int32_t c = 0; c < d; c++) {
        lo[c] = ref[c];
        scale[c] = ref[c]; /* the maximum for now */
    }
    for (int32_t t = 1; t < n; t++) {
        for (int32_t c = 0; c < d; c++) {
            const float x = ref[(int64_t)t * d + c];
            lo[c] = x < lo[c] ? x : lo[c];
            scale[c] = x > scale[c] ? x : scale[c];
        }
    }
    for (int32_t c = 0; c < d; c++) {
        const float width = scale[c] - lo[c];
        scale[c] = width > 1e-12f ? 1 / width : 0;
    }
    for (int32_t t = 0; t < n; t++)
        u[t] = row_std(z + (int64_t)t * d, d, lo, scale, row);
}

/* score[n] += weight x softmax(u); u is overwritten. */
static void softmax_add(float *u, int32_t n, double weight, float *score)
{
    float max = u[0];
    double sum = 0;
    for (int32_t t = 1; t < n; t++)
        max = u[t] > max ? u[t] : max;
    for (int32_t t = 0; t < n; t++) {
        u[t] = expf(u[t] - max);
        sum += (double)u[t];
    }
    const double scale = weight / sum;
    for (int32_t t = 0; t < n; t++)
        score[t] += (float)(scale * (double)u[t]);
}

/* Replaces the scores of block p by rank / L, 0 = worst, plus a step smaller than one rank that grows with p.
 */
static void rank_block(float *score, int32_t lag, int32_t p, int32_t n_thinned, float *rank)
{
    for (int32_t t = 0; t < lag; t++) {
        int32_t better = 0;
        for (int32_t s = 0; s < lag; s++)
            better += score[s] > score[t] || (score[s] == score[t] && s < t);
        rank[t] = (float)((lag - 1 - better) * (double)n_thinned + p);
    }
    for (int32_t t = 0; t < lag; t++)
        score[t] = rank[t] / ((float)lag * (float)n_thinned);
}

/* Sinks above everything, then the tail, the most recent first, then what is between. */
static void score_edges(const struct opts *o, int32_t n, int32_t from, float *score)
{
    for (int32_t i = 0; i < o->sink && i < n; i++)
        score[i] = 3;
    for (int32_t i = from; i < n; i++)
        score[i] = 1 + (float)(i - from) / (float)n;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct opts *o = opts;
    const int32_t d = obs->n_embd_head, lag = o->lag;
    float *u = scratch + 3 * (int64_t)d;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *s = score + (int64_t)ih * obs->n;
        const int32_t n = obs->n_entry[ih];
        const int32_t thinned = n_block(o, n) - 1;
        for (int32_t i = 0; i < obs->n; i++)
            s[i] = 0;
        score_edges(o, n, o->sink + (thinned > 0 ? thinned * lag : 0), s);
        for (int32_t pass = 0; pass < (o->wv != 0 ? 2 : 1) && thinned > 0; pass++) {
            const float *z = pass ? obs->values(obs, ih) : obs->keys(obs, ih); /* [n][d] */
            for (int32_t p = 0; p < thinned; p++) {
                const int64_t at = o->sink + (int64_t)p * lag;
                block_std(z + at * d, lag, d, scratch, u);
                softmax_add(u, lag, pass ? o->wv : 1, s + at);
            }
        }
        for (int32_t p = 0; p < thinned && o->ranked; p++)
            rank_block(s + o->sink + (int64_t)p * lag, lag, p, thinned, u);
    }
    return WNW_OK;
}

static const wnw_option options[] = {
    {.name = "sink",
     .help = "first tokens that always stay",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, sink),
     .def = 16,
     .min = 0,
     .max = 65536},
    {.name = "lag",
     .help = "tokens of a block",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, lag),
     .def = 128,
     .min = 1,
     .max = 65536},
    {.name = "wv",
     .help = "weight of the values' part of the score",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, wv),
     .def = 1,
     .min = 0,
     .max = 1000},
    {.name = "ranked",
     .help = "score = rank inside the block, for a cut through the whole head (kvpress)",
     .type = WNW_OPT_BOOL,
     .offset = offsetof(struct opts, ranked)},
    {0}};

extern const struct wnw__scorer wnw__scorer_lagkv;
const struct wnw__scorer wnw__scorer_lagkv = {
    .pub = {.name = "lagkv",
            .about = "Spread of keys and values relative to the next block of tokens; no attention needed.",
            .paper = "LagKV, arXiv 2504.04704",
            .options = options,
            .options_size = sizeof(struct opts),
            .needs = needs,
            .protect = protect,
            .scratch = scratch_size,
            .score = score},
    .layout = "composite",
    .blocks = blocks,
    .shrink = shrink,
};
