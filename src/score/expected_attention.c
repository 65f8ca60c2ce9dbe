/* SPDX-License-Identifier: MIT */
/*
 * Expected attention: what the queries of the next n_future positions will give to an entry. They are taken to be
 * normally distributed, with the mean and the covariance of the queries before RoPE. Paper: "Expected Attention: KV
 * Cache Compression by Estimating Attention from Future Queries Distribution" (arXiv 2510.00636).
 *
 *     mu' = R mu, C' = R C R^T              R = mean of the RoPE matrices of positions N .. N + n_future - 1;
 *     z_c = k_c . mu' / sqrt(d) + k_c^T C' k_c / (2 d)                the log of E exp(q . k_c / sqrt(d));
 *     p   = softmax of z over the entries after the n_sink first;
 *     score_c = (mean of p_c over the group + epsilon) ||v_c||_2
 *
 * The first n_sink entries always stay. R has a closed form (mean_rope.c). vnorm=0 leaves the value norm out:
 * for CriticalKV, whose norm knows the output projection. epsilon=0.01 with AdaKV is the paper's
 * AdaExpectedAttention. stats=profile takes mu and C from calibration in place of the prompt. Scaling of
 * RoPE's magnitude (YaRN) is not seen. Observes query statistics, keys and values. Range >= 0. Cost O(H_q n
 * d^2).
 */
#include "base/vectors.h"
#include "kernel/kernel.h"
#include "method/mean_rope.h"
#include "method/window.h"
#include "profile/profile.h"
#include "score/score.h"
#include "winnow_calibrate.h"

#include <math.h>
#include <string.h>

static void needs(const void *opts, wnw_needs *out)
{
    const struct wnw__expected_opts *o = opts;
    const bool profile = o->stats == WNW_STATS_PROFILE;
    out->flags = WNW_NEED_KEYS | WNW_NEED_ROPE | (profile ? WNW_NEED_PROFILE : WNW_NEED_QUERY_STATS);
    out->flags |= o->vnorm ? WNW_NEED_VALUES : 0;
    out->skip = o->n_sink;
    out->profiles = profile ? 1u << WNW_PROFILE_STATS : 0;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct wnw__expected_opts *o = opts;
    (void)p;
    out->n_first = o->n_sink;
}

/* A query head's scratch holds mu'[d], C'[d][d], its triangle, and quadratic forms [n]. */
static size_t room_of(const wnw_observation *obs)
{
    const size_t d = (size_t)obs->n_embd_head;
    return d + d * d + WNW_TRIANGLE_FLOATS(d) + (size_t)obs->n;
}

size_t wnw__expected_scratch(const wnw_observation *obs)
{
    return WNW_TILE_FLOATS(obs->n, obs->n_embd_head) + (size_t)(obs->n_head / obs->n_head_kv) * room_of(obs);
}

/* Mean [n_head][d] and covariance [n_head][d][d] of this layer's queries. */
static int stats_of(const struct wnw__expected_opts *o, const wnw_observation *obs, const float **mean,
                    const float **cov)
{
    *mean = obs->query_mean;
    *cov = obs->query_cov;
    if (o->stats == WNW_STATS_PROMPT)
        return WNW_OK;
    const int64_t n = (int64_t)obs->n_head * obs->n_embd_head;
    const struct wnw_profile *p = obs->profile;
    if (!p || !p->query_mean || !p->query_cov)
        return wnw__fail(WNW_E_MISMATCH, "expected_attention: the profile has no query statistics; calibrate "
                                         "them or use stats=prompt");
    *mean = p->query_mean + obs->il * n;
    *cov = p->query_cov + obs->il * n * obs->n_embd_head;
    return WNW_OK;
}

/* What is known of the queries of one head: mean[d] and cov[d][d]. */
struct moments {
    const float *mean, *cov;
};

/* The keys k[n][d] of a KV head, and the same in tiles. */
struct keys {
    const float *k, *tiles;
    int32_t n;
};

