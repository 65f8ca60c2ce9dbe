/* SPDX-License-Identifier: MIT */
/* What a reader of results knows of a task from its name. How its samples are made is the business of eval/tasks/. */
#ifndef WNW_EVAL_TASK_NAMES_H
#define WNW_EVAL_TASK_NAMES_H

#include <stdbool.h>
#include <stdint.h>

/* What an answer is made of: a few tokens, or a long text that must be repeated letter by letter. */
enum eval_answer_kind { EVAL_ANSWER_OTHER, EVAL_ANSWER_SHORT, EVAL_ANSWER_COPY };

struct eval_task_name {
    const char *name;
    const char *domain;           /* as its benchmark sorts tasks, such as "aggregation"; NULL = not at all */
    enum eval_answer_kind answer; /* of summaries and code neither of the two */
    bool on_grid;                 /* one sample for each depth and trial */
    bool score_contains;          /* its score says whether the answer contains what was hidden */
};

/* Task number i in the order of `winnow eval --list`, NULL after the last. */
const struct eval_task_name *eval_task_name_get(int32_t i);
/* What is known of a name; of an unknown one nothing, with the name NULL. */
const struct eval_task_name *eval_task_name_find(const char *name);
/* Orders names as the list has them, unknown ones after it by their letters. */
int eval_task_name_compare(const char *a, const char *b);

#endif
