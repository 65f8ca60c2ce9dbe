/* SPDX-License-Identifier: MIT */
/*
 * TriAttention: what coming queries will give a key by its distance alone, from the statistics of a head's queries on any
 * text. Paper: "TriAttention" (arXiv 2604.04921), made for long answers (--evict-every). Before RoPE pair f of a query is a
 * complex number q_f with mean m_f and mean length a_f, that of a key k_f; r is the next position, the key's is p, D = {1, 2,
 * 4, .., 65536}:
 *
 *     S(k) = mean over delta in D of sum_f |m_f| |k_f| cos(w_f (r - p + delta) + arg(m_f conj k_f))
 *            + sum_f (a_f - |m_f|) |k_f|;
 *     S(k) = sum_f Re(m_f e^{i w_f r} c_f conj(k_f e^{i w_f p})) + sum_f (a_f - |m_f|) |k_f|,   c_f = mean e^{i w_f delta}
 *
 * In the second form the cached key, which is turned to p already, is multiplied by one vector of a head. Elements that RoPE
 * leaves alone count with plain m . k. The scores of a query head are brought to mean 0 and variance 1 over its entries, and a
 * KV head takes the largest of its group. Factors of RoPE's magnitude (YaRN) are not seen.
 *
 * a_f is that of normally distributed queries with the mean and covariance of the profile of kind stats, or of the prompt:
 * E |q| = (pi / 2) mean over phi in 0 .. pi of E |q . u(phi)|, u a unit vector, and a projection of q is normal, whose mean
 * absolute value is known. Observes keys; with stats=prompt statistics of queries. Range: about -4..4. Cost O(d) per entry
 * and query head.
 */
#include "kernel/kernel.h"
#include "method/mean_rope.h"
#include "method/window.h"
#include "policy/part.h"
#include "profile/profile.h"
#include "score/score.h"
#include "winnow_calibrate.h"

#include <math.h>

enum { N_OFFSETS = 17 /* 2^0 .. 2^16 */, N_ANGLES = 32 };
#define PI 3.14159265358979323846

struct opts {
    int32_t n_sink, recent, stats;
};

static void needs(const void *opts, wnw_needs *out)
{
    const struct opts *o = opts;
    const bool profile = o->stats == WNW_STATS_PROFILE;
    out->flags = WNW_NEED_KEYS | WNW_NEED_ROPE | (profile ? WNW_NEED_PROFILE : WNW_NEED_QUERY_STATS);
    out->skip = o->n_sink;
    out->profiles = profile ? 1u << WNW_PROFILE_STATS : 0;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct opts *o = opts;
    (void)p;
    out->n_first = o->n_sink;
    out->n_last = o->recent;
}

/* Scratch holds a head's vector q[d], the factors of lengths [d / 2], and lengths of the keys' pairs [n][d / 2]. */
static size_t scratch_size(const void *opts, const wnw_observation *obs)
{
    const size_t d = (size_t)obs->n_embd_head;
    (void)opts;
    return d + d / 2 + (size_t)obs->n * (d / 2);
}

/* The two elements of pair i. */
static void pair_of(const wnw_observation *obs, int32_t i, int32_t *a, int32_t *b)
{
    *a = obs->rope_neox ? i : 2 * i;
    *b = obs->rope_neox ? i + obs->n_rot / 2 : 2 * i + 1;
}

/* Mean absolute value of a normal number. */
static double folded(double mean, double variance)
{
    if (!(variance > 0))
        return fabs(mean);
    const double sd = sqrt(variance);
    return sd * sqrt(2 / PI) * exp(-mean * mean / (2 * variance)) + mean * erf(mean / (sd * sqrt(2)));
}

/* Mean length of a normal vector of two elements. The integrand has period pi, so that equal steps converge fast. */
static double mean_length(const double m[2], const double c[3])
{
    double sum = 0;
    for (int i = 0; i < N_ANGLES; i++) {
        const double u = cos(PI * i / N_ANGLES), v = sin(PI * i / N_ANGLES);
        sum += folded(m[0] * u + m[1] * v, c[0] * u * u + 2 * c[1] * u * v + c[2] * v * v);
    }
    return PI / 2 * sum / N_ANGLES;
}

/* c_f. */
static struct wnw__turn mean_offset(double theta)
{
    struct wnw__turn t = {0};
    for (int i = 0; i < N_OFFSETS; i++) {
        t.c += cos(theta * (1 << i)) / N_OFFSETS;
        t.s += sin(theta * (1 << i)) / N_OFFSETS;
    }
    return t;
}

/* Fills q[d] with m_f e^{i w_f r} c_f and rest[n_rot / 2] with a_f - |m_f|. */
static void look_ahead(const wnw_observation *obs, const float *mean, const float *cov, float *q, float *rest)
{
    const int32_t d = obs->n_embd_head;
    for (int32_t c = 0; c < d; c++)
        q[c] = mean[c];
    for (int32_t i = 0; i < obs->n_rot / 2; i++) {
        int32_t a, b;
        pair_of(obs, i, &a, &b);
        const double theta = (double)obs->rope_theta[i], m[] = {(double)mean[a], (double)mean[b]};
        const double co[] = {(double)cov[(int64_t)a * d + a], (double)cov[(int64_t)a * d + b],
                             (double)cov[(int64_t)b * d + b]};
        const struct wnw__turn t = mean_offset(theta), r = wnw__mean_turn(theta, obs->n_past, 1);
        const double x = t.c * r.c - t.s * r.s, y = t.c * r.s + t.s * r.c;
        q[a] = (float)(m[0] * x - m[1] * y);
        q[b] = (float)(m[0] * y + m[1] * x);
        rest[i] = (float)(mean_length(m, co) - sqrt(m[0] * m[0] + m[1] * m[1]));
    }
}

