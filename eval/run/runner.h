/* SPDX-License-Identifier: MIT */
/* The loop that all runs of `winnow eval --out` share. It handles the items of a shard, skips those that the folder has, prints
 * progress, and ends with the report of the folder. */
#ifndef WNW_EVAL_RUNNER_H
#define WNW_EVAL_RUNNER_H

#include "eval/run/config.h"
#include "eval/run/entry.h"
#include "eval/run/journal.h"
#include "eval/run/pace.h"
#include "eval/run/progress.h"
#include "eval/run/setup.h"
#include "eval/run/shard.h"

/* A run; `user` is its own. */
struct eval_run {
    const struct eval_args *args;
    const struct eval_suite *suite; /* NULL = the options name the tasks */
    struct eval_setup setup;
    struct eval_configs configs;
    struct eval_runtime runtime;
    struct eval_shard shard;
    struct eval_pace pace;
    struct eval_journal journal;
    struct eval_progress progress;
    int64_t n_written;
    void *user;
};

/* What runs differ in. The functions return exit codes. */
struct eval_run_kind {
    const char *records; /* what it calls them */
    /* Runs sample `index` of the item. Sets *ran to false if nothing had to be done. */
    int (*visit)(struct eval_run *run, bool *ran, struct eval_item *item, int32_t index);
    /* Says what was left out, once all was visited or the run was interrupted; refuses a run of nothing. NULL = nothing. */
    int (*check)(const struct eval_run *run);
    /* Makes of the folder, which has records, what is to be made of it. */
    int (*finish)(struct eval_run *run);
};

/* Opens the folder where it is this run's, and takes the description over. Returns an exit code. */
int eval_run_open_folder(struct eval_run *run, json_t *description);
/* Visits the items and finishes. Returns an exit code: APP_INTERRUPTED after a signal. */
int eval_run_all(struct eval_run *run, const struct eval_run_kind *kind, struct eval_items *items);
/* Adds a record to the folder. Returns an exit code. */
int eval_run_add(struct eval_run *run, const json_t *record);
void eval_run_close(struct eval_run *run);

#endif
