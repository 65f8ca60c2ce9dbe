/* SPDX-License-Identifier: MIT */
/*
 * Compactor: keys unlike the others, and entries that are attended to inside their chunk. Paper: "Compactor:
 * Calibrated Query-Agnostic KV Cache Compression with Approximate Leverage Scores" (arXiv 2507.08143).
 *
 *     score = beta leverage + noncausal,   beta = r, the fraction removed, unless given
 * Both halves (leverage.c, noncausal.c) are standardised over the layer, so they can be added. The first and
 * last few tokens stay; both halves are computed as if those were not there, so that chunks begin after
 * them. kvpress gives them the highest score, where ties may drop them; here they are protected. The paper's
 * calibration of the ratio from the text is not part of this.
 * Observes all queries, keys and values. Cost: the sum of both.
 */
#include "score/more/noncausal.h"

struct opts {
    double beta;
    int32_t first, last;
    struct wnw__leverage_opts leverage;
    struct wnw__noncausal_opts noncausal;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_QUERIES | WNW_NEED_KEYS | WNW_NEED_VALUES | WNW_NEED_ROPE;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct opts *o = opts;
    (void)p;
    out->n_first = o->first;
    out->n_last = o->last;
}

/* Leverage of all heads, then what the current half wants. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    const struct opts *o = opts;
    const size_t a = wnw__leverage_scratch(&o->leverage, obs), b = wnw__noncausal_scratch(&o->noncausal, obs);
    return (size_t)obs->n_head_kv * (size_t)obs->n + (a > b ? a : b);
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *leverage)
{
    const struct opts *o = opts;
    const int64_t n_score = (int64_t)obs->n_head_kv * obs->n;
    const struct wnw__ends ends = {o->first, o->last};
    const double kept = obs->n > 0 ? obs->budget / obs->n : 1, removed = kept < 1 ? 1 - kept : 0;
    const float beta = (float)(o->beta >= 0 ? o->beta : removed);
    WNW_TRY(wnw__leverage(&o->leverage, obs, ends, leverage, leverage + n_score));
    WNW_TRY(wnw__noncausal(&o->noncausal, obs, ends, score, leverage + n_score));
    for (int64_t i = 0; i < n_score; i++)
        score[i] += beta * leverage[i];
    return WNW_OK;
}

static const wnw_option options[] = {{.name = "beta",
                                      .help = "weight of the leverage; -1: the fraction removed",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct opts, beta),
                                      .def = -1,
                                      .min = -1,
                                      .max = 1000},
                                     {.name = "first",
                                      .help = "first tokens that always stay",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, first),
                                      .def = 8,
                                      .min = 0,
                                      .max = 65536},
                                     {.name = "last",
                                      .help = "last tokens that always stay",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, last),
                                      .def = 4,
                                      .min = 0,
                                      .max = 65536},
                                     WNW_OPTION_SKETCH(struct opts, leverage.sketch),
                                     WNW_OPTION_PROJECTION_SEED(struct opts, leverage.seed),
                                     WNW_OPTION_CHUNK(struct opts, noncausal.chunk),
                                     WNW_OPTION_CHUNK_POOL(struct opts, noncausal.pool),
                                     WNW_OPTION_SCALED(struct opts, noncausal.scaled),
                                     WNW_OPTION_PADDED(struct opts, noncausal.padded),
                                     {0}};

static int check(const void *opts)
{
    const struct opts *o = opts;
    return wnw__noncausal_check("compactor", &o->noncausal);
}

const wnw_scorer wnw__scorer_compactor = {
    .part = {WNW_SCORER_INIT, .name = "compactor",
             .about = "Leverage of the keys plus attention inside chunks.",
             .paper = "Compactor, arXiv 2507.08143",
             .details =
                 "`beta leverage + noncausal`, both standardised over the layer; `beta` is the "
                 "fraction removed "
                 "unless it is given. Both leave out the protected first and last tokens.\n\n"
                 "kvpress gives those tokens the highest score instead of protecting them. The paper's "
                 "choice of "
                 "the ratio from the text is not part of this.\n\n`O(H_q n chunk d + H n s (d + s))`.",
             .options = options, .options_size = sizeof(struct opts), .flags = WNW_FLAG_PROMPT_ONLY,
             .check = check, .needs = needs, .keep = keep},
    .scratch = scratch_size,
    .score = score,
};
