/* SPDX-License-Identifier: MIT */
/* The evaluation: winnow eval and winnow score. */
#ifndef WNW_EVAL_COMMANDS_H
#define WNW_EVAL_COMMANDS_H

#include "app/options.h"

extern const struct app_command eval_commands[]; /* ended by a name of NULL */

/* These are defined in eval.c, score.c and report.c. They return exit codes. */
int eval_run(const struct app_args *args);
int eval_run_score(const struct app_args *args);
int eval_run_report(const struct app_args *args);

#endif
