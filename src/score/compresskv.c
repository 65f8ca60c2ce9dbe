/* SPDX-License-Identifier: MIT */
/*
 * CompressKV's score of a query head: what the last w prompt queries attend to, smoothed along the positions,
 * as in SnapKV (snapkv.c). Paper: "CompressKV: Semantic Retrieval Heads Know What Tokens are Not Important
 * Before Generation" (arXiv 2508.02401). retrieval_heads.c chooses the query heads that count.
 *
 *     s_h[j] = mean over the window of a_h[i][j]                 j outside the window
 *     p_h    = pooled s_h
 * The window stays. The authors sum over the window and round to half precision before that; the mean in
 * float32 ranks the same and ties less. Unlike snapkv, a budget that leaves nothing but the window shrinks the
 * window. Observes window attention. Range 0..1. Cost O(k w n) for k heads that count.
 */
#include "method/window.h"

struct opts {
    struct wnw__window_opts w;
};

static int check(const void *opts)
{
    const struct opts *o = opts;
    return wnw__pool_check("compresskv", o->w.kernel);
}

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *s)
{
    const struct opts *o = opts;
    for (int32_t h = 0; h < obs->n_head; h++)
        if (wnw__query_head_used(obs, h))
            wnw__window_score(obs, h, o->w.window, (enum wnw__pool)o->w.pool, o->w.kernel, s,
                              score + (int64_t)h * obs->n);
    return WNW_OK;
}

static const wnw_option options[] = {
    WNW_OPTION_WINDOW(8), WNW_OPTION_KERNEL(5), WNW_OPTION_POOL(WNW_POOL_AVG), {0}};

static const char details[] = "`s_h[j] = pool(mean over the window of a_h[i][j])`, per query head; "
                              "CompressKV's preset takes the mean of the "
                              "calibrated retrieval heads of the layer (`retrieval_heads`).\n\n"
                              "Sums are in float32, where the released code rounds attention to half "
                              "precision. A budget that leaves nothing "
                              "next to the window shrinks the window, with a warning.\n\n"
                              "Cost O(k w n) for the k heads that count.";

const wnw_scorer wnw__scorer_compresskv = {
    .part = {WNW_SCORER_INIT, .name = "compresskv",
             .about = "Attention of the last prompt queries in the calibrated retrieval heads, one list per "
                      "layer.",
             .paper = "CompressKV, arXiv 2508.02401", .details = details, .options = options,
             .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_SHRINKS | WNW_FLAG_ATTENTION | WNW_FLAG_WINDOW_BY_HEAD,
             .check = check, .needs = wnw__window_needs, .keep = wnw__window_keep},
    .aggregation = "retrieval_heads",
    .scratch = scratch_size,
    .score = score,
};
