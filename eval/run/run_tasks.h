/* SPDX-License-Identifier: MIT */
/* winnow eval --out: all samples of a run under all configs. */
#ifndef WNW_EVAL_RUN_TASKS_H
#define WNW_EVAL_RUN_TASKS_H

#include "eval/run/config.h"
#include "eval/run/suite.h"

/* What is made of the results in the folder args->app.out. Both return exit codes. */
struct eval_run_report {
    /* refuses its options before anything is read */
    int (*check)(const struct eval_args *args, const struct eval_configs *configs);
    int (*write)(const struct eval_args *args);
};
/* Runs what the options and the suite (NULL = none) name. Returns an exit code. */
int eval_run_tasks(const struct eval_args *args, const struct eval_suite *suite,
                   const struct eval_run_report *report);

#endif
