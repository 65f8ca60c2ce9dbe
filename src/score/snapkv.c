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
 * gqa_bug: CompressKV's code (arXiv 2508.02401) averages heads ih, ih + H_kv, ... of foreign groups.
 * Observes window attention. Range 0..1. Cost O(H_q w n).
 */
#include "score/window.h"

struct opts {
    int32_t window;
    int32_t kernel;
    int32_t pool;
    int32_t gqa_bug;
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

/* Mean attention of one head. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *s)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv;
    const enum wnw__pool pool = (enum wnw__pool)o->pool;
    const int32_t n_row = wnw__window_rows(obs, o->window);
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *out = score + (int64_t)ih * obs->n;
        const int32_t n = obs->n_entry[ih];
        const int32_t n_old = wnw__window_n_old(obs, ih, n_row);
        for (int32_t i = 0; i < obs->n; i++)
            out[i] = 0;
        for (int32_t g = 0; g < group; g++) {
            const int32_t h = o->gqa_bug ? ih + g * obs->n_head_kv : ih * group + g;
            wnw__window_mean(wnw__window_of(obs, h), obs->n_window, n_row, obs->n, n, s);
            wnw__pool_add(pool, o->kernel, s, n_old, 1.0f / (float)group, out);
            wnw__pool_add(pool, o->kernel, s + n_old, n - n_old, 1.0f / (float)group, out + n_old);
        }
    }
    return WNW_OK;
}

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
    {0}};

extern const struct wnw__scorer wnw__scorer_snapkv;
const struct wnw__scorer wnw__scorer_snapkv = {
    .pub = {.name = "snapkv",
            .about = "Attention of the last prompt queries, pooled along the positions.",
            .paper = "SnapKV, arXiv 2404.14469",
            .options = options,
            .options_size = sizeof(struct opts),
            .needs = needs,
            .protect = protect,
            .scratch = scratch_size,
            .score = score},
    .layout = "composite",
    .check = check,
};
