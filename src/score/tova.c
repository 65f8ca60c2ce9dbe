/* SPDX-License-Identifier: MIT */
/*
 * TOVA: attention of the last query, mean over all query heads, one list of tokens for the whole layer.
 * Paper: "Transformers are Multi-State RNNs" (arXiv 2401.06104). No window, no pooling, no sinks; the newest
 * token may go. kvpress keeps the last token: last=1. u[j] = (1 / H_q) sum_h a_last^h[j] Observes window
 * attention, 1 query. Range 0..1. Cost O(H_q n).
 */
#include "method.h"

struct opts {
    int32_t last;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_WINDOW_ATTN;
    out->window = 1;
}

static void protect(const void *opts, int32_t n, wnw_protected *out)
{
    const struct opts *o = opts;
    (void)n;
    out->n_last = o->last;
}

/* Sums are kept by position, because entry i of two heads need not be the same token. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n_past;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *u)
{
    (void)opts;
    const int32_t group = obs->n_head / obs->n_head_kv;
    for (int32_t j = 0; j < obs->n_past; j++)
        u[j] = 0;
    for (int32_t h = 0; h < obs->n_head; h++) {
        const int32_t ih = h / group;
        const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
        const float *a =
            obs->window_attn + ((int64_t)h * obs->n_window + obs->n_window - 1) * obs->n; /* [n] */
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            u[pos[i]] += a[i];
    }
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            score[(int64_t)ih * obs->n + i] = u[obs->pos[(int64_t)ih * obs->n + i]] / (float)obs->n_head;
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

extern const struct wnw__scorer wnw__scorer_tova;
const struct wnw__scorer wnw__scorer_tova = {
    .pub = {.name = "tova",
            .about = "Attention of the last query, mean over all heads of the layer.",
            .paper = "TOVA, arXiv 2401.06104",
            .details = "`u[j] = (1 / H_q) sum_h a_h[last][j]`: attention of the last query, averaged over "
                       "all query heads, so that a layer has one list of tokens. No window, no pooling, no "
                       "sinks.\n\nDeviations: the newest token may go, as in the paper; kvpress always keeps"
                       " it (`last=1`). The authors evict one token per decoded token; here eviction goes by"
                       " size and phase.\n\nCost: O(H_q n).",
            .options = options,
            .options_size = sizeof(struct opts),
            .needs = needs,
            .protect = protect,
            .scratch = scratch_size,
            .score = score},
    .layout = "layer",
    .like_attention = true,
};
