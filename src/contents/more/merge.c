/* SPDX-License-Identifier: MIT */
/*
 * Value merging: the value of an entry that goes is folded into the entry that stays whose key is most like
 * its own. Papers: "D2O: Dynamic Discriminative Operations for Efficient Long-Context Inference of Large
 * Language Models" (arXiv 2406.13035); kvpress' MergingPress, after it and Token Merging (arXiv 2210.09461).
 * For every entry e that goes, over the entries t of the head that stay:
 *
 *     u_e = max over t of cos(k_e, k_t),  t(e) = the t of that maximum (of equal ones the first);
 *     merged if u_e >= similarity, with gate=mean also u_e >= the mean of u, and if u_e is among the
 *            `fraction` largest;
 *     w_e = max(u_e, 0) ||v_e|| / (||v_e|| + ||v_t|| + 1e-6)     weight=norm (kvpress, default);
 *     w_e = exp(u_e - 1)                                         weight=exp (D2O);
 *     v_t <- (v_t + sum w_e v_e) / (1 + sum w_e),  keys stay
 *
 * Three things of D2O are left out: it merges keys too; its threshold moves from step to step with a factor
 * of 0.7 (gate=mean is its first step); it has a layer budget by the variance of attention. Keys are compared
 * after RoPE, as they are cached. Observes keys and values. Cost O(n_dropped n_kept d) per KV head.
 */
#include "base/topk.h"
#include "base/vectors.h"
#include "kernel/kernel.h"
#include "policy/part.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 32 }; /* entries compared at a time */
enum weight { WEIGHT_NORM, WEIGHT_EXP };
enum gate { GATE_FIXED, GATE_MEAN };

struct opts {
    double similarity;
    double fraction;
    int32_t weight;
    int32_t gate;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_KEYS | WNW_NEED_VALUES;
}

/* Keys that stay [n][d], a block of others [BLOCK][d] and their cosines [BLOCK][n], best cosines [n]. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head;
    (void)opts;
    return n * d + BLOCK * d + BLOCK * n + n;
}

static void unit(const float *x, int32_t d, float *out)
{
    const double length = wnw__norm(x, d);
    for (int32_t i = 0; i < d; i++)
        out[i] = (float)((double)x[i] / (length > 1e-6 ? length : 1e-6));
}

/* Lists the entries that go, each with the most similar entry that stays; u[i] is the cosine of the two. */
static int32_t nearest(const wnw_contents_problem *p, float *u, wnw_merge *out, float *scratch)
{
    const int32_t d = p->obs->n_embd_head, n_keep = p->n_keep;
    const float *k = p->obs->keys(p->obs, p->ih);
    float *kept = scratch, *block = kept + (int64_t)p->obs->n * d, *cosine = block + (int64_t)BLOCK * d;
    int32_t n_out = 0, m = 0;
    for (int32_t t = 0; t < n_keep; t++)
        unit(k + (int64_t)p->keep[t] * d, d, kept + (int64_t)t * d);
    for (int32_t i = 0, t = 0; i <= p->n; i++) {
        if (i < p->n && t < n_keep && p->keep[t] == i) {
            t++;
            continue;
        }
        if (i < p->n) {
            unit(k + (int64_t)i * d, d, block + (int64_t)m++ * d);
            out[n_out++] = (wnw_merge){.from = i, .n_to = 1};
        }
        if (m < BLOCK && i < p->n)
            continue;
        wnw__mul_nt(block, m, kept, n_keep, d, 1, cosine, n_keep);
        for (int32_t b = 0; b < m; b++) {
            int32_t best = 0;
            for (int32_t c = 1; c < n_keep; c++)
                best = cosine[(int64_t)b * n_keep + c] > cosine[(int64_t)b * n_keep + best] ? c : best;
            u[n_out - m + b] = cosine[(int64_t)b * n_keep + best];
            out[n_out - m + b].to = p->keep[best];
        }
        m = 0;
    }
    return n_out;
}

