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

struct eval_suite {
    const char *name, *about;
    const struct eval_suite_item *items;
    const char *policies, *modes, *ratios, *depths, *lengths;
    bool
        short_answers; /* answers end after as many tokens as the task needs, not after those of the benchmark */
    int32_t n_probes; /* samples of each task that only show whether the full cache can solve it */
};

/* Suite number i, NULL after the last; the suite of a name, NULL if there is none. */
const struct eval_suite *eval_suite_get(int32_t i);
const struct eval_suite *eval_suite_find(const char *name);
/* The most tokens of an answer where short answers are asked for; 0 = the task's own number. */
int32_t eval_suite_answer(const char *task);

#endif
