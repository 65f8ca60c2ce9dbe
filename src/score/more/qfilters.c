/* SPDX-License-Identifier: MIT */
/*
 * Q-Filters: queries of a head share one favoured direction, regardless of the text, so how far a key reaches along
 * it tells how much attention the entry will get on average. Paper: "Q-Filters: Leveraging Query-Key Geometry
 * for Efficient KV Cache Compression" (arXiv 2503.02812). For KV head j of group G and its keys k_i:
 *
 *     u_h     = first right singular vector of the queries of query head h, with the sign of E <q, u_h> > 0;
 *     f_j     = mean of u_h over the group;
 *     score_i = <k_i, f_j>
 *
 * The filters f come from a calibration profile (kind stats, results.filter), which gathers queries after
 * RoPE, as the authors' code does; keys are taken after RoPE too. The last `recent` entries stay: the window
 * of the authors' cache; kvpress has none. kvpress stores -f and negates the product. Observes keys. Any
 * range. Cost O(n d) per KV head.
 */
#include "policy/part.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

struct opts {
    int32_t recent;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_KEYS | WNW_NEED_PROFILE;
    out->profiles = 1u << WNW_PROFILE_STATS;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    (void)p;
    out->n_last = ((const struct opts *)opts)->recent;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const int32_t d = obs->n_embd_head;
    (void)opts;
    (void)scratch;
    if (!obs->profile || !obs->profile->query_filter)
        return wnw__fail(WNW_E_MISMATCH, "qfilters: the profile of kind stats has no filters; make it anew "
                                         "with `winnow calibrate stats`");
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const float *k = obs->keys(obs, ih); /* [n][d] */
        const float *f = obs->profile->query_filter + ((int64_t)obs->il * obs->n_head_kv + ih) * d;
        for (int32_t i = 0; i < obs->n_entry[ih]; i++) {
            double dot = 0;
            for (int32_t c = 0; c < d; c++)
                dot += (double)k[(int64_t)i * d + c] * (double)f[c];
            score[(int64_t)ih * obs->n + i] = (float)dot;
        }
    }
    return WNW_OK;
}

static const wnw_option options[] = {{.name = "recent",
                                      .help = "most recent tokens that always stay",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, recent),
                                      .def = 64,
                                      .min = 0,
                                      .max = 65536},
                                     {0}};

const wnw_scorer wnw__scorer_qfilters = {
    .part = {WNW_SCORER_INIT, .name = "qfilters",
             .about =
                 "Keys that reach far along the direction which a head's queries favour, from a profile.",
             .paper = "Q-Filters, arXiv 2503.02812",
             .details =
                 "With `u_h` the first right singular vector of the queries of query head `h`, after RoPE, "
                 "turned so that queries are positive along it on average, and `f` the mean of `u_h` over a "
                 "KV head's group: `score_i = <k_i, f>`. The filters `f` are calibrated once per model.\n\n"
                 "The last `recent` entries stay, as in the cache of the authors' code; kvpress protects "
                 "nothing. The authors' code gives `u_h` the sign of most queries, the paper that of their "
                 "mean, which is taken here.\n\n"
                 "Cost: O(n d) per KV head.",
             .options = options, .options_size = sizeof(struct opts), .needs = needs, .keep = keep},
    .score = score,
};
