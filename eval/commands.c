/* SPDX-License-Identifier: MIT */
/* The table of the evaluation's sub-commands. */
#include "eval/commands.h"

#include "eval/args.h"

static const struct app_group *const score_groups[] = {&eval_group_score, &app_group_common, NULL};

const struct app_command eval_commands[] = {
    {.name = "score",
     .about = "Scores predictions with a metric of the evaluation: one score a line, then the mean.",
     .usage = "--metric NAME -i FILE.jsonl [--json]",
     .notes = "Scores are from 0 to 1. Each line of the file is an object {\"pred\": TEXT, \"refs\": [TEXT, "
              "...]}.",
     .groups = score_groups,
     .args_size = sizeof(struct eval_args),
     .run = eval_run_score},
    {.name = NULL},
};
