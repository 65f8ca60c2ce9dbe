/* SPDX-License-Identifier: MIT */
/* Arguments of the evaluation's sub-commands. */
#ifndef WNW_EVAL_ARGS_H
#define WNW_EVAL_ARGS_H

#include "app/args.h"

struct eval_args {
    struct app_args app;
    char *metric, *input;
};

extern const struct app_group eval_group_score;

#endif
