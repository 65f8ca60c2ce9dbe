/* SPDX-License-Identifier: MIT */
/*
 * CurDKV: rows of K and V that a CUR decomposition would pick, by approximate leverage. Paper: "Value-Guided
 * KV Compression for LLMs via Approximated CUR Decomposition" (arXiv 2509.15038); local form of kvpress'
 * CURPress. Inside each block of w entries of a KV head:
 *
 *     l_K(i) = ||k_i||^2 / sum over the block,  l_V(i) likewise
 *     score  = l_K l_V | l_K | l_V | (l_K + l_V) / 2, then divided by its sum over the head
 *
 * A block whose keys (or values) are all zero is shared out evenly; kvpress divides by zero there. Sinks
 * stay. The paper's random projection before the norms is left out: kvpress has it off. Observes keys and
 * values. Range 0..1. Cost O(n d) per KV head.
 */
#include "policy/part.h"

enum leverage { LEVERAGE_PRODUCT, LEVERAGE_KEY, LEVERAGE_VALUE, LEVERAGE_MEAN };

struct opts {
    int32_t sinks;
    int32_t block;
    int32_t leverage;
};

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = (o->leverage != LEVERAGE_VALUE ? WNW_NEED_KEYS : 0u) |
                 (o->leverage != LEVERAGE_KEY ? WNW_NEED_VALUES : 0u);
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct opts *o = opts;
    (void)p;
    out->n_first = o->sinks;
}

/* Leverage of the keys. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n;
}

/* out[n] = squared norms of x[n][d], divided by their sum in each block. */
static void local_leverage(const float *x, int32_t n, int32_t d, int32_t block, float *out)
{
    for (int32_t at = 0; at < n; at += block) {
        const int32_t end = n - at < block ? n : at + block;
        double total = 0;
        for (int32_t i = at; i < end; i++) {
            double sum = 0;
            for (int32_t c = 0; c < d; c++)
                sum += (double)x[(int64_t)i * d + c] * (double)x[(int64_t)i * d + c];
            out[i] = (float)sum;
            total += (double)out[i];
        }
        for (int32_t i = at; i < end; i++)
            out[i] = total > 0 ? (float)((double)out[i] / total) : 1.0f / (float)(end - at);
    }
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *l_key)
{
    const struct opts *o = opts;
    const int32_t d = obs->n_embd_head;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *s = score + (int64_t)ih * obs->n;
        const int32_t n = obs->n_entry[ih];
        double total = 0;
        for (int32_t i = 0; i < obs->n; i++)
            s[i] = 0;
        if (o->leverage != LEVERAGE_VALUE)
            local_leverage(obs->keys(obs, ih), n, d, o->block, l_key);
        if (o->leverage != LEVERAGE_KEY)
            local_leverage(obs->values(obs, ih), n, d, o->block, s);
        for (int32_t i = 0; i < n; i++) {
            if (o->leverage == LEVERAGE_PRODUCT)
                s[i] = l_key[i] * s[i];
            else if (o->leverage == LEVERAGE_KEY)
                s[i] = l_key[i];
            else if (o->leverage == LEVERAGE_MEAN)
                s[i] = (l_key[i] + s[i]) / 2;
            total += (double)s[i];
        }
        for (int32_t i = 0; i < n && total > 0; i++)
            s[i] = (float)((double)s[i] / total);
    }
    return WNW_OK;
}

static const char *const leverages[] = {"product", "key", "value", "mean", NULL};

static const wnw_option options[] = {{.name = "sinks",
                                      .help = "first tokens that always stay",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, sinks),
                                      .def = 4,
                                      .min = 0,
                                      .max = 65536},
                                     {.name = "block",
                                      .help = "entries that leverage is relative to",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, block),
                                      .def = 16,
                                      .min = 1,
                                      .max = 1048576},
                                     {.name = "leverage",
                                      .help = "of keys times values, of one of them, or their mean",
                                      .type = WNW_OPT_ENUM,
                                      .offset = offsetof(struct opts, leverage),
                                      .def = LEVERAGE_PRODUCT,
                                      .choices = leverages},
                                     {0}};

const wnw_scorer wnw__scorer_cur = {
    .part = {WNW_SCORER_INIT, .name = "cur",
             .about = "Keys and values of large norm among their neighbours; sees no attention.",
             .paper = "CurDKV, arXiv 2509.15038",
             .details =
                 "`l_K(i) = ||k_i||^2 / sum` over a block of `block` entries, `l_V` likewise; the score is "
                 "their product, one of them, or their mean, divided by its sum over the head.\n\n"
                 "A block of zeros is shared out evenly (kvpress divides by zero). The paper's random "
                 "projection is left out.\n\n`O(n d)`.",
             .options = options, .options_size = sizeof(struct opts), .needs = needs, .keep = keep},
    .scratch = scratch_size,
    .score = score,
};
