/* SPDX-License-Identifier: MIT */
/* Studies: the experiments of single papers. Most are lists of tasks, policies and sizes, as suites are; one that
 * measures something other than answers has a runner of its own. */
#ifndef WNW_EVAL_STUDY_H
#define WNW_EVAL_STUDY_H

#include "eval/args.h"
#include "eval/run/suite.h"

struct eval_study {
    struct eval_suite suite; /* its name and text too; items NULL where nothing is asked */
    bool perturbs;           /* it measures outputs of heads (eval/perturb/); others are run like a suite */
};

/* Study number i, NULL after the last. */
const struct eval_study *eval_study_get(int32_t i);
/* Finds the study that --study names; NULL without that option. Returns an exit code: bad input for an unknown name. */
int eval_study_find(const struct eval_study **study, const struct eval_args *args);
/* Finds the suite that --suite names, or that --study is run like; NULL where the options name neither. Returns an
 * exit code. */
int eval_suite_choose(const struct eval_suite **suite, const struct eval_args *args);
/* Whether every policy reads for itself and answers alone, and how many tokens every answer has (0 = until it ends), by
 * the options or the suite (may be NULL). */
bool eval_is_alone(const struct eval_args *args, const struct eval_suite *suite);
int32_t eval_answer_tokens(const struct eval_args *args, const struct eval_suite *suite);
/* Whether the cache is compressed again before every further question. */
bool eval_recompresses(const struct eval_args *args);

#endif