static void pair_lengths(const wnw_observation *obs, const float *k, int32_t n, float *length)
{
    const int32_t n_pair = obs->n_rot / 2;
    for (int32_t i = 0; i < n; i++, k += obs->n_embd_head)
        for (int32_t f = 0; f < n_pair; f++) {
            int32_t a, b;
            pair_of(obs, f, &a, &b);
            length[(int64_t)i * n_pair + f] = sqrtf(k[a] * k[a] + k[b] * k[b]);
        }
}

/* Brings s[n] to mean 0 and variance 1; equal scores become 0. */
static void normalise(float *s, int32_t n)
{
    double sum = 0, square = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)s[i];
    for (int32_t i = 0; i < n; i++)
        square += ((double)s[i] - sum / n) * ((double)s[i] - sum / n);
    const double scale = square > 0 ? 1 / sqrt(square / n) : 0;
    for (int32_t i = 0; i < n; i++)
        s[i] = (float)(((double)s[i] - sum / n) * scale);
}

/* Mean [n_head][d] and covariance [n_head][d][d] of the layer's queries. */
static int stats_of(const struct opts *o, const wnw_observation *obs, const float **mean, const float **cov)
{
    const int64_t n = (int64_t)obs->n_head * obs->n_embd_head;
    const struct wnw_profile *p = obs->profile;
    *mean = obs->query_mean;
    *cov = obs->query_cov;
    if (o->stats == WNW_STATS_PROMPT)
        return WNW_OK;
    if (!p || !p->query_mean || !p->query_cov)
        return wnw__fail(WNW_E_MISMATCH, "triattention: the profile has no statistics of queries; `winnow "
                                         "calibrate stats` makes them, and "
                                         "stats=prompt takes the prompt's own");
    *mean = p->query_mean + obs->il * n;
    *cov = p->query_cov + obs->il * n * obs->n_embd_head;
    return WNW_OK;
}

static int score(const void *opts, const wnw_observation *obs, float *score, float *scratch)
{
    const int32_t d = obs->n_embd_head, group = obs->n_head / obs->n_head_kv, n_pair = obs->n_rot / 2;
    float *q = scratch, *rest = q + d, *length = rest + d / 2;
    const float *mean, *cov;
    WNW_TRY(stats_of(opts, obs, &mean, &cov));
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const int32_t n = obs->n_entry[ih];
        const float *k = obs->keys(obs, ih);
        pair_lengths(obs, k, n, length);
        for (int32_t h = ih * group; h < (ih + 1) * group; h++) {
            float *out = score + (int64_t)h * obs->n;
            if (!wnw__query_head_used(obs, h) || n == 0)
                continue;
            look_ahead(obs, mean + (int64_t)h * d, cov + (int64_t)h * d * d, q, rest);
            wnw__mul_nt(q, 1, k, n, d, 1, out, n);
            for (int32_t i = 0; i < n; i++)
                for (int32_t f = 0; f < n_pair; f++)
                    out[i] += rest[f] * length[(int64_t)i * n_pair + f];
            normalise(out, n);
        }
    }
    return WNW_OK;
}

static const char *const stats[] = {"prompt", "profile", NULL};

static const wnw_option options[] = {WNW_OPTION_N_SINK(struct opts),
                                     {.name = "recent",
                                      .help = "last entries that always stay",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, recent),
                                      .def = 0,
                                      .min = 0,
                                      .max = 65536},
                                     {.name = "stats",
                                      .help = "where mean and covariance of queries come from",
                                      .type = WNW_OPT_ENUM,
                                      .offset = offsetof(struct opts, stats),
                                      .def = WNW_STATS_PROFILE,
                                      .choices = stats},
                                     {0}};

const wnw_scorer wnw__scorer_triattention = {
    .part =
        {WNW_SCORER_INIT, .name = "triattention",
         .about = "What queries to come will give a key by its distance, from calibrated queries alone.",
         .paper = "TriAttention, arXiv 2604.04921",
         .details =
             "With `m_f` and `a_f` the mean and the mean length of pair `f` of a head's queries before RoPE, "
             "`S(k) = mean "
             "over delta of sum_f |m_f| |k_f| cos(w_f (r - p + delta) + arg(m_f conj k_f)) + sum_f (a_f - "
             "|m_f|) |k_f|`, "
             "`delta` = 1, 2, 4, .., 65536, `r` the next position, `p` the key's. Scores of a query head are "
             "brought to "
             "mean 0 and variance 1, and a KV head takes the largest of its group.\n\n"
             "Made for long answers: `--evict-every 128`. Nothing of the text's own queries is used: a "
             "profile of kind "
             "`stats` has them, or with `stats=prompt` the prompt.\n\n"
             "Deviations: `a_f` is that of normally distributed queries with the calibrated mean and "
             "covariance. The paper "
             "keeps the prompt whole; here it is compressed like the answer.\n\nCost: O(n d) per query head.",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_QUERY_HEADS | WNW_FLAG_SHRINKS, .needs = needs, .keep = keep},
    .aggregation = "group_max",
    .scratch = scratch_size,
    .score = score,
};
