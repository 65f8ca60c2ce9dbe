/* SPDX-License-Identifier: MIT */
/* Which samples of a run a process has, and in which order they come. */
#ifndef WNW_EVAL_SHARD_H
#define WNW_EVAL_SHARD_H

#include "eval/run/items.h"

/* Part i of n, counted from 0. */
struct eval_shard {
    int32_t i, n;
};

/* Reads "I/N", counted from 1; NULL is the whole run. Returns an exit code. */
int eval_shard_read(struct eval_shard *shard, const char *text);

/* The index of the kth sample, or probe, of an item; n_depths of tasks on a grid. */
int32_t eval_shard_index(const struct eval_item *item, int32_t n_depths, bool probe, int32_t k);

/* Returns an exit code; any but APP_OK ends the visits. */
typedef int eval_visit(void *user, struct eval_item *item, int32_t index);
/* Calls `visit` for the probes of the shard, then for its samples: sample 0 of each task, then sample 1 and so on. Which
 * shard has a sample follows from the numbers that were planned. So a shard whose numbers --time-budget lowered
 * leaves samples out, but never has one that belongs to another shard. Returns what the last visit did. */
int eval_shard_each(const struct eval_shard *shard, struct eval_items *items, eval_visit *visit, void *user);

#endif
