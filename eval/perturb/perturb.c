/* SPDX-License-Identifier: MIT */
/* The numbers of the perturbation study. After section 5 of "CriticalKV" (arXiv 2502.03805): means over texts for each
 * head, and the share of heads in which a method's mean is lower. */
#include "eval/perturb/perturb.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const levels[] = {"heads", "groups", "layers", "states"};
static const char *const bounds[] = {"sigma_first", "change", "theta_hat", "theta_hat_attention",
                                     "theta_relax"};

const char *eval_level_name(enum eval_level level)
{
    return levels[level];
}

const char *eval_bound_name(enum eval_bound bound)
{
    return bounds[bound];
}

/* ---- Room ---- */

int32_t eval_level_units(const struct eval_perturb *p, enum eval_level level)
{
    return p->n_layer * (level == EVAL_HEADS ? p->n_head : level == EVAL_GROUPS ? p->n_head_kv : 1);
}

bool eval_perturb_open(struct eval_perturb *p, int32_t cap_texts)
{
    const size_t n_size = (size_t)p->n_sizes, n_each = n_size * (size_t)p->n_policies,
                 n_text = (size_t)cap_texts;
    bool good = true;
    p->cap_texts = cap_texts;
    p->n_texts = 0;
    p->sliding = calloc((size_t)p->n_layer + 1, sizeof *p->sliding);
    p->kept = calloc(n_each + 1, sizeof *p->kept);
    p->first = calloc(n_each * n_text * (size_t)eval_level_units(p, EVAL_HEADS) + 1, sizeof *p->first);
    for (int i = 0; i < EVAL_N_LEVELS; i++) {
        p->change[i] =
            calloc(n_each * n_text * (size_t)eval_level_units(p, (enum eval_level)i) + 1, sizeof **p->change);
        good = good && p->change[i];
    }
    for (int i = 0; i < EVAL_N_BOUNDS; i++) {
        p->bound[i] =
            calloc(n_size * n_text * (size_t)eval_level_units(p, EVAL_HEADS) + 1, sizeof **p->bound);
        good = good && p->bound[i];
    }
    return good && p->sliding && p->kept && p->first;
}

void eval_perturb_clear(struct eval_perturb *p)
{
    for (int i = 0; i < EVAL_N_LEVELS; i++)
        free(p->change[i]);
    for (int i = 0; i < EVAL_N_BOUNDS; i++)
        free(p->bound[i]);
    free(p->sliding);
    free(p->kept);
    free(p->first);
    *p = (struct eval_perturb){0};
}

double *eval_perturb_at(const struct eval_perturb *p, enum eval_level level, int32_t size, int32_t policy,
                        int32_t text)
{
    const size_t row =
        ((size_t)size * (size_t)p->n_policies + (size_t)policy) * (size_t)p->cap_texts + (size_t)text;
    return p->change[level] + row * (size_t)eval_level_units(p, level);
}

double *eval_bound_at(const struct eval_perturb *p, enum eval_bound bound, int32_t size, int32_t text)
{
    const size_t row = (size_t)size * (size_t)p->cap_texts + (size_t)text;
    return p->bound[bound] + row * (size_t)eval_level_units(p, EVAL_HEADS);
}

double *eval_first_at(const struct eval_perturb *p, int32_t size, int32_t policy, int32_t text)
{
    const size_t row =
        ((size_t)size * (size_t)p->n_policies + (size_t)policy) * (size_t)p->cap_texts + (size_t)text;
    return p->first + row * (size_t)eval_level_units(p, EVAL_HEADS);
}

bool eval_perturb_counts(const struct eval_perturb *p, enum eval_level level, int32_t unit)
{
    return level == EVAL_STATES || !p->sliding[unit / (eval_level_units(p, level) / p->n_layer)];
}

/* ---- A policy next to the base ---- */

