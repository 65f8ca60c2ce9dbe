/* SPDX-License-Identifier: MIT */
/*
 * Recursive L2 norm: LagKV's blocks, but inside a block the keys of smallest norm survive. The baseline of
 * "LagKV: Lag-Relative Information of the KV Cache Tells Which Tokens Are Important" (arXiv 2504.04704, eq.
 * 16) and its authors' l2_kv.py; the idea is that of "A Simple and Effective L2 Norm-Based Strategy for KV
 * Cache Compression" (arXiv 2406.11430), which cuts through the whole head once (scorer knorm).
 *
 *     score[t] = -(||K_t|| + wv ||V_t||)          low=0: the opposite sign, large norms survive
 * The authors leave the first two layers whole (preset l2norm: skip=2) and give values no weight. RoPE turns
 * keys and keeps their norms, so it does not matter here.
 * Observes keys, and values where wv > 0, of blocks that are not settled. Cost O(n d) per KV head.
 */
#include "base/vectors.h"
#include "score/lag_blocks.h"

struct opts {
    struct wnw__lag_opts lag;
    double wv;
    int32_t low;
};

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    out->flags = WNW_NEED_KEYS | (o->wv > 0 ? WNW_NEED_VALUES : 0u);
}

/* Adds weight x norm of each of the n rows z[n][d] to s[n]. */
static void add_norms(const float *z, int32_t n, int32_t d, double weight, float *s)
{
    for (int32_t t = 0; t < n; t++)
        s[t] += (float)(weight * wnw__norm(z + (int64_t)t * d, d));
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct opts *o = opts;
    const int32_t d = obs->n_embd_head, sign = o->low ? -1 : 1;
    (void)scratch;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        float *s = score + (int64_t)ih * obs->n;
        const int32_t first = obs->n_settled < obs->n_entry[ih] ? obs->n_settled : 0;
        const int32_t n = obs->n_entry[ih] - first;
        for (int32_t i = 0; i < obs->n; i++)
            s[i] = 0;
        add_norms(obs->key_rows ? obs->key_rows(obs, ih, first, n) : obs->keys(obs, ih) + (int64_t)first * d,
                  n, d, sign, s + first);
        if (o->wv > 0)
            add_norms(obs->value_rows ? obs->value_rows(obs, ih, first, n)
                                      : obs->values(obs, ih) + (int64_t)first * d,
                      n, d, sign * o->wv, s + first);
    }
    return WNW_OK;
}

static const wnw_option options[] = {WNW_OPTIONS_LAG,
                                     {.name = "wv",
                                      .help = "weight of the values' norms",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct opts, wv),
                                      .min = 0,
                                      .max = 1000},
                                     {.name = "low",
                                      .help = "keep small norms; 0: large ones",
                                      .type = WNW_OPT_BOOL,
                                      .offset = offsetof(struct opts, low),
                                      .def = 1},
                                     {0}};

const wnw_scorer wnw__scorer_l2norm = {
    .part = {WNW_SCORER_INIT, .name = "l2norm",
             .about = "Keys of small norm inside blocks of tokens; no attention needed.",
             .paper = "LagKV, arXiv 2504.04704",
             .details = "`score[t] = -(||k_t|| + wv ||v_t||)` inside the blocks of `lagkv`: the baseline of "
                        "that paper (eq. 16). `low=0` keeps large norms instead.\n\nThe authors leave the "
                        "first two layers whole (`skip=2`) and give values no weight.\n\nCost: O(n d) per KV "
                        "head.",
             .options = options, .options_size = sizeof(struct opts), .needs = needs, .keep = wnw__lag_keep},
    .score = score,
    .blocks = &wnw__lag_rule,
    .skips = wnw__lag_skips,
};