/* Computes z[n] of the keys; `room` holds mu', C', its triangle and forms. */
static void expected_logits(const struct wnw__expected_opts *o, const wnw_observation *obs,
                            struct moments queries, const struct keys *keys, float *z, float *room)
{
    const int32_t d = obs->n_embd_head, from = obs->n_past, count = o->n_future, n = keys->n;
    float *mu = room, *c = mu + d, *triangle = c + (int64_t)d * d, *form = triangle + WNW_TRIANGLE_FLOATS(d);
    memcpy(mu, queries.mean, (size_t)d * sizeof *mu);
    wnw__turn_rows(obs, from, count, mu, 1, 0, 1);
    for (int32_t i = 0; i < d; i++)
        mu[i] *= obs->attn_scale;
    wnw__dots(keys->k, d, mu, 0, n, d, z);
    if (!o->covariance)
        return;
    memcpy(c, queries.cov, (size_t)d * (size_t)d * sizeof *c);
    wnw__turn_rows(obs, from, count, c, d, 1, d); /* R C */
    wnw__turn_rows(obs, from, count, c, d, d, 1); /* (R C) R^T */
    const float half = obs->attn_scale * obs->attn_scale / 2;
    for (int32_t i = 0; i < d; i++)
        for (int32_t j = 0; j <= i; j++)
            c[i * d + j] *= i == j ? half : 2 * half; /* C' is symmetric */
    wnw__triangle_of(c, d, triangle);
    wnw__triangle_forms(triangle, d, keys->tiles, n, form);
    for (int32_t i = 0; i < n; i++)
        z[i] += form[i];
}

/* Weighs the rows [group][n] of KV head ih by the norms of its values. */
static void weigh(const struct wnw__expected_opts *o, const wnw_observation *obs, int32_t ih, int32_t group,
                  float *rows)
{
    enum { BLOCK = 64 };
    const int32_t d = obs->n_embd_head, n = obs->n_entry[ih];
    const float *v = o->vnorm ? obs->values(obs, ih) : NULL;
    float norm[BLOCK];
    for (int32_t at = o->n_sink; v && at < n; at += BLOCK) {
        const int32_t m = n - at < BLOCK ? n - at : BLOCK;
        const float *x = v + (int64_t)at * d;
        wnw__dots(x, d, x, d, m, d, norm);
        for (int32_t i = 0; i < m; i++)
            norm[i] = sqrtf(norm[i]);
        for (int32_t g = 0; g < group; g++) {
            float *s = rows + (int64_t)g * obs->n + at;
            for (int32_t i = 0; i < m; i++)
                s[i] = (s[i] + (float)o->epsilon) * norm[i];
        }
    }
}

/* The query heads of a KV head, which the session's threads share out. */
struct group {
    const struct wnw__expected_opts *o;
    const wnw_observation *obs;
    const float *mean, *cov; /* of the first head of the group */
    struct keys keys;        /* after the sinks */
    int32_t ih;
    float *rows, *scratch; /* [group][n], [group][room_of] */
};

static void expect(int32_t g, void *user)
{
    const struct group *x = user;
    const wnw_observation *obs = x->obs;
    const int64_t d = obs->n_embd_head;
    const int32_t sink = x->o->n_sink;
    float *row = x->rows + (int64_t)g * obs->n;
    if (!wnw__query_head_used(obs, x->ih * (obs->n_head / obs->n_head_kv) + g))
        return;
    expected_logits(x->o, obs, (struct moments){x->mean + g * d, x->cov + g * d * d}, &x->keys, row + sink,
                    x->scratch + (size_t)g * room_of(obs));
    wnw__softmax(row + sink, x->keys.n);
}