double eval_perturb_mean(const struct eval_perturb *p, enum eval_level level, int32_t size, int32_t policy,
                         int32_t unit)
{
    double sum = 0;
    for (int32_t i = 0; i < p->n_texts; i++)
        sum += eval_perturb_at(p, level, size, policy, i)[unit];
    return p->n_texts > 0 ? sum / p->n_texts : NAN;
}

/* The share of units whose sum over drawn texts is below 0; sum[n_units] is scratch. */
static double drawn_share(const double *d, int32_t n_texts, int32_t n_units, struct eval_random *r,
                          double *sum)
{
    int32_t n = 0;
    memset(sum, 0, (size_t)n_units * sizeof *sum);
    for (int32_t i = 0; i < n_texts; i++) {
        const double *row = d + eval_random_below(r, (uint64_t)n_texts) * (uint64_t)n_units;
        for (int32_t u = 0; u < n_units; u++)
            sum[u] += row[u];
    }
    for (int32_t u = 0; u < n_units; u++)
        n += sum[u] < 0;
    return (double)n / n_units;
}

bool eval_share_below(struct eval_interval *over, const double *d, int32_t n_texts, int32_t n_units,
                      struct eval_random *r)
{
    *over = (struct eval_interval){NAN, NAN};
    if (n_texts < EVAL_BOOT_LEAST || n_units < 1)
        return true;
    double *shares = malloc(((size_t)EVAL_BOOT_ROUNDS + (size_t)n_units) * sizeof *shares);
    if (!shares)
        return false;
    for (int i = 0; i < EVAL_BOOT_ROUNDS; i++)
        shares[i] = drawn_share(d, n_texts, n_units, r, shares + EVAL_BOOT_ROUNDS);
    *over = eval_rounds_interval(shares);
    free(shares);
    return true;
}

/* Adds the means over the texts to *out, and writes differences of the units that count to d[n_texts][out->n]. */
static void gather(struct eval_against_base *out, double *d, const struct eval_perturb *p,
                   enum eval_level level, int32_t size, int32_t policy)
{
    const int32_t n_units = eval_level_units(p, level);
    int32_t at = 0, n_geo = 0;
    for (int32_t u = 0; u < n_units; u++)
        out->n += eval_perturb_counts(p, level, u);
    for (int32_t u = 0; u < n_units; u++) {
        if (!eval_perturb_counts(p, level, u))
            continue;
        double sum = 0;
        for (int32_t i = 0; i < p->n_texts; i++) {
            const double base = eval_perturb_at(p, level, size, 0, i)[u];
            const double other = eval_perturb_at(p, level, size, policy, i)[u];
            d[(size_t)i * (size_t)out->n + (size_t)at] = other - base;
            sum += other - base;
            out->base += base / p->n_texts / out->n;
            out->other += other / p->n_texts / out->n;
        }
        out->n_lower += sum < 0;
        at++;
        const double base = eval_perturb_mean(p, level, size, 0, u), other = base + sum / p->n_texts;
        if (base > 0 && other > 0) {
            out->geo_base += log(base);
            out->geo_other += log(other);
            n_geo++;
        }
    }
    out->geo_base = n_geo > 0 ? exp(out->geo_base / n_geo) : NAN;
    out->geo_other = n_geo > 0 ? exp(out->geo_other / n_geo) : NAN;
}

bool eval_perturb_beside(struct eval_against_base *out, const struct eval_perturb *p, enum eval_level level,
                         int32_t size, int32_t policy, uint64_t seed)
{
    char key[128], of_pair[64];
    *out = (struct eval_against_base){.over = {NAN, NAN}};
    double *d = malloc(((size_t)p->n_texts * (size_t)eval_level_units(p, level) + 1) * sizeof *d);
    if (!d)
        return false;
    gather(out, d, p, level, size, policy);
    snprintf(of_pair, sizeof of_pair, "%s %d", levels[level], (int)policy);
    eval_boot_key(key, sizeof key, "perturbation", size, of_pair, seed);
    struct eval_random r = eval_random_key(key);
    const bool good = eval_share_below(&out->over, d, p->n_texts, out->n, &r);
    free(d);
    return good;
}

