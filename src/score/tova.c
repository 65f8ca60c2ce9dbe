/* SPDX-License-Identifier: MIT */
/*
 * TOVA: attention of the last query, by default with the mean over all query heads (layer_mean.c), which
 * gives the whole layer one list of tokens. Paper: "Transformers are Multi-State RNNs" (arXiv 2401.06104).
 *
 *     s_h[j] = a_last^h[j]
 * There is no window, no pooling and no sink; the newest token may go. kvpress keeps the last token: last=1.
 * Observes window attention of 1 query. Range 0..1. Cost O(H_q n).
 */
#include "method/window.h"

#include <string.h>

struct opts {
    int32_t last;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_WINDOW_ATTN;
    out->window = 1;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct opts *o = opts;
    (void)p;
    out->n_last = o->last;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    for (int32_t h = 0; h < obs->n_head; h++)
        if (wnw__query_head_used(obs, h))
            memcpy(score + (int64_t)h * obs->n,
                   wnw__window_of(obs, h) + (int64_t)(obs->n_window - 1) * obs->n,
                   (size_t)obs->n * sizeof *score);
    return WNW_OK;
}

static const wnw_option options[] = {{.name = "last",
                                      .help = "newest tokens that always stay",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, last),
                                      .def = 0,
                                      .min = 0,
                                      .max = 65536},
                                     {0}};

const wnw_scorer wnw__scorer_tova = {
    .part = {WNW_SCORER_INIT, .name = "tova", .about = "Attention of the last query.",
             .paper = "TOVA, arXiv 2401.06104",
             .details = "`s_h[j] = a_h[last][j]`: attention of the last query; the preset averages it over "
                        "all query heads, so that a layer has one list of tokens. No window, no pooling, no "
                        "sinks.\n\nDeviations: the newest token may go, as in the paper; kvpress always keeps"
                        " it (`last=1`). The authors evict one token per decoded token; here eviction goes by"
                        " size and phase.\n\nCost: O(H_q n).",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_ATTENTION, .needs = needs, .keep = keep},
    .aggregation = "layer_mean",
    .score = score,
};
