/* SPDX-License-Identifier: MIT */
/* winnow eval --out: all samples of a run under all configs. */
#ifndef WNW_EVAL_RUNNER_H
#define WNW_EVAL_RUNNER_H

#include "eval/args.h"

/* Returns an exit code. */
int eval_run_tasks(const struct eval_args *args);

#endif
