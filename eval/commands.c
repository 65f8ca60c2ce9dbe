/* SPDX-License-Identifier: MIT */
/* The table of the evaluation's sub-commands. */
#include "eval/commands.h"

#include "eval/args.h"

static const struct app_group *const score_groups[] = {&eval_group_score, &app_group_common, NULL};

static const struct app_group *const eval_groups[] = {&eval_group_action, &eval_group_tasks,
                                                      &app_group_common, NULL};

const struct app_command eval_commands[] = {
    {.name = "eval",
     .about = "Makes the samples of tasks that tell how much a compressed cache still knows.",
     .usage = "--list | --dump-samples [-m MODEL] --tasks LIST [--lengths LIST] [--samples K] [options]",
     .notes = "A sample is one line: context, question, beginning of the answer, references and where the "
              "evidence stands.\n"
              "The same seed gives the same samples on every machine; each can be made alone.",
     .groups = eval_groups,
     .args_size = sizeof(struct eval_args),
     .run = eval_run},
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
