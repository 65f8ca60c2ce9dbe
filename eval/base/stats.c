/* SPDX-License-Identifier: MIT */
/* Intervals, tests and curves over scores. */
#include "eval/base/stats.h"

#include "base/vectors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static size_t n_clusters(const struct eval_pairs *p)
{
    return p->cluster ? p->n_clusters : p->n;
}

static size_t n_strata(const struct eval_pairs *p)
{
    return p->stratum ? p->n_strata : 1;
}

/* First cluster of stratum i, or the number of clusters if i is the number of strata. */
static size_t stratum_begin(const struct eval_pairs *p, size_t i)
{
    return p->stratum ? p->stratum[i] : i == 0 ? 0 : n_clusters(p);
}

/* Adds a cluster to a sum of differences and their number. */
static void add_cluster(double *sum, size_t *n, const struct eval_pairs *p, size_t c)
{
    const size_t begin = p->cluster ? p->cluster[c] : c, end = p->cluster ? p->cluster[c + 1] : c + 1;
    for (size_t i = begin; i < end; i++)
        *sum += p->d[i];
    *n += end - begin;
}

/* Draws one of `size` clusters from `begin` on. A stratum of one cluster has no spread of its own, as if its mean were known
 * exactly, so it draws from the clusters of all strata. */
static size_t draw_cluster(const struct eval_pairs *p, struct eval_random *r, size_t begin, size_t size)
{
    return size > 1 ? begin + eval_random_below(r, size) : eval_random_below(r, n_clusters(p));
}

/* Mean of the strata's means; of drawn clusters where r is not NULL, else of all. */
static double mean_of(const struct eval_pairs *p, struct eval_random *r)
{
    double of_strata = 0.0;
    for (size_t s = 0; s < n_strata(p); s++) {
        const size_t begin = stratum_begin(p, s), size = stratum_begin(p, s + 1) - begin;
        /* Of few clusters as many draws vary less than the mean does, with two by the square root of a half; one draw
         * fewer varies as much. A single stratum is drawn from in full, as usual. */
        const size_t n_draw = r && n_strata(p) > 1 && size > 1 ? size - 1 : size;
        double sum = 0.0;
        size_t n = 0;
        for (size_t k = 0; k < n_draw; k++)
            add_cluster(&sum, &n, p, r ? draw_cluster(p, r, begin, size) : begin + k);
        of_strata += n > 0 ? sum / (double)n : 0.0;
    }
    return of_strata / (double)n_strata(p);
}

struct eval_interval eval_rounds_interval(double rounds[EVAL_BOOT_ROUNDS])
{
    qsort(rounds, EVAL_BOOT_ROUNDS, sizeof *rounds, wnw__ascending_f64);
    return (struct eval_interval){rounds[EVAL_BOOT_ROUNDS / 40],
                                  rounds[EVAL_BOOT_ROUNDS - EVAL_BOOT_ROUNDS / 40 - 1]};
}

bool eval_bootstrap(struct eval_paired *out, const struct eval_pairs *p, struct eval_random *r)
{
    bool same = true;
    *out = (struct eval_paired){.delta = NAN, .over = {NAN, NAN}, .spread = EVAL_SPREAD_FEW};
    if (p->n == 0)
        return true;
    out->delta = mean_of(p, NULL);
    if (n_clusters(p) < EVAL_BOOT_LEAST)
        return true;
    for (size_t i = 1; i < p->n; i++)
        same = same && p->d[i] == p->d[0];
    if (same) {
        out->over = (struct eval_interval){out->delta, out->delta};
        out->spread = EVAL_SPREAD_NONE;
        return true;
    }
    double *means = malloc(EVAL_BOOT_ROUNDS * sizeof *means);
    if (!means)
        return false;
    for (int b = 0; b < EVAL_BOOT_ROUNDS; b++)
        means[b] = mean_of(p, r);
    out->over = eval_rounds_interval(means);
    out->spread = EVAL_SPREAD_OK;
    free(means);
    return true;
}

void eval_boot_key(char *out, size_t size, const char *task, int64_t n, const char *config, uint64_t seed)
{
    snprintf(out, size, "boot|%s|%lld|%s|%llu", task, (long long)n, config, (unsigned long long)seed);
}

const char *eval_verdict(const struct eval_paired *p)
{
    /* Where all of six or more differences are the same and not 0, a sign test has p <= 2^-5. */
    return p->spread == EVAL_SPREAD_FEW ? "~" : p->over.lo > 0 ? "+" : p->over.hi < 0 ? "-" : "~";
}

struct eval_interval eval_wilson(int64_t k, int64_t n)
{
    static const double z = 1.959963984540054; /* 97.5 % of the normal distribution */
    if (n < 1)
        return (struct eval_interval){NAN, NAN};
    const double size = (double)n, share = (double)k / size, z2 = z * z;
    const double mid = (share + z2 / (2 * size)) / (1 + z2 / size);
    const double half = z * sqrt(share * (1 - share) / size + z2 / (4 * size * size)) / (1 + z2 / size);
    /* For k = 0 and k = n one bound is exactly 0 or 1, which rounding would miss. */
    return (struct eval_interval){k == 0 ? 0.0 : mid - half, k == n ? 1.0 : mid + half};
}

/* Logarithm of the binomial coefficient (n over k) times 2^-n. */
static double log_binomial(int64_t n, int64_t k)
{
    int sign; /* lgamma would write the sign to a variable that all threads share */
    return lgamma_r((double)n + 1, &sign) - lgamma_r((double)k + 1, &sign) -
           lgamma_r((double)(n - k) + 1, &sign) - (double)n * M_LN2;
}

double eval_sign_test(int64_t lost, int64_t gained)
{
    const int64_t n = lost + gained, few = lost < gained ? lost : gained;
    double sum = 0.0;
    for (int64_t i = 0; i <= few; i++)
        sum += exp(log_binomial(n, i));
    return 2 * sum < 1.0 ? 2 * sum : 1.0;
}

double eval_auc(const double *r, const double *s, size_t n, bool to_one)
{
    double area = 0.0;
    if (n + to_one < 2)
        return NAN;
    for (size_t i = 1; i < n; i++)
        area += (r[i] - r[i - 1]) * (s[i] + s[i - 1]) / 2;
    if (to_one)
        area += (1.0 - r[n - 1]) * s[n - 1] / 2;
    return area / ((to_one ? 1.0 : r[n - 1]) - r[0]);
}

double eval_tolerance(const double *r, const double *loss, size_t n, double eps0)
{
    for (size_t i = 0; i < n; i++) {
        if (loss[i] < eps0)
            continue;
        return i == 0 ? r[0] : r[i - 1] + (r[i] - r[i - 1]) * (eps0 - loss[i - 1]) / (loss[i] - loss[i - 1]);
    }
    return INFINITY;
}

double eval_loss(double full, double s)
{
    return full > 0 ? (full - s) / full : NAN;
}

double eval_retention(double full, double s)
{
    return full > 0 ? 100.0 * s / full : NAN;
}

double eval_half_width(double q, int64_t n)
{
    return 100.0 * 1.96 * sqrt(q / (double)n);
}
