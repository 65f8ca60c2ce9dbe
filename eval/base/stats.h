/* SPDX-License-Identifier: MIT */
/* Intervals, tests and curves over scores, which show how much a mean can be relied on. */
#ifndef WNW_EVAL_STATS_H
#define WNW_EVAL_STATS_H

#include "eval/base/random.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EVAL_BOOT_ROUNDS = 10000, EVAL_BOOT_LEAST = 6 };

struct eval_interval {
    double lo, hi;
};

/* Differences of paired scores. They form clusters of dependent differences, and clusters form strata of
 * equal weight. Without clusters every difference is a cluster; without strata there is one stratum. */
struct eval_pairs {
    const double *d; /* [n]: compressed minus full, or one method minus another, sample by sample */
    size_t n;
    const size_t
        *cluster; /* [n_clusters + 1]: first difference of each, ascending, the last is n; NULL = none */
    size_t n_clusters;
    const size_t
        *stratum; /* [n_strata + 1]: first cluster of each, ascending, the last is the number of clusters;
                              NULL = one. Each has at least one cluster */
    size_t n_strata;
};

enum eval_spread {
    EVAL_SPREAD_OK,
    EVAL_SPREAD_FEW, /* fewer than EVAL_BOOT_LEAST clusters: no interval, print "n<6" */
    EVAL_SPREAD_NONE, /* all differences are equal, so that the interval is [d,d]; a sign test still tells d from 0 */
};

struct eval_paired {
    double delta;              /* mean of the strata's mean differences */
    struct eval_interval over; /* 95 %, percentile bootstrap; NaN for EVAL_SPREAD_FEW */
    enum eval_spread spread;
};

/* Resamples clusters EVAL_BOOT_ROUNDS times. Of several strata each is resampled by itself, with one draw fewer than it has
 * clusters, so that the spread is right where they are few (Rao and Wu, 1988); a stratum of one cluster, which has no spread,
 * draws from those of all. r is the stream drawn from (eval_boot_key). false: out of memory. */
bool eval_bootstrap(struct eval_paired *out, const struct eval_pairs *p, struct eval_random *r);
/* The 95 % interval of a bootstrap's rounds, which are sorted: 2.5 % of them lie below, 2.5 % above. */
struct eval_interval eval_rounds_interval(double rounds[EVAL_BOOT_ROUNDS]);
/* Writes the key of a bootstrap's stream: "boot|TASK|N|CONFIG|SEED". */
void eval_boot_key(char *out, size_t size, const char *task, int64_t n, const char *config, uint64_t seed);
/* "+", "-", or "~" where the interval contains 0 or there is none. */
const char *eval_verdict(const struct eval_paired *p);

/* Wilson's 95 % interval for k successes of n. */
struct eval_interval eval_wilson(int64_t k, int64_t n);
/* Binary scores of the same samples: how many samples the second run lost and gained, and the exact two-sided
 * probability, at most 1, that chance gives a split at least as uneven. */
struct eval_discordant {
    int64_t lost, gained;
    double p;
};
double eval_sign_test(int64_t lost, int64_t gained);

/* A task can tell methods apart if the full cache's mean score on separate samples is high enough, in points
 * of 100. */
enum { EVAL_GATE_POINTS = 25, EVAL_GATE_FIRST = 900000 };

/* Curves: score s[i], in points, at removed share r[i]; r ascends from 0. */

/* Area under the curve over [r[0], r[n - 1]], divided by that length; NaN for fewer than two points. to_one:
 * with one more point (1, 0). */
double eval_auc(const double *r, const double *s, size_t n, bool to_one);
/* The share at which the loss first reaches eps0 (0.1 = 10 %), between points along a straight line; INFINITY
 * if it does not. loss[i]: at r[i]. */
double eval_tolerance(const double *r, const double *loss, size_t n, double eps0);
/* Loss of a task at s next to the full cache's score; of several tasks the mean. NaN where full is not above
 * 0. */
double eval_loss(double full, double s);
/* The share of the full cache's score that is left, in per cent. */
double eval_retention(double full, double s);

/* Half the width of a 95 % interval, in points, where a share q of n binary samples changes its outcome. */
double eval_half_width(double q, int64_t n);

#endif
