/* SPDX-License-Identifier: MIT */
/* The numbers of the perturbation study. After section 5 of "CriticalKV" (arXiv 2502.03805): means over texts for each
 * head, and the share of heads in which a method's mean is lower. */
#include "perturb/numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const levels[] = {"heads", "groups", "layers", "states"};
static const char *const bounds[] = {"sigma_first", "change", "theta_hat", "theta_hat_attention",
                                     "theta_relax"};

const char *perturb_level_name(enum perturb_level level)
{
    return levels[level];
}

const char *perturb_bound_name(enum perturb_bound bound)
{
    return bounds[bound];
}

/* ---- Room ---- */

int32_t perturb_level_units(const struct perturb_numbers *p, enum perturb_level level)
{
    if (level == PERTURB_HEADS)
        return p->n_layer * p->n_head;
    return p->n_layer * (level == PERTURB_GROUPS ? p->n_head_kv : 1);
}

bool perturb_numbers_open(struct perturb_numbers *p)
{
    const size_t n_each = (size_t)p->n_sizes * (size_t)p->n_policies;
    p->n_texts = p->cap_texts = 0;
    p->sliding = calloc((size_t)p->n_layer + 1, sizeof *p->sliding);
    p->kept = calloc(n_each + 1, sizeof *p->kept);
    return p->sliding && p->kept;
}

/* Gives *list room for n texts, of n_each numbers that begin as zeros, where it has n_old. false: out of memory; it stays then. */
static bool widen(double **list, size_t n_old, size_t n, size_t n_each)
{
    double *grown = n_each > 0 && n > SIZE_MAX / n_each - 1 ? NULL : calloc(n * n_each + 1, sizeof *grown);
    if (!grown)
        return false;
    if (*list)
        memcpy(grown, *list, n_old * n_each * sizeof *grown);
    free(*list);
    *list = grown;
    return true;
}

bool perturb_numbers_reserve(struct perturb_numbers *p, int32_t n_texts)
{
    const size_t n_size = (size_t)p->n_sizes, n_each = n_size * (size_t)p->n_policies,
                 n_heads = (size_t)perturb_level_units(p, PERTURB_HEADS), n_old = (size_t)p->cap_texts;
    if (n_texts <= p->cap_texts)
        return true;
    const int32_t twice = p->cap_texts > INT32_MAX / 2 ? INT32_MAX : 2 * p->cap_texts;
    const size_t n = (size_t)(n_texts > twice ? n_texts : twice);
    bool good = widen(&p->first, n_old, n, n_each * n_heads);
    for (int i = 0; good && i < PERTURB_N_LEVELS; i++)
        good = widen(&p->change[i], n_old, n, n_each * (size_t)perturb_level_units(p, (enum perturb_level)i));
    for (int i = 0; good && i < PERTURB_N_BOUNDS; i++)
        good = widen(&p->bound[i], n_old, n, n_size * n_heads);
    if (good)
        p->cap_texts = (int32_t)n;
    return good;
}

void perturb_numbers_clear(struct perturb_numbers *p)
{
    for (int i = 0; i < PERTURB_N_LEVELS; i++)
        free(p->change[i]);
    for (int i = 0; i < PERTURB_N_BOUNDS; i++)
        free(p->bound[i]);
    free(p->sliding);
    free(p->kept);
    free(p->first);
    *p = (struct perturb_numbers){0};
}

/* The number of a text at a size among all of them, and of a policy there. */
static size_t index_of(const struct perturb_numbers *p, int32_t size, int32_t text)
{
    return (size_t)text * (size_t)p->n_sizes + (size_t)size;
}

static size_t policy_index(const struct perturb_numbers *p, int32_t size, int32_t policy, int32_t text)
{
    return index_of(p, size, text) * (size_t)p->n_policies + (size_t)policy;
}

double *perturb_changes(const struct perturb_numbers *p, enum perturb_level level, int32_t size,
                        int32_t policy, int32_t text)
{
    return p->change[level] + policy_index(p, size, policy, text) * (size_t)perturb_level_units(p, level);
}

double *perturb_bounds(const struct perturb_numbers *p, enum perturb_bound bound, int32_t size, int32_t text)
{
    return p->bound[bound] + index_of(p, size, text) * (size_t)perturb_level_units(p, PERTURB_HEADS);
}

double *perturb_first(const struct perturb_numbers *p, int32_t size, int32_t policy, int32_t text)
{
    return p->first + policy_index(p, size, policy, text) * (size_t)perturb_level_units(p, PERTURB_HEADS);
}

bool perturb_counts(const struct perturb_numbers *p, enum perturb_level level, int32_t unit)
{
    return level == PERTURB_STATES || !p->sliding[unit / (perturb_level_units(p, level) / p->n_layer)];
}

/* ---- A policy next to the base ---- */

