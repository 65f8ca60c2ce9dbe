/* SPDX-License-Identifier: MIT */
/*
 * R-KV: what the newest queries attend to, less what other keys say again. Paper: "R-KV: Redundancy-aware KV Cache
 * Compression for Training-Free Reasoning Models Acceleration" (arXiv 2505.24133), made for long answers
 * (--evict-every). For the n keys of a KV head, and with A the attention of the last w queries:
 *
 *     S_ic  = cos(k_i, k_c),  S_ii = 0;
 *     S_ic  = 0 for the newest c with S_ic > threshold      of every row i;
 *     R_c   = softmax over c of (1 / n) sum_i S_ic;
 *     score = lambda maxpool_kernel(mean over the window of A)_c - (1 - lambda) R_c
 *
 * Leaving the newest of row i's neighbours out keeps one of a group of repeats: the newest is penalised least. A key of
 * length 0 has cosine 0. Query heads have scores; the mean over a group is taken after the pooling. The window stays.
 * Observes window attention and keys. Range -1..1. Cost O(n^2 d) per query head.
 */
#include "base/vectors.h"
#include "kernel/kernel.h"
#include "method/window.h"

#include <string.h>

enum { BLOCK = 32 }; /* rows of S that are held at a time */

struct opts {
    struct wnw__window_opts w;
    double lambda, threshold;
};

static int check(const void *opts)
{
    return wnw__pool_check("rkv", ((const struct opts *)opts)->w.kernel);
}

static void needs(const void *opts, wnw_needs *out)
{
    wnw__window_needs(opts, out);
    out->flags |= WNW_NEED_KEYS;
}

/* Scratch holds unit keys[n][d], a block of S, R[n] and a row of attention. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n * ((size_t)obs->n_embd_head + BLOCK + 2);
}

/* unit[n][d] = keys of length 1. */
static void unit_keys(const wnw_observation *obs, int32_t ih, float *unit)
{
    const int32_t n = obs->n_entry[ih], d = obs->n_embd_head;
    memcpy(unit, obs->keys(obs, ih), (size_t)n * (size_t)d * sizeof *unit);
    for (int32_t i = 0; i < n; i++) {
        const double length = wnw__norm(unit + (int64_t)i * d, d);
        for (int32_t c = 0; c < d; c++)
            unit[(int64_t)i * d + c] = length > 0 ? (float)((double)unit[(int64_t)i * d + c] / length) : 0;
    }
}

/* Adds row i of S to sum[n], without the newest of its neighbours. */
static void add_row(float *row, int32_t i, int32_t n, float threshold, float *sum)
{
    int32_t newest = n - 1;
    row[i] = 0;
    while (newest >= 0 && (newest == i || !(row[newest] > threshold)))
        newest--;
    if (newest >= 0)
        row[newest] = 0;
    for (int32_t c = 0; c < n; c++)
        sum[c] += row[c];
}

/* out[n] = R of KV head ih. */
static void redundancy(const struct opts *o, const wnw_observation *obs, int32_t ih, float *unit,
                       float *block, float *out)
{
    const int32_t n = obs->n_entry[ih], d = obs->n_embd_head;
    unit_keys(obs, ih, unit);
    for (int32_t c = 0; c < n; c++)
        out[c] = 0;
    for (int32_t at = 0; at < n; at += BLOCK) {
        const int32_t rows = n - at < BLOCK ? n - at : BLOCK;
        wnw__mul_nt(unit + (int64_t)at * d, rows, unit, n, d, 1, block, n);
        for (int32_t i = 0; i < rows; i++)
            add_row(block + (int64_t)i * n, at + i, n, (float)o->threshold, out);
    }
    for (int32_t c = 0; c < n; c++)
        out[c] /= (float)n;
    if (n > 0)
        wnw__softmax(out, n);
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *unit)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv;
    float *block = unit + (int64_t)obs->n * obs->n_embd_head, *again = block + (int64_t)obs->n * BLOCK,
          *s = again + obs->n;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        redundancy(o, obs, ih, unit, block, again);
        for (int32_t h = ih * group; h < (ih + 1) * group; h++) {
            float *out = score + (int64_t)h * obs->n;
            if (!wnw__query_head_used(obs, h))
                continue;
            wnw__window_score(obs, h, o->w.window, (enum wnw__pool)o->w.pool, o->w.kernel, s, out);
            for (int32_t c = 0; c < obs->n_entry[ih]; c++)
                out[c] = (float)(o->lambda * (double)out[c] - (1 - o->lambda) * (double)again[c]);
        }
    }
    return WNW_OK;
}

static const wnw_option options[] = {
    WNW_OPTION_WINDOW(8),
    WNW_OPTION_KERNEL(7),
    WNW_OPTION_POOL(WNW_POOL_MAX),
    {.name = "lambda",
     .help = "weight of the attention; what is left to 1 is that of the redundancy",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, lambda),
     .def = 0.1,
     .min = 0,
     .max = 1},
    {.name = "threshold",
     .help = "cosine above which a key says again what another says",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, threshold),
     .def = 0.5,
     .min = -1,
     .max = 1},
    {0}};

const wnw_scorer wnw__scorer_rkv = {
    .part = {WNW_SCORER_INIT, .name = "rkv",
             .about = "Attention of the newest queries, less what other keys of the head say again.",
             .paper = "R-KV, arXiv 2505.24133",
             .details = "`score = lambda maxpool(mean_i a[i][c]) - (1 - lambda) R_c` over the last `window` "
                        "queries. `R` is the "
                        "softmax of the mean cosine of key `c` with the other keys; of every key's "
                        "neighbours, those more "
                        "similar than `threshold`, the newest does not count, so that one of a group of "
                        "repeats stays. The "
                        "window stays.\n\n"
                        "Made for long answers: `--evict-every 128`. Heads of a group have the mean of their "
                        "scores; the "
                        "authors' code takes their largest logits.\n\nCost: O(n^2 d) per query head.",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_WINDOW_BY_HEAD, .check = check, .needs = needs,
             .keep = wnw__window_keep},
    .scratch = scratch_size,
    .score = score,
};
