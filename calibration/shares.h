/* SPDX-License-Identifier: MIT */
/* Arguments of `winnow calibrate shares`. */
#ifndef WNW_CALIBRATION_SHARES_H
#define WNW_CALIBRATION_SHARES_H

#include "calibration/args.h"

struct shares_args {
    struct calibrate_args common;
    char *target;
};

extern const struct app_group calibrate_group_target;

#endif
