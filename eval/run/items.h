/* SPDX-License-Identifier: MIT */
/* What is asked in a run: from the lists of the options to tasks with lengths and numbers of samples. */
#ifndef WNW_EVAL_ITEMS_H
#define WNW_EVAL_ITEMS_H

#include "eval/args.h"
#include "eval/run/lists.h"
#include "eval/run/suite.h"
#include "eval/tasks/set.h"

/* Samples of one task and length, or of one set of the user's, or pieces of a text. */
struct eval_item {
    const struct eval_task *task;
    int32_t n_target, n_trials; /* 0 and 1 for sets */
    int32_t n;                  /* samples */
    int32_t n_probes; /* more for the full cache alone: can it solve the task? From EVAL_GATE_FIRST on */
    struct {
        int32_t n, n_probes;
    } planned;          /* both, before --time-budget lowered them */
    int32_t max_new;    /* the most tokens of an answer, where a line of the file has no number of its own */
    char file_hash[17]; /* of a set's file, hexadecimal */
    struct eval_fit fit;
    struct eval_set_reader reader;
    bool open; /* the reader */
};
/* Whether its length is within a model's context. Items that are longer are left out of a run, whole. */
bool eval_item_fits(const struct eval_item *item, int32_t n_ctx);
/* Whether it has samples that are made, and not those of a file or pieces of a text. */
bool eval_item_is_made(const struct eval_item *item);

struct eval_items {
    struct eval_item *items; /* [n], owned */
    int32_t n;
    struct eval_numbers depths; /* of tasks on a grid, in per cent */
};
/* The suite is NULL where the options name the tasks. Returns an exit code; the caller closes in any case. */
int eval_items_open(struct eval_items *items, const struct eval_args *args, const struct eval_suite *suite);
void eval_items_close(struct eval_items *items);

/* Trials of each depth where the suite has no number of its own. */
int32_t eval_n_trials(const struct eval_args *args);
/* The folder or the file that the options name for a task; NULL if they name none, or if it needs none. */
const char *eval_task_source(const struct eval_args *args, const struct eval_task *task);
/* Tokens that answers to the task may have beyond its own number. */
int32_t eval_extra_tokens(const struct eval_args *args, const struct eval_task *task);

#endif
