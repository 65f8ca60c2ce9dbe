/* SPDX-License-Identifier: MIT */
/* Arguments of winnow calibrate compiler. */
#ifndef WNW_CALIBRATION_COMPILER_H
#define WNW_CALIBRATION_COMPILER_H

#include "calibration/job.h"

struct compiler_args {
    struct calibrate_args common;
    char *budgets, *log, *verify;
    int64_t pieces;
};

extern const struct app_group calibrate_group_compiler, calibrate_group_verify;

#endif
