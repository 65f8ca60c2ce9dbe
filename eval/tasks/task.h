/* SPDX-License-Identifier: MIT */
/* Tasks: each has one descriptor (eval/base/tasks.def), whether its samples are made, of any length, or are lines of a file of the user. */
#ifndef WNW_EVAL_TASK_H
#define WNW_EVAL_TASK_H

#include "eval/base/jsonl.h"
#include "eval/base/task_names.h"
#include "eval/tasks/haystack.h"
#include "eval/tasks/sample.h"
#include "eval/tasks/tokens.h"

enum { EVAL_MAX_DEPTHS = 64, EVAL_MAX_TASKS = 64 /* in the table */ };

/* Questions and documents of the user (qa_1, qa_2, doc_qa): see records.h. */
struct eval_records;

/* What all samples of a run have in common. */
struct eval_source {
    uint64_t seed;
    const struct eval_tokenizer *tokenizer;
    const struct eval_chat *chat;
    int32_t n_ctx; /* of the model, which must hold all questions of a sample together; 0 = not known */
    struct eval_haystack haystack;
    double depths[EVAL_MAX_DEPTHS]; /* [n_depths] of tasks on a grid, in per cent */
    int32_t n_depths, n_trials;
    const char *needle;       /* of niah_grid: "rand", "num", "words" or "sf" */
    bool needle_mark;         /* niah_grid's prompts begin as in CompressKV's code */
    int32_t vt_example_units; /* noise blocks of vt's example; 0 = not known yet */
    /* Without questions where the user has none; folder: of doc_qa. */
    const struct eval_records *squad, *hotpot, *folder;
};

/* A sample while it is made: its task, and its number of units and random numbers, or its line of a file. */
struct eval_draft {
    const struct eval_task *task;
    struct eval_source *w;
    int64_t units;
    struct eval_random r;
    const struct eval_jsonl *file;
    const json_t *line;
};

struct eval_task {
    const char *name, *group, *about;
    const char *metric;
    int32_t max_new; /* most tokens of the answer, a part of the length; a line of a file may have others */
    uint32_t flags;  /* eval_task_flags */
    /* Fills in context, turns and meta of a sample; the caller has set all other fields. Returns an exit code. It may fail for too
     * few units, and it need not print that memory ran out for the sample. */
    int (*make)(struct eval_sample *s, struct eval_draft *d);
    const void *params;     /* for make, NULL = none */
    const char *instead_of; /* the task of the user's files that it replaces, NULL = none */
    /* Of a set: its file without .jsonl, NULL for EVAL_OWN_FILE; how its prompts are worded. */
    const char *file;
    const struct eval_list *form;
    /* A context that is made consists of units, such as words or documents; their number determines its length. */
    const char *unit;
    int32_t least; /* shortest useful length in tokens, for messages */
    /* First increment in the search for the number of units; 0: they are tokens, all of a length but EVAL_GRID_RESERVE. */
    int64_t units_at_once;
    int64_t least_units; /* of a sample */
};

/* Task number i, those of files after the others; NULL after the last. */
const struct eval_task *eval_task_get(int32_t i);
const struct eval_task *eval_task_find(const char *name);
bool eval_task_is_of(const struct eval_task *task, const char *group);
/* What is measured on a text of the user; it is none of the above, because it has no samples. */
extern const struct eval_task eval_task_text;

/* Most tokens of an answer for samples of a length: the task's number, or less if the length is short. That of a set, or of a text,
 * does not depend on a length. */
int32_t eval_task_max_new(const struct eval_task *task, int32_t n_target);

/* The number of units that was found for a length. */
struct eval_fit {
    int64_t units;
};
/* Finds the most units with which sample 0 has at most n_target tokens, including the answer. A sample of several questions is
 * counted to the end of its longest one. As a conversation it must fit into the model's context. Returns an exit code: bad
 * input if not even the fewest units fit. */
int eval_task_fit(struct eval_fit *fit, struct eval_source *w, const struct eval_task *task,
                  int32_t n_target);
/* Makes sample `index` with the units of the fit, or with fewer if it is too long; one that cannot be made is marked so.
 * Returns an exit code. The caller clears the sample in any case. */
int eval_task_sample(struct eval_sample *s, struct eval_source *w, const struct eval_task *task,
                     const struct eval_fit *fit, int32_t n_target, int32_t index);

/* ---- What tasks share ---- */

/* Counts the tokens that every prompt has: those of the chat around it, or the BOS. Returns an exit code. */
int eval_count_overhead(int32_t *n, const struct eval_source *w);
/* The depth of a sample on the grid, in per cent, which its meta gets with the trial. */
double eval_grid_depth(const struct eval_source *w, int32_t index);
void eval_note_grid(struct eval_sample *s, const struct eval_source *w);
/* The index of the kth of n_depths * n_trials samples, in an order that covers depths evenly wherever it is cut off. Every depth
 * has a trial before any has the next one, and successive depths are distant from each other. */
int32_t eval_grid_index(int32_t n_depths, int32_t n_trials, int32_t k);

#endif
