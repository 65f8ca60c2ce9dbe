/* SPDX-License-Identifier: MIT */
/* Tasks: each has one descriptor, from which samples of any length are made. */
#ifndef WNW_EVAL_TASK_H
#define WNW_EVAL_TASK_H

#include "eval/tasks/haystack.h"
#include "eval/tasks/sample.h"
#include "eval/tasks/tokens.h"

enum { EVAL_MAX_DEPTHS = 64 };

/* Questions and documents of the user (qa_1, qa_2): see records.h. */
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
    const char *needle;                        /* of niah_grid: "rand", "num", "words" or "sf" */
    bool needle_mark;                          /* niah_grid's prompts begin as in CompressKV's code */
    int32_t vt_example_units;                  /* noise blocks of vt's example; 0 = not known yet */
    const struct eval_records *squad, *hotpot; /* NULL = none */
};

enum eval_task_flags {
    EVAL_ON_GRID = 1,       /* the index of a sample says its depth and trial */
    EVAL_HIDES_IN_TEXT = 2, /* uses the haystack: "essay" in RULER's table */
    EVAL_WANTS_SQUAD = 4,
    EVAL_WANTS_HOTPOT = 8,
    EVAL_STANDS_IN = 16, /* made-up data in place of a benchmark's own */
    EVAL_OWN_WORDS = 32  /* words of our lists (lists.h) in place of a benchmark's own */
};

/* A sample while it is made: of which task, of how many units, and from which random numbers. */
struct eval_draft {
    struct eval_source *w;
    const struct eval_task *task;
    int64_t units;
    struct eval_random r;
};

struct eval_task {
    const char *name, *group, *about;
    const char *unit; /* what a context consists of; the number of units determines its length */
    const char *metric;
    int32_t max_new;       /* tokens of the answer, which are part of the length */
    int32_t least;         /* shortest useful length in tokens, for messages */
    uint32_t flags;        /* eval_task_flags */
    int64_t units_at_once; /* first increment in the search for the number of units */
    int64_t least_units;   /* of a sample */
    /* Fills in context, turns and meta of a sample, of which the caller has set everything else. Returns an exit code; it may find
     * that there are too few units, and need not say itself that memory ran out for the sample. */
    int (*make)(struct eval_sample *s, struct eval_draft *d);
    const void *params;                    /* for make, NULL = none */
    int64_t (*units_of)(int32_t n_target); /* units of a length in tokens; NULL: as many as fit */
};

/* Task number i, NULL after the last. */
const struct eval_task *eval_task_get(int32_t i);
const struct eval_task *eval_task_find(const char *name);

/* The number of units that was found for a length. */
struct eval_fit {
    int64_t units;
};
/* Finds the most units with which sample 0 has at most n_target tokens, including the answer; a sample of several questions
 * has so many up to the end of its longest one, and as a conversation no more than the model's context holds. Returns an
 * exit code: bad input if not even the fewest units fit. */
int eval_task_fit(struct eval_fit *fit, struct eval_source *w, const struct eval_task *task,
                  int32_t n_target);
/* Makes sample `index` with the units of the fit, or with fewer if it is too long; one that cannot be made is marked so.
 * Returns an exit code. The caller clears the sample in any case. */
int eval_task_sample(struct eval_sample *s, struct eval_source *w, const struct eval_task *task,
                     const struct eval_fit *fit, int32_t n_target, int32_t index);

/* ---- What tasks share ---- */

/* Counts the tokens that every prompt has: those of the chat around it, or the BOS. Returns an exit code. */
int eval_count_overhead(int32_t *n, const struct eval_source *w);
/* Kinds of values: 7 digits, "adjective-noun" or a random UUID, in a buffer of EVAL_MAX_VALUE bytes. */
enum eval_value { EVAL_NUMBER, EVAL_WORDS, EVAL_UUID };
enum { EVAL_MAX_VALUE = 48 };
void eval_draw_value(char out[EVAL_MAX_VALUE], struct eval_random *r, enum eval_value kind);
/* The numbers 0 .. n - 1. The caller frees them; NULL if memory runs out. */
size_t *eval_iota(size_t n);
/* Draws k distinct numbers of 0 .. n - 1 into out[k], ascending; k <= n. Returns false if memory runs out, which the sample
 * notes. */
bool eval_draw_ascending(struct eval_sample *s, size_t *out, struct eval_random *r, size_t n, size_t k);
/* Whether text i of a list, in each of which a text has `size` bytes, is one of those before it. */
bool eval_is_repeated(const void *list, size_t size, size_t i);
/* Adds items as "a", "a, and b" or "a, b, c, and d". */
void eval_put_list(struct eval_sample *s, struct app_text *to, const char *const *items, int32_t n);
/* The depth of a sample on the grid, in per cent. */
double eval_grid_depth(const struct eval_source *w, int32_t index);
/* The index of the kth of n_depths * n_trials samples in an order that is fair to depths wherever it stops: one trial of every
 * depth before the next, and depths that follow each other are far apart. */
int32_t eval_grid_index(int32_t n_depths, int32_t n_trials, int32_t k);
/* Adds lines between copies of the noise block: lines[i] goes before block at[i], ascending in i; evidence[i]
 * says whether it is evidence (NULL: all are). Lines and blocks are separated by line breaks. */
void eval_put_in_noise(struct eval_sample *s, int64_t n_blocks, char *const *lines, const size_t *at,
                       size_t n, const bool *evidence);

/* Several chains of variables, a question for each (task_vt.c); one of the tasks of task_scb.c. */
int eval_make_chains(struct eval_sample *s, struct eval_draft *d);

/* RULER (task_niah.c, task_vt.c, task_lists.c, task_qa.c), needle grid and passkeys (task_passkey.c), several
 * turns (task_scb.c). Ended by a name of NULL. */
extern const struct eval_task eval_tasks_niah[], eval_tasks_vt[], eval_tasks_lists[], eval_tasks_qa[],
    eval_tasks_grid[], eval_tasks_passkey[], eval_tasks_scb[];

#endif
