/* SPDX-License-Identifier: MIT */
/* What `winnow bench methods` measured; filled by methods.c, printed by methods_report.c. */
#ifndef WNW_BENCH_METHODS_H
#define WNW_BENCH_METHODS_H

#include "bench/bench.h"

enum { BENCH_MAX_METHODS = 128 };

/* Times are in ms. SHARE is the sum of those from READ to COMPACT in per cent of PLAIN; PEAK is in bytes. */
enum bench_cost {
    COST_PLAIN, /* mean of the plain prefills around its reading */
    COST_READ,  /* its reading minus PLAIN */
    COST_OBSERVE,
    COST_SCORE,
    COST_SELECT,
    COST_COMPACT,
    COST_SHARE,
    COST_PEAK, /* the excess over the peak of the plain prefills around its reading */
    N_COSTS
};

/* What a session records while it reads. Policies that need the same records share a reading. */
struct bench_recording {
    uint32_t flags; /* WNW_NEED_ */
    int32_t window, skip;
};

struct bench_method {
    char *recipe;
    wnw_policy *policy;
    struct bench_recording recording;
    int32_t group;                     /* number of its reading in a round; -1: it cannot be measured */
    double *rounds[N_COSTS];           /* [n_reps] of one length, NaN where nothing was measured */
    struct bench_spread cost[N_COSTS]; /* of rounds, when all are over */
    char why[200];                     /* why nothing was measured, "" if something was */
    double kept_mean;
};

struct bench_methods {
    struct bench_base base;
    wnw_profile *profile;
    struct bench_method methods[BENCH_MAX_METHODS];
    int32_t n_methods;
    int32_t n_groups, n_plain; /* observed and plain readings in a round */
    double *plain_ms;          /* [n_reps * n_plain] of one length; the first n_plain_ms are filled in */
    int32_t n_plain_ms;
    int32_t n_steps, n_steps_done;
    struct app_progress progress;
    struct app_out csv;
    json_t *json_rows;
};

/* Opens the file of --csv and the list of --json. Returns an exit code. */
int bench_methods_report_begin(struct bench_methods *b);
/* Prints the results of one length. */
void bench_methods_report(struct bench_methods *b, int32_t n);
int bench_methods_report_end(struct bench_methods *b);

#endif
