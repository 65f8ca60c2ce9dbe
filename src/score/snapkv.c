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
#include "method.h"

enum pool { POOL_MAX, POOL_AVG };

struct opts {
    int32_t window;
    int32_t kernel;
    int32_t pool;
    int32_t gqa_bug;
};

static int check(const void *opts)
{
    const struct opts *o = opts;
    if (o->kernel % 2 == 0)
        return wnw__fail(WNW_E_ARG, "snapkv: option kernel is %d; the pooling kernel must be odd", o->kernel);
    return WNW_OK;
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

/* s[n] = mean of the last n_row rows of a[n_window][stride]. */
static void reduce(const float *a, int32_t n_window, int32_t n_row, int32_t stride, int32_t n, float *s)
{
    for (int32_t j = 0; j < n; j++)
        s[j] = 0;
    for (int32_t w = n_window - n_row; w < n_window; w++)
        for (int32_t j = 0; j < n; j++)
            s[j] += a[(int64_t)w * stride + j];
    for (int32_t j = 0; j < n; j++)
        s[j] /= (float)n_row;
}

/* Adds weight x pooled s[n] to out[n]. */
static void pool_add(const struct opts *o, const float *s, int32_t n, float weight, float *out)
{
    const int32_t r = o->kernel / 2;
    for (int32_t j = 0; j < n; j++) {
        const int32_t lo = j < r ? 0 : j - r;
        const int32_t hi = j > n - 1 - r ? n - 1 : j + r;
        float p = s[lo];
        if (o->pool == POOL_MAX) {
            for (int32_t u = lo + 1; u <= hi; u++)
                p = s[u] > p ? s[u] : p;
        } else {
            for (int32_t u = lo + 1; u <= hi; u++)
                p += s[u];
            p /= (float)o->kernel;
        }
        out[j] += weight * p;
    }
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *s)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv;
    const int32_t n_row = o->window < obs->n_window ? o->window : obs->n_window;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *out = score + (int64_t)ih * obs->n;
        const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
        const int32_t n = obs->n_entry[ih];
        int32_t n_old = n; /* entries before the window */
        while (n_old > 0 && pos[n_old - 1] >= obs->n_past - n_row)
            n_old--;
        for (int32_t i = 0; i < obs->n; i++)
            out[i] = 0;
        for (int32_t g = 0; g < group; g++) {
            const int32_t h = o->gqa_bug ? ih + g * obs->n_head_kv : ih * group + g;
            const float *a = obs->window_attn + (int64_t)h * obs->n_window * obs->n;
            reduce(a, obs->n_window, n_row, obs->n, n, s);
            pool_add(o, s, n_old, 1.0f / (float)group, out);
            pool_add(o, s + n_old, n - n_old, 1.0f / (float)group, out + n_old);
        }
    }
    return WNW_OK;
}

static const char *const pools[] = {"max", "avg", NULL};

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
     .def = POOL_MAX,
     .choices = pools},
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
