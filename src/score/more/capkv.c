/* SPDX-License-Identifier: MIT */
/*
 * Capacity: values stay whose direction the others do not cover, weighted by the attention expected of coming
 * queries.
 * Paper: "Rethinking KV Cache Eviction via a Unified Information-Theoretic Objective" (CapKV, arXiv
 * 2604.25975). The capacity of a kept set is log det of a matrix to which every entry adds one direction; an
 * entry's statistical leverage is what it adds next to all others. Per query head, over the entries after the
 * n_sink first:
 *
 *     mu  = R mean(q)                       R = mean of the RoPE matrices of positions N .. N + n_future - 1;
 *     w_i = exp(tau cos(k_i, mu) - max)     align=dot: tau k_i . mu, as in the paper;
 *     A   = I + sum_i (w_i + epsilon) v_i v_i^T;
 *     score_i = w_i v_i^T A^-1 v_i
 *
 * The default is the form of kvpress (CapPress): cosines in place of products, and the largest weight shifted to 1.
 * The queries' mean is turned to future positions. The value itself is the direction that an entry adds to the
 * output. Observes query statistics (of which only the mean is used), keys and values. Range 0 .. 1. Cost O(H_q n
 * d^2).
 */
#include "base/vectors.h"
#include "kernel/kernel.h"
#include "method/mean_rope.h"
#include "method/window.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256 }; /* entries whose products are added up in float32 */
enum align { ALIGN_COSINE, ALIGN_DOT };

struct opts {
    double tau;
    int32_t align;
    int32_t n_sink;
    int32_t n_future;
    double epsilon;
};

static void needs(const void *opts, wnw_needs *out)
{
    out->flags = WNW_NEED_KEYS | WNW_NEED_VALUES | WNW_NEED_QUERY_STATS | WNW_NEED_ROPE;
    out->skip = ((const struct opts *)opts)->n_sink;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    (void)p;
    out->n_first = ((const struct opts *)opts)->n_sink;
}

/* Scratch memory for one query head. The matrix comes first, because doubles need the larger alignment. */
struct room {
    double *a;       /* [d][d] A, then its factor L */
    float *mu;       /* [d] */
    float *inverse;  /* [d][d] L^-1, zeros above the diagonal; before that a block's share of A */
    float *block;    /* [d][BLOCK] values of a block, transposed; or [BLOCK][d] L^-1 times each of them */
    float *weighted; /* [d][BLOCK] the same times w + epsilon */
};

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    const size_t d = (size_t)obs->n_embd_head;
    (void)opts;
    return 1 + 2 * d * d + d + d * d + 2 * d * BLOCK;
}

static struct room room_of(float *scratch, int32_t n_embd_head)
{
    const size_t d = (size_t)n_embd_head;
    const size_t skew = (uintptr_t)scratch % sizeof(double) / sizeof(float);
    float *at = scratch + skew;
    struct room r = {.a = (double *)(void *)at};
    r.mu = at + 2 * d * d;
    r.inverse = r.mu + d;
    r.block = r.inverse + d * d;
    r.weighted = r.block + d * BLOCK;
    return r;
}

/* w[n]: weights of keys k[n][d] for a query head whose queries have the mean r->mu before RoPE. */
static void weigh(const struct opts *o, const wnw_observation *obs, const float *k, int32_t n, float *w,
                  const struct room *r)
{
    const int32_t d = obs->n_embd_head;
    float most = -INFINITY;
    wnw__turn_rows(obs, obs->n_past, o->n_future, r->mu, 1, 0, 1);
    wnw__mul_nt(r->mu, 1, k, n, d, 1, w, n);
    const double mu_norm = wnw__norm(r->mu, d);
    for (int32_t i = 0; i < n; i++) {
        if (o->align == ALIGN_COSINE) {
            const double norms = mu_norm * wnw__norm(k + (int64_t)i * d, d);
            const double cosine = norms > 0 ? (double)w[i] / norms : 0;
            w[i] = (float)(cosine < -1 ? -1 : cosine);
            if (cosine > 1)
                w[i] = 1;
        }
        w[i] *= (float)o->tau;
        most = w[i] > most ? w[i] : most;
    }
    for (int32_t i = 0; i < n; i++)
        w[i] = expf(w[i] - most);
}

/* r->a = I + sum (w + epsilon) v v^T over v[n][d]. */
static void add_up(const struct opts *o, const float *v, const float *w, int32_t n, int32_t d,
                   const struct room *r)
{
    for (int32_t c = 0; c < d * d; c++)
        r->a[c] = c % (d + 1) == 0;
    for (int32_t at = 0; at < n; at += BLOCK) {
        const int32_t m = n - at < BLOCK ? n - at : BLOCK;
        for (int32_t i = 0; i < m; i++)
            for (int32_t c = 0; c < d; c++) {
                const float x = v[(int64_t)(at + i) * d + c];
                r->block[c * m + i] = x;
                r->weighted[c * m + i] = x * (w[at + i] + (float)o->epsilon);
            }
        wnw__mul_nt(r->block, d, r->weighted, d, m, 1, r->inverse, d);
        for (int32_t c = 0; c < d * d; c++)
            r->a[c] += (double)r->inverse[c];
    }
}

