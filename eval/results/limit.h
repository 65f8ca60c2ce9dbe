/* SPDX-License-Identifier: MIT */
/* Limits that a run must keep: --fail-if 'macro_delta<-5@r=.5'. */
#ifndef WNW_EVAL_LIMIT_H
#define WNW_EVAL_LIMIT_H

#include "eval/results/table.h"

enum { EVAL_LIMIT_HIT = 4 }; /* exit code */

/* MEASURE<NUMBER or MEASURE>NUMBER, then optionally @KEY=VALUE[,KEY=VALUE]... with the keys r (removed share), policy,
 * mode, kv, N. Texts point into the expression's own copy. */
struct eval_limit {
    char *text; /* owned */
    int measure;
    bool below;
    double bound;
    double removed, n_target;       /* NaN = any */
    const char *name[EVAL_N_NAMES]; /* of variants that are meant; NULL = any */
};

/* Reads an expression. Returns an exit code: bad input names the mistake. The caller clears in any case. */
int eval_limit_read(struct eval_limit *out, const char *text);
void eval_limit_clear(struct eval_limit *limit);
/* Bad input if the limit is about no row of the tables. */
int eval_limit_find(const struct eval_limit *limit, const struct eval_tables *tables, int32_t n);
/* Whether runs keep a limit. A difference breaks it only with its whole interval; one without an interval, or a row without
 * the number, breaks nothing, and a note on standard error says so. Returns APP_OK, or EVAL_LIMIT_HIT with a message on the
 * first row that breaks it, or bad input if no row is meant. */
int eval_limit_check(const struct eval_limit *limit, const struct eval_tables *tables, int32_t n);

#endif
