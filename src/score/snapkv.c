/* SPDX-License-Identifier: MIT */
/*
 * SnapKV: what the last w prompt queries attend to, smoothed along the positions. Paper: "SnapKV: LLM Knows
 * What You are Looking for Before Generation" (arXiv 2404.14469).
 *
 *     s_h[j] = mean over the window of a_h[i][j]                 j outside the window;
 *     avg:  p_h[j] = (1 / kernel) sum s_h[j+u], |u| <= kernel / 2; missing terms are 0, the divisor stays;
 *     max:  p_h[j] = max s_h[j+u]
 *
 * Every query head has a score. The mean over the query heads of a KV head is taken after the pooling (group_mean.c).
 * With pool_after it is taken before, as in the released code of AdaKV and CriticalKV where heads share a cache. With
 * avg both orders give the same. Softmax is over everything visible, nothing is renormalised. The window stays. Its
 * own columns are scored too, pooled separately from the others: these scores only matter where a small size shrinks
 * the window. agg=max takes the highest of the window's rows in place of their mean, each row pooled and scaled back
 * to its mass, as in "Taming the Fragility of KV Cache Eviction in LLM Inference" (arXiv 2510.13334), with
 * +defensive. Observes window attention. Range 0..1. Cost O(H_q w n).
 */
#include "method/window.h"

enum agg { AGG_MEAN, AGG_MAX };

struct opts {
    struct wnw__window_opts w;
    int32_t agg;
    int32_t pool_after;
};

static int check(const void *opts)
{
    const struct opts *o = opts;
    if (o->pool_after && o->agg == AGG_MAX)
        return wnw__fail(WNW_E_ARG, "snapkv: agg=max pools every row of the window by itself, so that "
                                    "pool_after=1 does not go with it");
    return wnw__pool_check("snapkv", o->w.kernel);
}

/* Scratch holds the mean attention of one head, or one pooled row. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n;
}

/* out[n] = the highest of one query head's rows, each pooled by itself. */
static void take_max(const struct opts *o, const wnw_observation *obs, int32_t h, float *p, float *out)
{
    const enum wnw__pool pool = (enum wnw__pool)o->w.pool;
    const int32_t ih = h / (obs->n_head / obs->n_head_kv), n = obs->n_entry[ih];
    const int32_t n_row = wnw__window_rows(obs, o->w.window), n_old = wnw__window_n_old(obs, ih, n_row);
    for (int32_t i = 0; i < obs->n; i++)
        out[i] = 0;
    for (int32_t w = obs->n_window - n_row; w < obs->n_window; w++) {
        const float *row = wnw__window_of(obs, h) + (int64_t)w * obs->n;
        wnw__pool_raise(pool, o->w.kernel, row, n_old, p, out);
        wnw__pool_raise(pool, o->w.kernel, row + n_old, n - n_old, p, out + n_old);
    }
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *s)
{
    const struct opts *o = opts;
    for (int32_t h = 0; h < obs->n_head; h++) {
        float *out = score + (int64_t)h * obs->n;
        if (!wnw__query_head_used(obs, h))
            continue;
        if (o->agg == AGG_MAX)
            take_max(o, obs, h, s, out);
        else
            wnw__window_score(obs, h, o->w.window, (enum wnw__pool)o->w.pool, o->pool_after ? 1 : o->w.kernel,
                              s, out);
    }
    return WNW_OK;
}

/* With pool_after the head aggregation has put the rows together unpooled, so they are pooled here. */
static void finish(const void *opts, const wnw_observation *obs, int32_t n_row, float *score, float *s)
{
    const struct opts *o = opts;
    for (int32_t h = 0; h < n_row && o->pool_after; h++)
        wnw__window_pool(obs, h / (n_row / obs->n_head_kv), &o->w, score + (int64_t)h * obs->n, s);
}

static const char *const aggs[] = {"mean", "max", NULL};

static const wnw_option options[] = {WNW_OPTION_WINDOW(32),
                                     WNW_OPTION_KERNEL(7),
                                     WNW_OPTION_POOL(WNW_POOL_MAX),
                                     {.name = "agg",
                                      .help = "over the window's queries",
                                      .type = WNW_OPT_ENUM,
                                      .offset = offsetof(struct opts, agg),
                                      .def = AGG_MEAN,
                                      .choices = aggs},
                                     {.name = "pool_after",
                                      .help = "pool after the head aggregation in place of every query head",
                                      .type = WNW_OPT_BOOL,
                                      .offset = offsetof(struct opts, pool_after)},
                                     {0}};

const wnw_scorer wnw__scorer_snapkv = {
    .part =
        {WNW_SCORER_INIT, .name = "snapkv",
         .about = "Attention of the last prompt queries, pooled along the positions.",
         .paper = "SnapKV, arXiv 2404.14469",
         .details =
             "Over the last `window` queries, `s_h[j] = mean_i a_h[i][j]`, pooled along the positions, "
             "`max` or `avg` over `kernel` neighbours (missing ones count as 0 and the divisor stays). "
             "One score per query head: heads are put together after the pooling. Softmax is over "
             "everything visible and nothing is renormalised. The window stays.\n\n"
             "Deviations: the authors' code gives every query head a cache of its own, here as in kvpress "
             "the heads of a group share one. kvpress' defaults are window 64 and average pooling 5. "
             "`agg=max+defensive` is DefensiveKV's worst case (arXiv 2510.13334) in place of both means: "
             "`agg=max` pools each row of the window by itself and scales it back to the row's mass."
             " `pool_after` puts the heads together first and pools then, as the released code of AdaKV "
             "and "
             "CriticalKV does with grouped heads; with `pool=avg` both are the same."
             "\n\nWiden `kernel` where what is asked for is longer than half of it: the window looks at the "
             "beginning of an answer, and what is kept after it is half a kernel. Where a vocabulary has a "
             "token "
             "for each digit, `kernel=31` answers needle questions of which the default answers a few."
             "\n\nShorten `window` to what the question has where it is compressed too, and take 64 where "
             "the context "
             "alone is: on a small model 8 and 16 answered 17 to 22 points more in one case, 64 9 points "
             "more in the "
             "other."
             "\n\nCost: O(H_q w n).",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_ATTENTION | WNW_FLAG_WINDOW_BY_HEAD, .check = check,
         .needs = wnw__window_needs, .keep = wnw__window_keep},
    .scratch = scratch_size,
    .score = score,
    .finish = finish,
};
