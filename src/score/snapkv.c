/* SPDX-License-Identifier: MIT */
/*
 * SnapKV: what the last w prompt queries attend to, smoothed along the positions. Paper: "SnapKV: LLM Knows
 * What You are Looking for Before Generation" (arXiv 2404.14469).
 *
 *     s_h[j] = mean over the window of a_h[i][j]                 j outside the window
 *     avg:  p_h[j] = (1 / kernel) sum s_h[j+u], |u| <= kernel / 2; missing terms are 0, the divisor stays
 *     max:  p_h[j] = max s_h[j+u]
 *     score[j] = mean of p_h[j] over the query heads of the KV head: pooled first, then averaged
 * Softmax is over everything visible, nothing is renormalised. The window stays. Its own columns are scored
 * too, apart from the others so that nothing leaks: they only matter where a small size shrinks the window.
 * agg=defensive: the worst case in place of both means, from "Taming the Fragility of KV Cache Eviction in
 * LLM Inference" (arXiv 2510.13334): m[j] = max over group and window of a_h[i][j], each row pooled and
 * scaled back to its mass; score[j] = max(m[j], mean of m over the head's entries). gqa_bug: CompressKV's
 * code (arXiv 2508.02401) averages heads ih, ih + H_kv, ... of foreign groups. Observes window attention.
 * Range 0..1. Cost O(H_q w n).
 */
#include "score/window.h"

enum agg { AGG_MEAN, AGG_DEFENSIVE };

struct opts {
    int32_t window;
    int32_t kernel;
    int32_t pool;
    int32_t gqa_bug;
    int32_t agg;
};

static int check(const void *opts)
{
    const struct opts *o = opts;
    return wnw__pool_check("snapkv", o->kernel);
}

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_WINDOW_ATTN;
    out->window = o->window;
}

static void protect(const void *opts, int32_t n, wnw_protected *out)
{
    const struct opts *o = opts;
    (void)n;
    out->n_last = o->window;
}

/* Mean attention of one head, or one pooled row. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n;
}

/* Adds the mean of one query head's rows, pooled, to out[n]. */
static void add_mean(const struct opts *o, const wnw_observation *obs, const float *a, int32_t n_old,
                     int32_t n, float *s, float *out)
{
    const enum wnw__pool pool = (enum wnw__pool)o->pool;
    const float weight = 1.0f / (float)(obs->n_head / obs->n_head_kv);
    wnw__window_mean(a, obs->n_window, wnw__window_rows(obs, o->window), obs->n, n, s);
    wnw__pool_add(pool, o->kernel, s, n_old, weight, out);
    wnw__pool_add(pool, o->kernel, s + n_old, n - n_old, weight, out + n_old);
}

/* Raises out[n] to one query head's rows, each pooled by itself. */
static void take_max(const struct opts *o, const wnw_observation *obs, const float *a, int32_t n_old,
                     int32_t n, float *p, float *out)
{
    const enum wnw__pool pool = (enum wnw__pool)o->pool;
    for (int32_t w = obs->n_window - wnw__window_rows(obs, o->window); w < obs->n_window; w++) {
        const float *row = a + (int64_t)w * obs->n;
        wnw__pool_raise(pool, o->kernel, row, n_old, p, out);
        wnw__pool_raise(pool, o->kernel, row + n_old, n - n_old, p, out + n_old);
    }
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *s)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv;
    const bool defensive = o->agg == AGG_DEFENSIVE;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *out = score + (int64_t)ih * obs->n;
        const int32_t n = obs->n_entry[ih];
        const int32_t n_old = wnw__window_n_old(obs, ih, wnw__window_rows(obs, o->window));
        for (int32_t i = 0; i < obs->n; i++)
            out[i] = 0;
        for (int32_t g = 0; g < group; g++) {
            const int32_t h = o->gqa_bug ? ih + g * obs->n_head_kv : ih * group + g;
            (defensive ? take_max : add_mean)(o, obs, wnw__window_of(obs, h), n_old, n, s, out);
        }
        if (defensive) {
            wnw__floor_at_mean(out, n_old);
            wnw__floor_at_mean(out + n_old, n - n_old);
        }
    }
    return WNW_OK;
}

static const char *const aggs[] = {"mean", "defensive", NULL};

static const wnw_option options[] = {
    {.name = "window",
     .help = "last prompt tokens whose queries are observed, and that always stay",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, window),
     .def = 32,
     .min = 1,
     .max = 4096},
    {.name = "kernel",
     .help = "width of the pooling along the positions, odd",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, kernel),
     .def = 7,
     .min = 1,
     .max = 1023},
    {.name = "pool",
     .help = "kind of pooling",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, pool),
     .def = WNW_POOL_MAX,
     .choices = wnw__pool_choices},
    {.name = "gqa_bug",
     .help = "average over foreign groups, as the baselines in CompressKV's code do",
     .type = WNW_OPT_BOOL,
     .offset = offsetof(struct opts, gqa_bug)},
    {.name = "agg",
     .help = "over window and group: the mean, or the maximum with the mean as a floor",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, agg),
     .def = AGG_MEAN,
     .choices = aggs},
    {0}};

extern const struct wnw__scorer wnw__scorer_snapkv;
const struct wnw__scorer wnw__scorer_snapkv = {
    .pub = {.name = "snapkv",
            .about = "Attention of the last prompt queries, pooled along the positions.",
            .paper = "SnapKV, arXiv 2404.14469",
            .details = "Over the last `window` queries, `s_h[j] = mean_i a_h[i][j]`; `p_h` is `s_h` pooled "
                       "along the positions, `max` or `avg` over `kernel` neighbours (missing ones count as "
                       "0 and the divisor stays); the score is the mean of `p_h[j]` over the group: pooled "
                       "first, then averaged. Softmax is over everything visible and nothing is "
                       "renormalised. The window stays.\n\nDeviations: the authors' code gives every query "
                       "head a cache of its own, here as in kvpress the heads of a group share one. kvpress'"
                       " defaults are window 64 and average pooling 5. `agg=defensive` is DefensiveKV's "
                       "worst case (arXiv 2510.13334) in place of both means. `gqa_bug` averages the wrong "
                       "heads, as CompressKV's code does.\n\nCost: O(H_q w n).",
            .options = options,
            .options_size = sizeof(struct opts),
            .needs = needs,
            .protect = protect,
            .scratch = scratch_size,
            .score = score},
    .layout = "composite",
    .check = check,
    .like_attention = true,
};