int wnw__expected_attention(const struct wnw__expected_opts *o, const wnw_observation *obs, float *score,
                            float *scratch)
{
    const int32_t group = obs->n_head / obs->n_head_kv, sink = o->n_sink;
    const int64_t d = obs->n_embd_head;
    const float *mean, *cov;
    float most = 0;
    WNW_TRY(stats_of(o, obs, &mean, &cov));
    for (int64_t i = 0; i < (int64_t)obs->n_head * obs->n; i++)
        score[i] = 0;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const int32_t n = obs->n_entry[ih];
        const float *k = obs->keys(obs, ih) + (n > sink ? sink * d : 0);
        float *rows = score + (int64_t)ih * group * obs->n;
        struct group x = {.o = o,
                          .obs = obs,
                          .mean = mean + (int64_t)ih * group * d,
                          .cov = cov + (int64_t)ih * group * d * d,
                          .keys = {k, scratch, n - sink},
                          .ih = ih,
                          .rows = rows,
                          .scratch = scratch + WNW_TILE_FLOATS(obs->n, d)};
        if (n > sink && o->covariance)
            wnw__tiles_of(k, n - sink, (int32_t)d, scratch);
        if (n > sink)
            wnw__observation_each(obs, group, expect, &x);
        weigh(o, obs, ih, group, rows);
        for (int32_t i = 0; i < group * obs->n; i++)
            most = rows[i] > most ? rows[i] : most;
    }
    for (int32_t h = 0; h < obs->n_head; h++)
        for (int32_t i = 0; i < sink && i < obs->n; i++)
            score[(int64_t)h * obs->n + i] = most + 1;
    return WNW_OK;
}

static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    (void)opts;
    return wnw__expected_scratch(obs);
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    return wnw__expected_attention(opts, obs, score, scratch);
}

static const char *const stats_choices[] = {"prompt", "profile", NULL};

static const wnw_option options[] = {WNW_OPTION_N_SINK(struct wnw__expected_opts),
                                     WNW_OPTION_N_FUTURE(struct wnw__expected_opts),
                                     {.name = "covariance",
                                      .help = "use the covariance of the queries, not only their mean",
                                      .type = WNW_OPT_BOOL,
                                      .offset = offsetof(struct wnw__expected_opts, covariance),
                                      .def = 1},
                                     {.name = "vnorm",
                                      .help = "multiply by the norm of the value",
                                      .type = WNW_OPT_BOOL,
                                      .offset = offsetof(struct wnw__expected_opts, vnorm),
                                      .def = 1},
                                     {.name = "epsilon",
                                      .help = "added to the attention before it is multiplied with the norm",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct wnw__expected_opts, epsilon),
                                      .def = 0,
                                      .min = 0,
                                      .max = 1},
                                     {.name = "stats",
                                      .help = "queries of the prompt, or of a calibration profile",
                                      .type = WNW_OPT_ENUM,
                                      .offset = offsetof(struct wnw__expected_opts, stats),
                                      .def = WNW_STATS_PROMPT,
                                      .choices = stats_choices},
                                     {0}};

const wnw_scorer wnw__scorer_expected_attention = {
    .part = {WNW_SCORER_INIT, .name = "expected_attention",
             .about =
                 "Attention that queries of future positions are expected to give, times the value's norm.",
             .paper = "Expected Attention, arXiv 2510.00636",
             .details =
                 "With mean `mu` and covariance `C` of a head's queries before RoPE and `R`, RoPE averaged "
                 "over "
                 "the next `n_future` positions: `z_c = k_c . R mu / sqrt(d) + k_c^T R C R^T k_c / (2 d)`, "
                 "`p = softmax(z)` after the sinks, `score_c = (mean of p_c over the group + epsilon) "
                 "||v_c||`."
                 "\n\n"
                 "Deviations: `R` is computed in closed form. Scaling of RoPE's magnitude (YaRN) is not "
                 "seen.\n\n"
                 "Cost: O(n d^2) per query head.",
             .options = options, .options_size = sizeof(struct wnw__expected_opts),
             .flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_ATTENTION, .needs = needs, .keep = keep},
    .scratch = scratch_size,
    .score = score,
};
