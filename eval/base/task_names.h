/* SPDX-License-Identifier: MIT */
/* What a reader of results knows of a task from its name. Both this and how its samples are made (eval/tasks/task.h) come from the task's
 * line in tasks.def. */
#ifndef WNW_EVAL_TASK_NAMES_H
#define WNW_EVAL_TASK_NAMES_H

#include <stdbool.h>
#include <stdint.h>

enum eval_task_flags {
    EVAL_ON_GRID = 1,       /* the index of a sample says its depth and trial */
    EVAL_HIDES_IN_TEXT = 2, /* uses the haystack: "essay" in RULER's table */
    EVAL_WANTS_SQUAD = 4,
    EVAL_WANTS_HOTPOT = 8,
    EVAL_STANDS_IN = 16, /* made-up data in place of a benchmark's own */
    EVAL_OWN_WORDS = 32, /* words of our lists (lists.h) in place of a benchmark's own */
    /* Whose samples are lines of a file (set.h), or pieces of a text, which nobody is asked about: */
    EVAL_IS_SET = 64,
    EVAL_IS_TEXT = 128,
    EVAL_NO_CHAT = 256,           /* the prompt is plain text for every model */
    EVAL_FIRST_LINE = 512,        /* the answer is the first line of what is generated */
    EVAL_STOP_AT_LINE = 1024,     /* generation stops at the first line break after the first token */
    EVAL_ENDS_WITH_PREFIX = 2048, /* a question may end with the answer's beginning, which is removed there */
    /* The user names the file and not its folder, and means all of it: contexts stay whole, and samples longer than the model's context
     * are left out. */
    EVAL_OWN_FILE = 4096,
    EVAL_WANTS_DOCUMENTS = 8192, /* a folder of texts and questions about them; all of them are asked */
    EVAL_WORDS_IN_TEXT = EVAL_HIDES_IN_TEXT | EVAL_OWN_WORDS,
    EVAL_TEXT_AT_DEPTHS = EVAL_HIDES_IN_TEXT | EVAL_ON_GRID,
    EVAL_FEW_SHOT = EVAL_NO_CHAT | EVAL_FIRST_LINE | EVAL_ENDS_WITH_PREFIX
};

/* What an answer is made of: a few tokens, or a long text that must be repeated letter by letter. */
enum eval_answer_kind { EVAL_ANSWER_OTHER, EVAL_ANSWER_SHORT, EVAL_ANSWER_COPY };

struct eval_task_name {
    const char *name;
    const char *domain;           /* as its benchmark sorts tasks, such as "aggregation"; NULL = not at all */
    const char *metric;           /* "" for unknown tasks */
    enum eval_answer_kind answer; /* of summaries and code neither of the two */
    bool on_grid;                 /* one sample for each depth and trial */
};

/* What is known of a name; of an unknown one nothing, with the name NULL. */
const struct eval_task_name *eval_task_name_find(const char *name);
/* Orders names as `winnow eval --list` has them, unknown ones after it by their letters. */
int eval_task_name_compare(const char *a, const char *b);

#endif
