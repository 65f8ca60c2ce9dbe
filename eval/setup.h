/* SPDX-License-Identifier: MIT */
/* From the command's arguments to what all samples of a run have in common, and the list of tasks and
 * lengths. */
#ifndef WNW_EVAL_SETUP_H
#define WNW_EVAL_SETUP_H

#include "eval/args.h"
#include "eval/records.h"
#include "eval/set.h"
#include "eval/task.h"

enum { EVAL_MAX_TASKS = 64, EVAL_MAX_LENGTHS = 64 };

struct eval_setup {
    const struct eval_args *args;
    char *model_path;
    wnw_model *model;
    struct eval_tokenizer tokenizer;
    struct eval_chat chat;
    struct eval_records squad, hotpot;
    struct eval_world world;
    const struct eval_task *tasks[EVAL_MAX_TASKS];
    int32_t lengths[EVAL_MAX_LENGTHS];
    const struct eval_set *sets[EVAL_MAX_TASKS]; /* of files */
    int32_t n_tasks, n_lengths, n_sets;
};

/* Checks the arguments, then opens model, haystack and files. Returns an exit code; the caller closes in any
 * case. */
int eval_setup_open(struct eval_setup *s, const struct eval_args *args);
void eval_setup_close(struct eval_setup *s);
/* The folder of a set's file. */
const char *eval_setup_folder(const struct eval_setup *s, const struct eval_set *set);
/* Opens a set's file; prompts are cut to what the model and the options allow. Returns an exit code. */
int eval_setup_open_set(struct eval_set_reader *r, const struct eval_setup *s, const struct eval_set *set);
/* Number of samples of a task: the one that the options give, or one for each depth and trial. */
int32_t eval_setup_n_samples(const struct eval_setup *s, const struct eval_task *task);

#endif
