/* SPDX-License-Identifier: MIT */
/* What `winnow bench methods` measured; filled by methods.c, printed by methods_report.c. */
#ifndef WNW_BENCH_METHODS_H
#define WNW_BENCH_METHODS_H

#include "bench/bench.h"

enum { BENCH_MAX_METHODS = 128 };

/* Times in ms; SHARE: those from READ to COMPACT in per cent of PLAIN; PEAK in bytes. */
enum bench_cost {
    COST_PLAIN, /* mean of the plain prefills around its reading */
    COST_READ,  /* its reading minus that */
    COST_OBSERVE,
    COST_SCORE,
    COST_SELECT,
    COST_COMPACT,
    COST_SHARE,
    COST_PEAK, /* beyond the peak of the plain prefills around its reading */
    N_COSTS
};

/* What a session takes down while it reads. Policies for which it is the same share a reading. */
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
    struct bench_spread cost[N_COSTS]; /* of these, when all rounds are over */
    char why[200];                     /* why nothing was measured, "" if something was */
    double kept_mean;
};

struct bench_methods {
    struct bench_base base;
    wnw_profile *profile;
    struct bench_method methods[BENCH_MAX_METHODS];
    int32_t n_methods;
    int32_t n_groups, n_plain; /* observed and plain readings in a round */
    double *plain_ms;          /* [n_reps * n_plain] of one length, as far as n_plain_ms */
    int32_t n_plain_ms;
    int32_t n_steps, n_steps_done;
    struct app_progress progress;
    struct app_out csv;
    json_t *json_rows;
};

/* Opens what --csv asks for and the list of --json. Return exit codes. */
int bench_methods_report_begin(struct bench_methods *b);
/* Everything about one length. */
void bench_methods_report(struct bench_methods *b, int32_t n);
int bench_methods_report_end(struct bench_methods *b);

#endif
