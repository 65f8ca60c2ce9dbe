/* SPDX-License-Identifier: MIT */
/*
 * LagKV: no attention at all. After S sinks the entries form blocks of L; a block is seen relative to the
 * next one. Paper: "LagKV: Lag-Relative Information of the KV Cache Tells Which Tokens Are Important" (arXiv
 * 2504.04704). For Z = keys or values of one KV head, block p, channel c, token t:
 *
 *     lo_c, hi_c = extrema of Z^{p+1}[., c]               ref=own: of Z^p (the paper's LocalKV, eq. 14, 15);
 *     u[t] = std over c of (Z^p[t, c] - lo_c) / (hi_c - lo_c)        divisor d - 1;
 *     s_Z[t] = softmax of u over the tokens of the block;
 *     score[t] = s_K[t] + wv s_V[t]                       use=key, use=value: one of the two
 *
 * A channel with hi_c = lo_c adds a constant (the authors' code divides by zero there). Scores of different
 * blocks cannot be compared, so the partition selector cuts every block by itself. The first n_settled entries
 * were settled by an earlier compression and take the place of the sinks, so that every block is scored once,
 * from whole rows. `ranked` is kvpress' form: the rank inside the block is the score and one cut goes through
 * the whole head; of equal ranks the later block's ranks higher. Where n < S + 2 L it scores by recency.
 * Observes keys (after RoPE) and values, of blocks that are not settled. Cost O(n d) per KV head.
 */
#include "score/lag_blocks.h"

#include <math.h>
#include <string.h>

enum ref { REF_NEXT, REF_OWN };
enum use { USE_BOTH, USE_KEY, USE_VALUE };

struct opts {
    struct wnw__lag_opts lag;
    int32_t ref;
    int32_t use;
    double wv;
    int32_t ranked;
};

/* Weight of the keys' and of the values' part. */
static double part_weight(const struct opts *o, bool keys)
{
    if (keys)
        return o->use == USE_VALUE ? 0 : 1;
    if (o->use == USE_KEY)
        return 0;
    if (o->use == USE_VALUE)
        return 1;
    return o->wv;
}

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags =
        (part_weight(o, true) > 0 ? WNW_NEED_KEYS : 0u) | (part_weight(o, false) > 0 ? WNW_NEED_VALUES : 0u);
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct opts *o = opts;
    wnw__lag_keep(&o->lag, p, out);
    if (o->ranked && wnw__lag_n_thinned(&o->lag, p->n) == 0)
        out->n_first = o->lag.sink < p->n ? o->lag.sink : p->n;
}

static bool fit(void *opts, int32_t n, int32_t n_keep)
{
    struct opts *o = opts;
    return !o->ranked && wnw__lag_fit(&o->lag, n, n_keep);
}

static const wnw_block_rule block_rule = {.of = wnw__lag_blocks, .fit = fit};

/* Scratch holds the extrema of every channel and one normalised row (3 d), then std or rank of one block. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    const struct opts *o = opts;
    return (size_t)obs->n_embd_head * 3 + (size_t)o->lag.lag;
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

/* u[n] of the block z[n][d] against the block ref[n][d]. channels[3 * d] is scratch. */
static void block_std(const float *z, const float *ref, int32_t n, int32_t d, float *channels, float *u)
{
    float *lo = channels, *scale = lo + d, *row = scale + d;
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

/* Replaces the scores of block p by rank / L, 0 = worst, plus a step smaller than one rank that grows with
 * p. */
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

/* Scores sinks above everything, then the tail with the most recent first, then the entries between them. */
static void score_edges(int32_t sink, int32_t n, int32_t from, float *score)
{
    for (int32_t i = 0; i < sink && i < n; i++)
        score[i] = 3;
    for (int32_t i = from; i < n; i++)
        score[i] = 1 + (float)(i - from) / (float)n;
}

/* Rows first .. first + count - 1 of head ih, [count][d]. */
static const float *rows(const wnw_observation *obs, bool keys, int32_t ih, int32_t first, int32_t count)
{
    if (keys && obs->key_rows)
        return obs->key_rows(obs, ih, first, count);
    if (!keys && obs->value_rows)
        return obs->value_rows(obs, ih, first, count);
    return (keys ? obs->keys(obs, ih) : obs->values(obs, ih)) + (int64_t)first * obs->n_embd_head;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct opts *o = opts;
    const int32_t d = obs->n_embd_head, lag = o->lag.lag;
    struct wnw__lag_opts blocks = o->lag;
    float *u = scratch + 3 * (int64_t)d;
    if (obs->n_settled > 0)
        blocks.sink = obs->n_settled;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *s = score + (int64_t)ih * obs->n;
        const int32_t n = obs->n_entry[ih], thinned = wnw__lag_n_thinned(&blocks, n);
        for (int32_t i = 0; i < obs->n; i++)
            s[i] = 0;
        score_edges(blocks.sink, n, blocks.sink + thinned * lag, s);
        s += blocks.sink;
        for (int pass = 0; pass < 2 && thinned > 0; pass++) {
            const double w = part_weight(o, pass == 0);
            if (!(w > 0))
                continue;
            const float *z = rows(obs, pass == 0, ih, blocks.sink, (thinned + 1) * lag);
            for (int32_t p = 0; p < thinned; p++) {
                const float *block = z + (int64_t)p * lag * d;
                block_std(block, o->ref == REF_OWN ? block : block + (int64_t)lag * d, lag, d, scratch, u);
                softmax_add(u, lag, w, s + (int64_t)p * lag);
            }
        }
        for (int32_t p = 0; p < thinned && o->ranked; p++)
            rank_block(s + (int64_t)p * lag, lag, p, thinned, u);
    }
    return WNW_OK;
}

static const char *const refs[] = {"next", "own", NULL};
static const char *const uses[] = {"both", "key", "value", NULL};

static const wnw_option options[] = {
    WNW_OPTIONS_LAG,
    {.name = "ref",
     .help = "block whose extrema normalise a block: the next one, or its own (LocalKV)",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, ref),
     .def = REF_NEXT,
     .choices = refs},
    {.name = "use",
     .help = "what is scored",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, use),
     .def = USE_BOTH,
     .choices = uses},
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

const wnw_scorer wnw__scorer_lagkv = {
    .part = {WNW_SCORER_INIT, .name = "lagkv",
             .about = "Spread of keys and values relative to the next block of tokens; no attention needed.",
             .paper = "LagKV, arXiv 2504.04704",
             .details = "After `sink` entries come blocks of `lag`. Each channel of the keys of a block is "
                        "normalised with the extrema of the same channel in the next block; `u[t]` is the "
                        "standard deviation over the channels (divisor d - 1), `s_K` the softmax of `u` "
                        "inside the block, `s_V` the same for values; the score is `s_K + wv s_V`. Scores of "
                        "different blocks cannot be compared: that is the `partition` selector's business. "
                        "`ref=own` normalises a block by itself (the paper's LocalKV).\n\nDeviations: a "
                        "channel that is constant in the reference block adds a constant where the authors' "
                        "code divides by zero. `ranked` is kvpress' form: the rank inside the block is the "
                        "score, and one cut goes through the whole head.\n\nCost: O(n d) per KV head.",
             .options = options, .options_size = sizeof(struct opts), .needs = needs, .keep = keep},
    .scratch = scratch_size,
    .score = score,
    .blocks = &block_rule,
    .skips = wnw__lag_skips,
};
