/* SPDX-License-Identifier: MIT */
/* Intervals, tests and curves over scores. */
#include "eval/base/stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double z = 1.959963984540054; /* 97.5 % of the normal distribution */

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
    if (p->stratum)
        return p->stratum[i];
    if (i == 0)
        return 0;
    return n_clusters(p);
}

/* Adds a cluster to a sum of differences and their number. */
static void add_cluster(double *sum, size_t *n, const struct eval_pairs *p, size_t c)
{
    const size_t begin = p->cluster ? p->cluster[c] : c, end = p->cluster ? p->cluster[c + 1] : c + 1;
    for (size_t i = begin; i < end; i++)
        *sum += p->d[i];
    *n += end - begin;
}

/* Mean difference of a stratum, which has one at least. */
static double stratum_mean(const struct eval_pairs *p, size_t s)
{
    double sum = 0.0;
    size_t n = 0;
    for (size_t c = stratum_begin(p, s); c < stratum_begin(p, s + 1); c++)
        add_cluster(&sum, &n, p, c);
    return sum / (double)n;
}

/* Mean of the strata's means. */
static double mean_of(const struct eval_pairs *p)
{
    double of_strata = 0.0;
    for (size_t s = 0; s < n_strata(p); s++)
        of_strata += stratum_mean(p, s);
    return of_strata / (double)n_strata(p);
}

/* How clusters of a stratum are drawn: n_draw of those from `begin` on. */
struct drawing {
    struct eval_range clusters;
    size_t begin, n_draw;
};

/* Clusters as drawing adds them up, thousands of times: sum[n_clusters] of their differences, and how many these are. */
struct wholes {
    const double *sum;
    const size_t *n; /* NULL: `each` in every cluster */
    size_t each;
    double *own_sum; /* owned, as own_n */
    size_t *own_n;
};

static bool wholes_of(struct wholes *w, const struct eval_pairs *p)
{
    *w = (struct wholes){.sum = p->d, .each = 1};
    if (!p->cluster)
        return true;
    w->sum = w->own_sum = calloc(n_clusters(p) + 1, sizeof *w->own_sum);
    w->n = w->own_n = calloc(n_clusters(p) + 1, sizeof *w->own_n);
    bool equal = true;
    for (size_t c = 0; w->own_sum && w->own_n && c < n_clusters(p); c++) {
        add_cluster(&w->own_sum[c], &w->own_n[c], p, c);
        equal = equal && w->own_n[c] == w->own_n[0];
    }
    if (w->own_n && equal) {
        w->each = w->own_n[0];
        w->n = NULL;
    }
    return w->own_sum && w->own_n;
}

static void wholes_clear(struct wholes *w)
{
    free(w->own_sum);
    free(w->own_n);
}

static struct drawing drawing_of(const struct eval_pairs *p, size_t s)
{
    const size_t begin = stratum_begin(p, s), size = stratum_begin(p, s + 1) - begin;
    /* A stratum of one cluster would have no spread, as if its mean were known exactly. So it draws from the clusters of all
     * strata. */
    if (size < 2)
        return (struct drawing){eval_range_of(n_clusters(p)), 0, size};
    /* Of few clusters as many draws vary less than the mean does, with two by the square root of a half; one draw
     * fewer varies as much. A single stratum is drawn from in full, as usual. */
    return (struct drawing){eval_range_of(size), begin, n_strata(p) > 1 ? size - 1 : size};
}

/* Mean of the means of clusters that are drawn from each stratum; how[n_strata]. */
static double mean_of_drawn(const struct eval_pairs *p, const struct drawing *how, const struct wholes *w,
                            struct eval_random *r)
{
    struct eval_random own = *r; /* which stays in registers */
    double of_strata = 0.0;
    for (size_t s = 0; s < n_strata(p); s++) {
        double sum = 0.0;
        size_t n = 0;
        for (size_t k = 0; k < how[s].n_draw; k++) {
            const size_t c = how[s].begin + eval_random_within(&own, &how[s].clusters);
            sum += w->sum[c];
            if (w->n)
                n += w->n[c];
        }
        if (!w->n)
            n = how[s].n_draw * w->each;
        of_strata += n > 0 ? sum / (double)n : 0.0;
    }
    *r = own;
    return of_strata / (double)n_strata(p);
}