double perturb_mean(const struct perturb_numbers *p, enum perturb_level level, int32_t size, int32_t policy,
                    int32_t unit)
{
    double sum = 0;
    for (int32_t i = 0; i < p->n_texts; i++)
        sum += perturb_changes(p, level, size, policy, i)[unit];
    return p->n_texts > 0 ? sum / p->n_texts : NAN;
}

/* Sums of both policies over the texts that one round draws, for each unit; base[n_units] and other[n_units] get them. */
static void draw(double *base, double *other, const struct perturb_pairs *p, struct eval_random *r)
{
    memset(base, 0, (size_t)p->n_units * sizeof *base);
    memset(other, 0, (size_t)p->n_units * sizeof *other);
    for (int32_t i = 0; i < p->n_texts; i++) {
        const size_t first = (size_t)eval_random_below(r, (uint64_t)p->n_texts) * (size_t)p->n_units;
        const double *of_base = p->base + first, *of_other = p->other + first;
        for (int32_t u = 0; u < p->n_units; u++) {
            base[u] += of_base[u];
            other[u] += of_other[u];
        }
    }
}

/* What sums, or means, of units say of both policies. */
struct compared {
    int32_t n_lower;    /* units with less than the base */
    double base, other; /* means over units */
    double change;      /* of these means */
    double geo_base, geo_other,
        geometric; /* geometric means over units where both are above 0, and their change */
};

static struct compared compare(const double *base, const double *other, int32_t n_units)
{
    struct compared c = {0};
    int32_t n_geo = 0;
    for (int32_t u = 0; u < n_units; u++) {
        const bool positive = base[u] > 0 && other[u] > 0;
        c.base += base[u] / n_units;
        c.other += other[u] / n_units;
        c.n_lower += other[u] < base[u];
        c.geo_base += positive ? log(base[u]) : 0;
        c.geo_other += positive ? log(other[u]) : 0;
        n_geo += positive;
    }
    c.change = c.base > 0 ? c.other / c.base - 1 : 0;
    c.geometric = n_geo > 0 ? exp((c.geo_other - c.geo_base) / n_geo) - 1 : 0;
    c.geo_base = n_geo > 0 ? exp(c.geo_base / n_geo) : NAN;
    c.geo_other = n_geo > 0 ? exp(c.geo_other / n_geo) : NAN;
    return c;
}

bool perturb_intervals(struct perturb_over *over, const struct perturb_pairs *p, struct eval_random *r)
{
    const size_t n_units = (size_t)p->n_units, n_rounds = EVAL_BOOT_ROUNDS;
    *over = (struct perturb_over){{NAN, NAN}, {NAN, NAN}, {NAN, NAN}};
    if (p->n_texts < EVAL_BOOT_LEAST || p->n_units < 1)
        return true;
    double *lower = malloc((3 * n_rounds + 2 * n_units) * sizeof *lower);
    if (!lower)
        return false;
    double *change = lower + n_rounds, *geometric = change + n_rounds, *sum = geometric + n_rounds;
    for (size_t i = 0; i < n_rounds; i++) {
        draw(sum, sum + n_units, p, r);
        const struct compared c = compare(sum, sum + n_units, p->n_units);
        lower[i] = (double)c.n_lower / p->n_units;
        change[i] = c.change;
        geometric[i] = c.geometric;
    }
    over->lower = eval_rounds_interval(lower);
    over->change = eval_rounds_interval(change);
    over->geometric = eval_rounds_interval(geometric);
    free(lower);
    return true;
}

/* Units that count. */
static int32_t count_units(const struct perturb_numbers *p, enum perturb_level level)
{
    int32_t n = 0;
    for (int32_t u = 0; u < perturb_level_units(p, level); u++)
        n += perturb_counts(p, level, u);
    return n;
}

/* Writes the changes of the n units that count: [n_texts][n] under a policy, then their means [n] over the texts. */
static void gather(double *out, int32_t n, const struct perturb_numbers *p, enum perturb_level level,
                   int32_t size, int32_t policy)
{
    int32_t n_done = 0;
    for (int32_t u = 0; u < perturb_level_units(p, level); u++) {
        if (!perturb_counts(p, level, u))
            continue;
        for (int32_t i = 0; i < p->n_texts; i++)
            out[(size_t)i * (size_t)n + (size_t)n_done] = perturb_changes(p, level, size, policy, i)[u];
        out[(size_t)p->n_texts * (size_t)n + (size_t)n_done++] = perturb_mean(p, level, size, policy, u);
    }
}

