/* SPDX-License-Identifier: MIT */
/* Suites: lists of tasks with lengths and numbers of samples, and the options that go with them. */
#ifndef WNW_EVAL_SUITE_H
#define WNW_EVAL_SUITE_H

#include <stdbool.h>
#include <stdint.h>

struct eval_suite_item {
    const char *tasks; /* a task or group; NULL ends the list */
    int32_t length;    /* tokens; 0 = the list of the suite, as far as the model's context reaches */
    int32_t n;         /* samples; tasks on a grid have one for each depth and trial instead */
    int32_t n_trials;  /* of tasks on a grid */
};

/* What is compared: the product of these lists, which are written as in the options of the same names. */
struct eval_part {
    const char *policies;         /* NULL ends the list of parts */
    const char *modes;            /* NULL: "agnostic" */
    const char *ratios, *budgets; /* one of the two; neither: "0.5" */
    const char *kv_types;         /* NULL: "f16" */
    const char *evict;            /* NULL: "end" */
    const char *masks;            /* NULL: no heads are masked */
    const char *mask_phase;       /* NULL: "all" */
};

struct eval_suite {
    const char *name, *about;
    const struct eval_suite_item *items;
    const struct eval_part *parts; /* every sample is answered under what any of them names */
    const char *depths, *lengths;
    bool
        short_answers; /* answers end after as many tokens as the task needs, not after those of the benchmark */
    int32_t n_probes;      /* samples of each task that only show whether the full cache can solve it */
    bool alone;            /* every policy reads for itself and answers alone: for times */
    int32_t answer_tokens; /* of every answer, whatever would end it; 0 = until it ends */
};

/* Suite number i, NULL after the last; the suite of a name, NULL if there is none. */
const struct eval_suite *eval_suite_get(int32_t i);
const struct eval_suite *eval_suite_find(const char *name);
/* The most tokens of an answer where short answers are asked for; 0 = the task's own number. */
int32_t eval_suite_answer(const char *task);

#endif