/* Mean of the strata of tasks that are drawn, one fewer than there are; mean[n_strata]. */
static double mean_of_tasks(const struct eval_pairs *p, const double *mean, struct eval_random *r)
{
    const struct eval_range tasks = eval_range_of(p->task ? p->n_tasks : n_strata(p));
    double sum = 0.0;
    size_t n = 0;
    for (size_t k = 0; k + 1 < tasks.n; k++) {
        const size_t t = eval_random_within(r, &tasks);
        const size_t begin = p->task ? p->task[t] : t, end = p->task ? p->task[t + 1] : t + 1;
        for (size_t s = begin; s < end; s++)
            sum += mean[s];
        n += end - begin;
    }
    return sum / (double)n;
}

/* Moves the k-th smallest of x[begin .. end) to x[k], what is not above it before it and what is not below it after it (Hoare). Two
 * places of the rounds are wanted, and sorting all of them took a third of a report's time. */
static double settle_at(double *x, size_t begin, size_t end, size_t k)
{
    while (end - begin > 1) {
        const double pivot = x[begin + (end - begin - 1) / 2];
        size_t i = begin, j = end - 1;
        for (;; i++, j--) {
            while (x[i] < pivot)
                i++;
            while (x[j] > pivot)
                j--;
            if (i >= j)
                break;
            const double t = x[i];
            x[i] = x[j];
            x[j] = t;
        }
        if (k <= j)
            end = j + 1;
        else
            begin = j + 1;
    }
    return x[k];
}

struct eval_interval eval_rounds_interval(double rounds[EVAL_BOOT_ROUNDS])
{
    const size_t lo = EVAL_BOOT_ROUNDS / 40, hi = EVAL_BOOT_ROUNDS - EVAL_BOOT_ROUNDS / 40 - 1;
    const double least = settle_at(rounds, 0, EVAL_BOOT_ROUNDS, lo);
    return (struct eval_interval){least, settle_at(rounds, lo + 1, EVAL_BOOT_ROUNDS, hi)};
}

/* What the mean may be where it is d and clusters of a stratum do not differ. So few clusters as differ unseen may have any difference. As clusters of small
 * strata weigh more, what counts is how many equal ones would scatter as much. */
static struct eval_interval unseen(const struct eval_pairs *p, double d)
{
    double of_strata = 0.0;
    if (p->least == p->most)
        return (struct eval_interval){d, d};
    for (size_t s = 0; s < n_strata(p); s++)
        of_strata += 1.0 / (double)(stratum_begin(p, s + 1) - stratum_begin(p, s));
    const double n = (double)(n_strata(p) * n_strata(p)) / of_strata, share = z * z / (n + z * z);
    return (struct eval_interval){d - share * (d - p->least), d + share * (p->most - d)};
}

static double cluster_mean(const struct eval_pairs *p, size_t c)
{
    double sum = 0.0;
    size_t n = 0;
    add_cluster(&sum, &n, p, c);
    return sum / (double)n;
}

/* Whether drawing clusters again can give another mean: they differ within a stratum, or a stratum of one draws from others. */
static bool varies(const struct eval_pairs *p)
{
    bool lone = false, differ = false;
    for (size_t s = 0; s < n_strata(p); s++) {
        const size_t begin = stratum_begin(p, s), end = stratum_begin(p, s + 1);
        for (size_t c = begin + 1; c < end; c++)
            if (cluster_mean(p, c) != cluster_mean(p, begin))
                return true;
        lone = lone || end - begin == 1;
        differ = differ || cluster_mean(p, begin) != cluster_mean(p, 0);
    }
    return lone && differ;
}