bool perturb_beside(struct perturb_beside_base *out, const struct perturb_numbers *p,
                    enum perturb_level level, int32_t size, int32_t policy, uint64_t seed)
{
    char key[128], of_pair[64];
    const int32_t n = count_units(p, level);
    const size_t n_changes = (size_t)p->n_texts * (size_t)n, n_each = n_changes + (size_t)n;
    *out = (struct perturb_beside_base){.n = n, .over = {{NAN, NAN}, {NAN, NAN}, {NAN, NAN}}};
    double *base = malloc((2 * n_each + 1) * sizeof *base), *other = base + n_each;
    if (!base)
        return false;
    gather(base, n, p, level, size, 0);
    gather(other, n, p, level, size, policy);
    const struct compared c = compare(base + n_changes, other + n_changes, n);
    out->base = c.base;
    out->other = c.other;
    out->geo_base = c.geo_base;
    out->geo_other = c.geo_other;
    out->n_lower = c.n_lower;
    snprintf(of_pair, sizeof of_pair, "%s %d", levels[level], (int)policy);
    eval_boot_key(key, sizeof key, "perturbation", size, of_pair, seed);
    struct eval_random r = eval_random_key(key);
    const struct perturb_pairs pairs = {.base = base, .other = other, .n_texts = p->n_texts, .n_units = n};
    const bool good = perturb_intervals(&out->over, &pairs, &r);
    free(base);
    return good;
}

/* ---- What a first stage holds ---- */

/* Counts heads by how much of the token's attention is in a first stage. */
struct held {
    int64_t n, n_later, n_holds, n_holds_later; /* later: after layer 0; holds: more than half */
};

/* Counts a head; returns whether the stage holds more than half. */
static bool add_held(struct held *h, const struct perturb_numbers *p, int32_t head, double share)
{
    const bool later = head >= p->n_head, holds = share > 0.5;
    h->n++;
    h->n_later += later;
    h->n_holds += holds;
    h->n_holds_later += holds && later;
    return holds;
}

static double mean_of(double sum, int64_t n)
{
    return n > 0 ? sum / (double)n : NAN;
}

/* ---- The first stage ---- */

const double perturb_strata[PERTURB_N_STRATA + 1] = {0, 0.5, 0.7, 0.9, 1};

static int stratum_of(double share)
{
    int i = 0;
    while (i < PERTURB_N_STRATA - 1 && share > perturb_strata[i + 1])
        i++;
    return i;
}

/* Adds a head's change in one text; n_geo counts those with a ratio. */
static void add_change(struct perturb_stratum *s, int64_t *n_geo, double base, double other)
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

struct perturb_stage perturb_stage(const struct perturb_numbers *p, int32_t size, int32_t policy)
{
    struct perturb_stage t = {0};
    const int32_t n_units = perturb_level_units(p, PERTURB_HEADS);
    struct held held = {0};
    int64_t n_geo[PERTURB_N_STRATA] = {0};
    for (int32_t i = 0; i < p->n_texts; i++)
        for (int32_t u = 0; u < n_units; u++) {
            const double share = perturb_first(p, size, policy, i)[u];
            if (!perturb_counts(p, PERTURB_HEADS, u) || isnan(share))
                continue;
            const int s = stratum_of(share);
            add_held(&held, p, u, share);
            add_change(&t.of[s], &n_geo[s], perturb_changes(p, PERTURB_HEADS, size, 0, i)[u],
                       perturb_changes(p, PERTURB_HEADS, size, policy, i)[u]);
        }
    for (int s = 0; s < PERTURB_N_STRATA; s++) {
        t.of[s].base = mean_of(t.of[s].base, t.of[s].n);
        t.of[s].other = mean_of(t.of[s].other, t.of[s].n);
        t.of[s].ratio = exp(mean_of(t.of[s].ratio, n_geo[s]));
    }
    t.n = held.n;
    t.holds = mean_of((double)held.n_holds, held.n);
    t.holds_behind_0 = mean_of((double)held.n_holds_later, held.n_later);
    return t;
}

/* ---- Bounds ---- */

struct perturb_tightness perturb_tightness(const struct perturb_numbers *p, int32_t size)
{
    struct perturb_tightness t = {0};
    const int32_t n_units = perturb_level_units(p, PERTURB_HEADS);
    struct held held = {0};
    for (int32_t i = 0; i < p->n_texts; i++)
        for (int32_t u = 0; u < n_units; u++) {
            if (!perturb_counts(p, PERTURB_HEADS, u))
                continue;
            const bool holds = add_held(&held, p, u, perturb_bounds(p, PERTURB_B_SIGMA, size, i)[u]);
            for (int k = 0; holds && k < PERTURB_N_BOUNDS; k++)
                t.mean[k] += perturb_bounds(p, (enum perturb_bound)k, size, i)[u];
        }
    for (int k = 0; k < PERTURB_N_BOUNDS; k++)
        t.mean[k] = mean_of(t.mean[k], held.n_holds);
    t.holds = mean_of((double)held.n_holds, held.n);
    t.holds_behind_0 = mean_of((double)held.n_holds_later, held.n_later);
    return t;
}
