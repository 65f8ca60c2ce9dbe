/* SPDX-License-Identifier: MIT */
/*
 * KeyDiff: keys that point elsewhere than the average key are hard to replace. Paper: "KeyDiff: Key
 * Similarity-Based KV Cache Eviction for Long-Context LLM Inference in Resource-Constrained Environments"
 * (arXiv 2504.15364). For the n keys k_i of a KV head:
 *
 *     mu    = mean over i of k_i / ||k_i||_2
 *     score = -cos(k_i, mu)
 * The paper evicts block by block while it reads; that is this scorer in the chunk phase. Keys are taken
 * after RoPE, as in kvpress. A zero key, or a zero mean, has cosine 0. Nothing is protected. Observes keys.
 * Range -1..1. Cost O(n d) per KV head.
 */
#include "kernel/kernel.h"
#include "score/score.h"

#include <float.h>
#include <math.h>

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_KEYS;
}

/* Scratch holds mu[d]. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return (size_t)obs->n_embd_head;
}

void wnw__keydiff(const float *k, int32_t n, int32_t d, float *s, float *mu)
{
    enum { BLOCK = 64 };
    float dot[BLOCK], mean;
    for (int32_t c = 0; c < d; c++)
        mu[c] = 0;
    wnw__dots(k, d, k, d, n, d, s);
    for (int32_t i = 0; i < n; i++) {
        s[i] = sqrtf(s[i]);
        const float by = s[i] > FLT_MIN ? 1 / (s[i] * (float)n) : 0;
        for (int32_t c = 0; c < d; c++)
            mu[c] += k[(int64_t)i * d + c] * by;
    }
    wnw__dots(mu, d, mu, d, 1, d, &mean);
    mean = sqrtf(mean);
    for (int32_t at = 0; at < n; at += BLOCK) {
        const int32_t m = n - at < BLOCK ? n - at : BLOCK;
        wnw__dots(k + (int64_t)at * d, d, mu, 0, m, d, dot);
        for (int32_t i = 0; i < m; i++) {
            const float both = s[at + i] * mean;
            s[at + i] = both > FLT_MIN ? -dot[i] / both : 0;
        }
    }
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *mu)
{
    (void)opts;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *s = score + (int64_t)ih * obs->n;
        for (int32_t i = 0; i < obs->n; i++)
            s[i] = 0;
        wnw__keydiff(obs->keys(obs, ih), obs->n_entry[ih], obs->n_embd_head, s, mu);
    }
    return WNW_OK;
}

const wnw_scorer wnw__scorer_keydiff = {
    .part = {WNW_SCORER_INIT, .name = "keydiff",
             .about = "Keys that point elsewhere than the average key stay.",
             .paper = "KeyDiff, arXiv 2504.15364",
             .details =
                 "`score = -cos(k_i, mu)` with `mu` the mean of the normalised keys of the head, after "
                 "RoPE.\n\nThe paper evicts block by block while it reads: use the chunk phase for that. "
                 "A zero key has cosine 0.\n\n`O(n d)`.",
             .needs = needs},
    .scratch = scratch_size,
    .score = score,
};
