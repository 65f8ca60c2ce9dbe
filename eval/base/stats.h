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
    /* [number + 1], ascending, the last one after the last of what they are of: first difference of each cluster (NULL = none); first
     * cluster of each stratum, which has at least one (NULL = one stratum); first stratum of each task, as a task at several lengths is
     * one task (NULL = every stratum is a task). */
    const size_t *cluster, *stratum, *task;
    size_t n_clusters, n_strata, n_tasks;
    double least, most; /* bounds that no difference can pass; both 0: there are none */
};

enum eval_spread {
    EVAL_SPREAD_OK,
    EVAL_SPREAD_FEW,  /* fewer than EVAL_BOOT_LEAST clusters: no interval, print "n<6" */
    EVAL_SPREAD_NONE, /* clusters of a stratum do not differ: the interval is of what so few may have missed */
};

struct eval_paired {
    double delta;              /* mean of the strata's mean differences */
    struct eval_interval over; /* 95 %, percentile bootstrap; NaN for EVAL_SPREAD_FEW */
    enum eval_spread spread;
    struct eval_interval tasks; /* 95 %, with tasks drawn too; NaN for fewer tasks than EVAL_BOOT_LEAST */
    double icc;                 /* see eval_icc */
};

/* Resamples EVAL_BOOT_ROUNDS times: clusters for the interval over samples, tasks with all their samples for the interval over
 * tasks. Each stratum is resampled separately, with one draw fewer than it has clusters, which gives the right spread for few
 * clusters (Rao and Wu, 1988). A stratum of one cluster has no spread and draws from the clusters of all strata. One task fewer
 * is drawn than there are. A draw is a task's mean, whose scatter is that of tasks and of their samples together.
 * If nothing varies, Wilson's bound for 0 of n gives the share of clusters that may differ unseen, and the interval is as far as
 * that share can move the mean. Without bounds of the differences it is [d,d]. r is the stream (eval_boot_key). false: out of
 * memory. */
bool eval_bootstrap(struct eval_paired *out, const struct eval_pairs *p, struct eval_random *r);
/* The 95 % interval of a bootstrap's rounds, which are sorted: 2.5 % of them lie below, 2.5 % above. */
struct eval_interval eval_rounds_interval(double rounds[EVAL_BOOT_ROUNDS]);
/* Writes the key of a bootstrap's stream: "boot|TASK|N|CONFIG|SEED". */
void eval_boot_key(char *out, size_t size, const char *task, int64_t n, const char *config, uint64_t seed);
/* "+", "-", or "~" where the interval contains 0 or there is none. */
const char *eval_verdict(const struct eval_paired *p);

/* Two methods' answers count as equally good if the whole interval is within this many points. */
enum { EVAL_MARGIN_POINTS = 5 };
bool eval_equivalent(const struct eval_paired *p);

/* Intra-class correlation of the differences within clusters (one-way analysis of variance within strata; Shrout and Fleiss 1979,
 * ICC(1,1), of clusters of different sizes as Donner 1986 has it): 0 where differences of one cluster are as unlike as those of two,
 * 1 where they are the same. NaN where no cluster has two, or nothing varies. */
double eval_icc(const struct eval_pairs *p);
/* Two-sided probability of a mean at least as far from 0 if in every cluster the two methods had changed places at random: all
 * combinations where they are no more than EVAL_BOOT_ROUNDS, else that many of them drawn from r. 1 for no differences; NaN: out of
 * memory. */
double eval_flip_test(const struct eval_pairs *p, struct eval_random *r);
/* Replaces the probabilities of n tests by Holm's, which hold for all of them together. */
bool eval_holm(double *p, size_t n);

/* Wilson's 95 % interval for k successes of n. */
struct eval_interval eval_wilson(int64_t k, int64_t n);
/* Binary scores of the same samples: how many samples the second run lost and gained, and the exact two-sided
 * probability, at most 1, that chance gives a split at least as uneven. */
struct eval_discordant {
    int64_t lost, gained;
    double p;
};
double eval_sign_test(int64_t lost, int64_t gained);

/* A task can distinguish methods if the full cache's mean score on separate samples is high enough, in points of 100. The number of
 * probes is chosen for errors below one in twenty: a task of 10 points passes, or one of 45 fails. */
enum { EVAL_GATE_POINTS = 25, EVAL_GATE_FIRST = 900000, EVAL_GATE_PROBES = 20 };
/* Without probes a task is left out where the full cache has fewer points than these on the samples themselves, with at least five
 * answers. Methods are compared on the same samples, so that fewer points are asked for than of probes: only what the full cache
 * cannot do at all is left out. */
enum { EVAL_OWN_GATE_POINTS = 10, EVAL_OWN_GATE_ANSWERS = 5 };
/* Whether n probes are decided once n_done of them have the sum of scores (0 to 1): it is enough already, or cannot become enough.
 * What has not been asked then changes neither that nor on which side of EVAL_GATE_POINTS the mean of those asked is. */
bool eval_gate_decided(double sum, int32_t n_done, int32_t n);

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
