/* SPDX-License-Identifier: MIT */
/* Arguments of the evaluation's sub-commands. */
#ifndef WNW_EVAL_ARGS_H
#define WNW_EVAL_ARGS_H

#include "app/args.h"

struct eval_args {
    struct app_args app;
    char *metric, *input;
    char *tasks, *lengths, *haystack, *depths, *needle, *squad, *hotpot, *longbench, *scbench;
    int64_t samples, trials, max_prompt;
    char *compare, *fail_if;
    bool list, dump, no_gate;
};

extern const struct app_group eval_group_score, eval_group_tasks, eval_group_action, eval_group_report;

#endif
