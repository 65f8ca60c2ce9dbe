/* SPDX-License-Identifier: MIT */
/* Tasks with several questions on one context: the score of each. */
#ifndef WNW_EVAL_TURNS_H
#define WNW_EVAL_TURNS_H

#include "eval/results/table.h"

enum { EVAL_MAX_TURNS = 16 };

/* Mean score of a variant at each of the first EVAL_MAX_TURNS turns of a task, over the strata of a block; NaN where it has
 * none. Returns how many turns the task has, of any variant, which may be more: 1 for tasks of one question, 0 for tasks that
 * the block does not have. */
int32_t eval_turn_means(double mean[EVAL_MAX_TURNS], const struct eval_run *run, const struct eval_block *b,
                        int32_t task, int32_t variant);
/* How many of a task's turns have a mean. */
int32_t eval_turns_shown(int32_t n_turns);

#endif