/* r->inverse = L^-1, row by row of unit vectors. */
static void invert(int32_t d, const struct room *r)
{
    memset(r->inverse, 0, (size_t)d * (size_t)d * sizeof *r->inverse);
    for (int32_t j = 0; j < d; j++)
        for (int32_t i = j; i < d; i++) {
            double sum = i == j;
            for (int32_t c = j; c < i; c++)
                sum -= r->a[i * d + c] * (double)r->inverse[c * d + j];
            r->inverse[i * d + j] = (float)(sum / r->a[i * d + i]);
        }
}

/* w[n] becomes w_i v_i^T A^-1 v_i = w_i || L^-1 v_i ||^2. */
static int score_head(const struct opts *o, const wnw_observation *obs, const float *v, int32_t n, float *w,
                      const struct room *r)
{
    const int32_t d = obs->n_embd_head;
    add_up(o, v, w, n, d, r);
    if (!wnw__cholesky(r->a, d))
        return wnw__fail(
            WNW_E_NOT_FINITE,
            "capkv: the values' matrix of layer %d cannot be factored; are there infinite values?", obs->il);
    invert(d, r);
    for (int32_t at = 0; at < n; at += BLOCK) {
        const int32_t m = n - at < BLOCK ? n - at : BLOCK;
        wnw__mul_nt(v + (int64_t)at * d, m, r->inverse, d, d, 1, r->block, d);
        for (int32_t i = 0; i < m; i++) {
            const double norm = wnw__norm(r->block + (int64_t)i * d, d);
            w[at + i] *= (float)(norm * norm);
        }
    }
    return WNW_OK;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv, sink = o->n_sink;
    const int64_t d = obs->n_embd_head;
    const struct room r = room_of(scratch, obs->n_embd_head);
    for (int64_t i = 0; i < (int64_t)obs->n_head * obs->n; i++)
        score[i] = 0;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const int32_t n = obs->n_entry[ih] - sink;
        if (n <= 0)
            continue;
        const float *k = obs->keys(obs, ih) + sink * d, *v = obs->values(obs, ih) + sink * d;
        for (int32_t h = ih * group; h < (ih + 1) * group; h++) {
            float *row = score + (int64_t)h * obs->n;
            if (!wnw__query_head_used(obs, h))
                continue;
            memcpy(r.mu, obs->query_mean + h * d, (size_t)d * sizeof *r.mu);
            weigh(o, obs, k, n, row + sink, &r);
            WNW_TRY(score_head(o, obs, v, n, row + sink, &r));
        }
    }
    /* A leverage is at most 1 and so is a weight. */
    for (int32_t h = 0; h < obs->n_head; h++)
        for (int32_t i = 0; i < sink && i < obs->n; i++)
            score[(int64_t)h * obs->n + i] = 2;
    return WNW_OK;
}

static const char *const aligns[] = {"cosine", "dot", NULL};

static const wnw_option options[] = {{.name = "tau",
                                      .help = "how much the weights follow the queries; 0 = all the same",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct opts, tau),
                                      .def = 5,
                                      .min = 0,
                                      .max = 1000},
                                     {.name = "align",
                                      .help =
                                          "keys and the mean query are compared by cosine (kvpress) or by "
                                          "their product (paper)",
                                      .type = WNW_OPT_ENUM,
                                      .offset = offsetof(struct opts, align),
                                      .def = ALIGN_COSINE,
                                      .choices = aligns},
                                     WNW_OPTION_N_SINK(struct opts),
                                     WNW_OPTION_N_FUTURE(struct opts),
                                     {.name = "epsilon",
                                      .help = "added to every weight where directions are added up",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct opts, epsilon),
                                      .def = 1e-6,
                                      .min = 0,
                                      .max = 1},
                                     {0}};

const wnw_scorer wnw__scorer_capkv = {
    .part = {WNW_SCORER_INIT, .name = "capkv",
             .about = "Leverage of values in what the cache can express, weighed by the queries' mean.",
             .paper = "CapKV, arXiv 2604.25975",
             .details =
                 "Per query head, after the sinks, with `mu` the mean query before RoPE turned by RoPE "
                 "averaged "
                 "over the next `n_future` positions: `w_i = exp(tau cos(k_i, mu) - max)`, `A = I + sum (w_i "
                 "+ "
                 "epsilon) v_i v_i^T`, `score_i = w_i v_i^T A^-1 v_i`. The score of a KV head is the group's "
                 "mean.\n\n"
                 "This is kvpress' form. The paper has products `k_i . mu` in place of cosines: `align=dot`, "
                 "which needs another `tau`. Covariances of queries are gathered too and not used.\n\n"
                 "Cost: O(n d^2) per query head.",
             .options = options, .options_size = sizeof(struct opts), .flags = WNW_FLAG_QUERY_HEADS,
             .needs = needs, .keep = keep},
    .scratch = scratch_size,
    .score = score,
};