/* ---- The first stage ---- */

const double eval_strata[EVAL_N_STRATA + 1] = {0, 0.5, 0.7, 0.9, 1};

static int stratum_of(double share)
{
    int i = 0;
    while (i < EVAL_N_STRATA - 1 && share > eval_strata[i + 1])
        i++;
    return i;
}

/* Adds a head's change in one text; n_geo counts those with a ratio. */
static void add_change(struct eval_stratum *s, int64_t *n_geo, double base, double other)
{
    s->n++;
    s->n_lower += other < base;
    s->base += base;
    s->other += other;
    if (base > 0 && other > 0) {
        s->ratio += log(other / base);
        ++*n_geo;
    }
}

struct eval_stage eval_perturb_stage(const struct eval_perturb *p, int32_t size, int32_t policy)
{
    struct eval_stage t = {0};
    const int32_t n_units = eval_level_units(p, EVAL_HEADS);
    int64_t n_later = 0, n_holds = 0, n_holds_later = 0, n_geo[EVAL_N_STRATA] = {0};
    for (int32_t i = 0; i < p->n_texts; i++)
        for (int32_t u = 0; u < n_units; u++) {
            const double share = eval_first_at(p, size, policy, i)[u];
            if (!eval_perturb_counts(p, EVAL_HEADS, u) || isnan(share))
                continue;
            const bool later = u >= p->n_head, holds = share > 0.5;
            const int s = stratum_of(share);
            t.n++;
            n_later += later;
            n_holds += holds;
            n_holds_later += holds && later;
            add_change(&t.of[s], &n_geo[s], eval_perturb_at(p, EVAL_HEADS, size, 0, i)[u],
                       eval_perturb_at(p, EVAL_HEADS, size, policy, i)[u]);
        }
    for (int s = 0; s < EVAL_N_STRATA; s++) {
        const double n = (double)t.of[s].n;
        t.of[s].base = n > 0 ? t.of[s].base / n : NAN;
        t.of[s].other = n > 0 ? t.of[s].other / n : NAN;
        t.of[s].ratio = n_geo[s] > 0 ? exp(t.of[s].ratio / (double)n_geo[s]) : NAN;
    }
    t.holds = t.n > 0 ? (double)n_holds / (double)t.n : NAN;
    t.holds_behind_0 = n_later > 0 ? (double)n_holds_later / (double)n_later : NAN;
    return t;
}

/* ---- Bounds ---- */

struct eval_tightness eval_perturb_tightness(const struct eval_perturb *p, int32_t size)
{
    struct eval_tightness t = {0};
    const int32_t n_units = eval_level_units(p, EVAL_HEADS);
    int64_t n = 0, n_later = 0, n_holds = 0, n_holds_later = 0;
    for (int32_t i = 0; i < p->n_texts; i++)
        for (int32_t u = 0; u < n_units; u++) {
            if (!eval_perturb_counts(p, EVAL_HEADS, u))
                continue;
            const bool later = u >= p->n_head, holds = eval_bound_at(p, EVAL_B_SIGMA, size, i)[u] > 0.5;
            n++;
            n_later += later;
            n_holds += holds;
            n_holds_later += holds && later;
            for (int k = 0; holds && k < EVAL_N_BOUNDS; k++)
                t.mean[k] += eval_bound_at(p, (enum eval_bound)k, size, i)[u];
        }
    for (int k = 0; k < EVAL_N_BOUNDS; k++)
        t.mean[k] = n_holds > 0 ? t.mean[k] / (double)n_holds : NAN;
    t.holds = n > 0 ? (double)n_holds / (double)n : NAN;
    t.holds_behind_0 = n_later > 0 ? (double)n_holds_later / (double)n_later : NAN;
    return t;
}
