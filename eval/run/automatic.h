/* SPDX-License-Identifier: MIT */
/* What `auto` stands for among the policies of an evaluation: a recipe for each mode and size. */
#ifndef WNW_EVAL_AUTOMATIC_H
#define WNW_EVAL_AUTOMATIC_H

#include "eval/run/config.h"

/* Fills *choice. Lengths of prompts are not known yet, so that only a ratio says how much stays; of another size it is taken
 * to be little. Returns an exit code. */
int eval_auto(wnw_policy_choice *choice, const struct eval_args *args, const wnw_run *rules,
              enum eval_mode mode, const wnw_size *size);

#endif
