/* SPDX-License-Identifier: MIT */
/*
 * Knorm: keys of small norm tend to receive much attention, so score = -||k||_2. Paper: "A Simple and
 * Effective L2 Norm-Based Strategy for KV Cache Compression" (arXiv 2406.11430); global form of kvpress:
 * nothing is protected. Observes keys (rotation does not change the norm). Range <= 0. Cost O(n d) per KV
 * head.
 */
#include "base/vectors.h"
#include "policy/part.h"

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_KEYS;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    (void)opts;
    (void)scratch;
    const int32_t d = obs->n_embd_head;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const float *k = obs->keys(obs, ih); /* [n][d] */
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            score[(int64_t)ih * obs->n + i] = (float)-wnw__norm(k + (int64_t)i * d, d);
    }
    return WNW_OK;
}

const wnw_scorer wnw__scorer_knorm = {
    .part = {WNW_SCORER_INIT, .name = "knorm", .about = "Keys of small norm stay.",
             .paper = "L2 norm-based strategy, arXiv 2406.11430",
             .details = "`score[j] = -||k_j||_2`: keys of small norm tend to receive much attention. RoPE "
                        "does not change a norm.\n\nDeviation: the paper leaves the first two layers whole; "
                        "this is kvpress' global form, which does not, and protects nothing. `l2norm:skip=2` "
                        "leaves layers whole.\n\nCost: O(n d) per KV head.",
             .needs = needs},
    .score = score,
};