/* u[i] of entries that are not merged becomes -INFINITY. */
static void shut_gates(const struct opts *o, float *u, int32_t n)
{
    double mean = 0, least = o->similarity;
    for (int32_t i = 0; i < n; i++)
        mean += (double)u[i] / n;
    if (o->gate == GATE_MEAN && mean > least)
        least = mean;
    for (int32_t i = 0; i < n; i++)
        if ((double)u[i] < least)
            u[i] = -INFINITY;
    /* The number of entries at or above the quantile 1 - fraction. */
    const double at = ceil((1 - o->fraction) * (n - 1) - 1e-9);
    struct wnw__cut cut = wnw__topk_cut(u, n, n - (int32_t)at);
    for (int32_t i = 0; i < n; i++)
        if (!wnw__cut_take(&cut, u[i]))
            u[i] = -INFINITY;
}

static int32_t merge(const void *opts, const wnw_contents_problem *p, wnw_merge *out, float *scratch)
{
    const struct opts *o = opts;
    const int32_t d = p->obs->n_embd_head;
    float *u = scratch;
    int32_t n_out = 0;
    if (p->n_keep == 0 || p->n_keep == p->n)
        return 0;
    const int32_t n = nearest(p, u, out, scratch + p->obs->n);
    const float *v = p->obs->values(p->obs, p->ih);
    shut_gates(o, u, n);
    for (int32_t i = 0; i < n; i++) {
        const double from = wnw__norm(v + (int64_t)out[i].from * d, d),
                     to = wnw__norm(v + (int64_t)out[i].to * d, d);
        const double cosine = (double)u[i];
        double w = 0;
        if (o->weight == WEIGHT_EXP)
            w = exp(cosine - 1);
        else if (cosine > 0)
            w = cosine * from / (from + to + 1e-6);
        if (!(w > 0))
            continue;
        out[n_out] = out[i];
        out[n_out++].weight = (float)w;
    }
    return n_out;
}

static const char *const weights[] = {"norm", "exp", NULL};
static const char *const gates[] = {"fixed", "mean", NULL};

static const wnw_option options[] = {
    {.name = "similarity",
     .help = "cosine that an entry's key must have with one that stays to be merged",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, similarity),
     .def = 0,
     .min = -1,
     .max = 1},
    {.name = "fraction",
     .help = "share of the entries that go, the most similar ones, that may be merged",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, fraction),
     .def = 1,
     .min = 0.001,
     .max = 1},
    {.name = "weight",
     .help = "norm: cosine times the share of the norms (kvpress); exp: of the cosine (D2O)",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, weight),
     .def = WEIGHT_NORM,
     .choices = weights},
    {.name = "gate",
     .help = "fixed: similarity alone; mean: also no less than the mean of the head (D2O)",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, gate),
     .def = GATE_FIXED,
     .choices = gates},
    {0}};

const wnw_contents wnw__contents_merge = {
    .part = {WNW_CONTENTS_INIT, .name = "merge",
             .about = "The value of an entry that goes is averaged into the one that stays whose key is most "
                      "like its own.",
             .paper = "D2O, arXiv 2406.13035",
             .details =
                 "With `u_e` the largest cosine of `k_e` with a key that stays, that of entry t: `w_e "
                 "= max(u_e, 0) "
                 "||v_e|| / (||v_e|| + ||v_t|| + 1e-6)` (kvpress' MergingPress, the default) or `w_e = "
                 "exp(u_e - 1)` "
                 "(D2O), and `v_t <- (v_t + sum w_e v_e) / (1 + sum w_e)`. Merged is what reaches "
                 "`similarity`, and "
                 "of "
                 "that the `fraction` that is most similar.\n\n"
                 "Keys stay. Of D2O this has the weights and, with `gate=mean`, the first step of its "
                 "threshold; D2O "
                 "also merges keys, moves the threshold from step to step, and has a layer budget of "
                 "its own. Sums "
                 "are "
                 "float32 and are stored in the cache's type: with q8_0 or q4_0 a value that takes "
                 "others in is "
                 "rounded "
                 "once more. No bytes are saved beyond what the eviction saves.\n\n"
                 "Cost: O(n_dropped n_kept d) per KV head, more than most scorers.",
             .options = options, .options_size = sizeof(struct opts), .needs = needs},
    .scratch = scratch_size,
    .merge = merge,
    .averages = true,
};