/* Draws clusters; rounds[EVAL_BOOT_ROUNDS] is overwritten. */
static bool draw_clusters(struct eval_paired *out, const struct eval_pairs *p, double *rounds,
                          struct eval_random *r)
{
    struct drawing *how = malloc(n_strata(p) * sizeof *how);
    struct wholes w;
    const bool good = wholes_of(&w, p) && how;
    for (size_t s = 0; good && s < n_strata(p); s++)
        how[s] = drawing_of(p, s);
    for (int b = 0; good && b < EVAL_BOOT_ROUNDS; b++)
        rounds[b] = mean_of_drawn(p, how, &w, r);
    if (good)
        out->over = eval_rounds_interval(rounds);
    wholes_clear(&w);
    free(how);
    return good;
}

/* Draws tasks, where there are enough; what is not known of their own samples is not known of others either. rounds[EVAL_BOOT_ROUNDS]
 * is overwritten. */
static bool draw_tasks(struct eval_paired *out, const struct eval_pairs *p, double *rounds,
                       struct eval_random *r)
{
    if ((p->task ? p->n_tasks : n_strata(p)) < EVAL_BOOT_LEAST)
        return true;
    double *mean = malloc(n_strata(p) * sizeof *mean);
    for (size_t s = 0; mean && s < n_strata(p); s++)
        mean[s] = stratum_mean(p, s);
    for (int b = 0; mean && b < EVAL_BOOT_ROUNDS; b++)
        rounds[b] = mean_of_tasks(p, mean, r);
    if (mean) {
        out->tasks = eval_rounds_interval(rounds);
        out->tasks.lo = fmin(out->tasks.lo, out->over.lo);
        out->tasks.hi = fmax(out->tasks.hi, out->over.hi);
    }
    free(mean);
    return mean;
}

bool eval_bootstrap(struct eval_paired *out, const struct eval_pairs *p, struct eval_random *r)
{
    *out = (struct eval_paired){
        .delta = NAN, .over = {NAN, NAN}, .spread = EVAL_SPREAD_FEW, .tasks = {NAN, NAN}, .icc = eval_icc(p)};
    if (p->n == 0)
        return true;
    out->delta = mean_of(p);
    if (n_clusters(p) < EVAL_BOOT_LEAST)
        return true;
    double *rounds = malloc(EVAL_BOOT_ROUNDS * sizeof *rounds);
    if (!rounds)
        return false;
    bool good = true;
    if (varies(p)) {
        good = draw_clusters(out, p, rounds, r);
        out->spread = EVAL_SPREAD_OK;
    } else {
        out->over = unseen(p, out->delta);
        out->spread = EVAL_SPREAD_NONE;
    }
    good = good && draw_tasks(out, p, rounds, r);
    free(rounds);
    return good;
}

bool eval_equivalent(const struct eval_paired *p)
{
    return p->spread != EVAL_SPREAD_FEW && p->over.lo > -EVAL_MARGIN_POINTS &&
           p->over.hi < EVAL_MARGIN_POINTS;
}

/* ---- How alike differences of one cluster are ---- */

/* Sums of squares between clusters and within them, and what they are of. */
struct squares {
    double between, within,
        sizes; /* sizes: over strata, n less the mean size of a cluster as a difference sees it */
    size_t n_between, n_within; /* degrees of freedom */
};

static void add_squares(struct squares *q, const struct eval_pairs *p, size_t s)
{
    const double mean = stratum_mean(p, s);
    const size_t begin = stratum_begin(p, s), end = stratum_begin(p, s + 1);
    double n_all = 0.0, n_squared = 0.0;
    for (size_t c = begin; c < end; c++) {
        const size_t first = p->cluster ? p->cluster[c] : c, last = p->cluster ? p->cluster[c + 1] : c + 1;
        const double n = (double)(last - first);
        double own = 0.0;
        for (size_t i = first; i < last; i++)
            own += p->d[i] / n;
        for (size_t i = first; i < last; i++)
            q->within += (p->d[i] - own) * (p->d[i] - own);
        q->between += n * (own - mean) * (own - mean);
        q->n_within += last - first - 1;
        n_all += n;
        n_squared += n * n;
    }
    q->sizes += n_all - n_squared / n_all;
    q->n_between += end - begin - 1;
}

