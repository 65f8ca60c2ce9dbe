/* SPDX-License-Identifier: MIT */
/* Arguments of winnow calibrate compiler. */
#ifndef WNW_CALIBRATE_COMPILER_H
#define WNW_CALIBRATE_COMPILER_H

#include "calibrate/job.h"

struct compiler_args {
    struct calibrate_args common;
    char *budgets, *log;
};

extern const struct app_group calibrate_group_compiler;

#endif
