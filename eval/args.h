/* SPDX-License-Identifier: MIT */
/* Arguments of the evaluation's sub-commands. */
#ifndef WNW_EVAL_ARGS_H
#define WNW_EVAL_ARGS_H

#include "app/args.h"

struct eval_args {
    struct app_args app;
    char *metric, *input;
    char *suite, *study, *tasks, *lengths, *haystack, *depths, *needle, *niah_compat, *squad, *hotpot,
        *documents, *longbench, *scbench, *jsonl, *text;
    char *policies, *ratios, *budgets, *kv_bytes, *kv_types, *modes;
    char *turns, *recompress, *lb_prefix, *lb_chat, *shard, *split;
    char *compare, *contrasts, *fail_if, *niah_score;
    int64_t samples, trials, max_prompt, lb_extra, batch, answer_tokens;
    char *time_budget, *store;
    int64_t store_limit;
    bool list, dump, own_history, no_early_stop, quiet, no_gate, closed_book, separate_readings;
};

extern const struct app_group eval_group_score, eval_group_tasks, eval_group_action, eval_group_config,
    eval_group_run, eval_group_report;

#endif