double eval_icc(const struct eval_pairs *p)
{
    struct squares q = {0};
    for (size_t s = 0; p->n > 0 && s < n_strata(p); s++)
        add_squares(&q, p, s);
    if (q.n_between == 0 || q.n_within == 0)
        return NAN;
    const double between = q.between / (double)q.n_between, within = q.within / (double)q.n_within;
    const double size = q.sizes / (double)q.n_between, all = between + (size - 1) * within;
    return all > 0 ? (between - within) / all : NAN;
}

/* ---- Tests ---- */

/* What each cluster adds to the mean; those that add nothing are left out. Returns how many, and their sum. */
static size_t shares_of_mean(double *share, double *sum, const struct eval_pairs *p)
{
    size_t n = 0;
    *sum = 0.0;
    for (size_t s = 0; s < n_strata(p); s++) {
        double n_all = 0.0;
        const size_t first = n;
        for (size_t c = stratum_begin(p, s); c < stratum_begin(p, s + 1); c++) {
            size_t n_own = 0;
            share[n] = 0.0;
            add_cluster(&share[n], &n_own, p, c);
            n_all += (double)n_own;
            n += share[n] != 0.0;
        }
        for (size_t i = first; i < n; i++)
            *sum += share[i] /= n_all * (double)n_strata(p);
    }
    return n;
}

double eval_flip_test(const struct eval_pairs *p, struct eval_random *r)
{
    double sum, *share = p->n > 0 ? malloc(n_clusters(p) * sizeof *share + sizeof *share) : NULL;
    int64_t n_far = 0;
    if (p->n == 0 || !share)
        return p->n == 0 ? 1.0 : NAN;
    const size_t n = shares_of_mean(share, &sum, p);
    const bool all = n < 63 && (int64_t)1 << n <= EVAL_BOOT_ROUNDS;
    const int64_t n_rounds = all ? (int64_t)1 << n : EVAL_BOOT_ROUNDS;
    for (int64_t b = 0; b < n_rounds; b++) {
        double flipped = 0.0;
        uint64_t bits = (uint64_t)b;
        for (size_t i = 0; i < n; i++, bits >>= 1) {
            if (!all && i % 64 == 0)
                bits = eval_random_next(r);
            flipped += bits & 1 ? -share[i] : share[i];
        }
        n_far += fabs(flipped) >= fabs(sum) * (1 - 1e-9);
    }
    free(share);
    /* What was measured is one of the combinations, also where they are drawn. */
    return all ? (double)n_far / (double)n_rounds : (double)(n_far + 1) / (double)(n_rounds + 1);
}

struct ranked {
    double p;
    size_t at;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->p != y->p ? (x->p > y->p) - (x->p < y->p) : (x->at > y->at) - (x->at < y->at);
}

bool eval_holm(double *p, size_t n)
{
    struct ranked *order = malloc((n + 1) * sizeof *order);
    double before = 0.0;
    if (!order)
        return false;
    for (size_t i = 0; i < n; i++)
        order[i] = (struct ranked){isnan(p[i]) ? 1.0 : p[i], i};
    qsort(order, n, sizeof *order, compare_ranked);
    for (size_t i = 0; i < n; i++) {
        const double now = fmin(1.0, (double)(n - i) * order[i].p);
        before = now > before ? now : before;
        p[order[i].at] = before;
    }
    free(order);
    return true;
}

void eval_boot_key(char *out, size_t size, const char *task, int64_t n, const char *config, uint64_t seed)
{
    snprintf(out, size, "boot|%s|%lld|%s|%llu", task, (long long)n, config, (unsigned long long)seed);
}

const char *eval_verdict(const struct eval_paired *p)
{
    if (p->spread == EVAL_SPREAD_FEW)
        return "~";
    if (p->over.lo > 0)
        return "+";
    if (p->over.hi < 0)
        return "-";
    return "~";
}

struct eval_interval eval_wilson(int64_t k, int64_t n)
{
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

bool eval_gate_decided(double sum, int32_t n_done, int32_t n)
{
    const double need = EVAL_GATE_POINTS / 100.0 * n - 1e-9;
    return sum >= need || sum + (n - n_done) < need;
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
