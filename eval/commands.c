/* SPDX-License-Identifier: MIT */
/* The table of the evaluation's sub-commands. */
#include "eval/commands.h"

#include "eval/args.h"

static const struct app_group *const score_groups[] = {&eval_group_score, &app_group_common, NULL};

static const struct app_group *const eval_groups[] = {&eval_group_action,
                                                      &eval_group_tasks,
                                                      &eval_group_config,
                                                      &eval_group_run,
                                                      &app_group_devices,
                                                      &app_group_common,
                                                      NULL};

static const struct app_group *const report_groups[] = {&eval_group_report, &app_group_common, NULL};

const struct app_command eval_commands[] = {
    {.name = "eval",
     .first = "model out suite tasks list jsonl policies ratios budgets samples help",
     .about = "Asks a model questions with its cache compressed, and writes every answer with its scores.",
     .usage = "--out DIR [-m MODEL] (--suite NAME | --study NAME | --tasks LIST) [--policies LIST] [--ratios "
              "LIST] [options] | "
              "--dump-samples ... | --list",
     .notes =
         "The same seed gives the same samples on every machine; each can be made alone. A sample is read "
         "once for all policies and sizes.\n"
         "The folder gets run.json and results.jsonl, one line per answer; docs/reference/evaluation.md "
         "describes\nthem. The same command continues an interrupted run.",
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
    {.name = "report",
     .about = "Turns the results of evaluations into tables, intervals, charts and worst cases.",
     .usage = "DIR... [-o FILE.html] [--compare A,B] [--fail-if EXPR] [--json]",
     .notes =
         "DIR is what `winnow eval --out` wrote. Shards of one run are combined; other runs are shown side "
         "by "
         "side.\nThe summary goes to standard output. One DIR without -o gets report.html, summary.txt, "
         "summary.csv and,\nif it has maps by depth and length, maps.csv. Otherwise the report is FILE.html, "
         "or report.html in the\ncurrent folder. Exit code 4: the limit of --fail-if is exceeded.",
     .groups = report_groups,
     .max_rest = 1024,
     .args_size = sizeof(struct eval_args),
     .run = eval_run_report},
    {.name = NULL},
};
