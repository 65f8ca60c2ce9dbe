/* SPDX-License-Identifier: MIT */
/* Arguments of `winnow calibrate shares`. */
#ifndef WNW_CALIBRATE_SHARES_H
#define WNW_CALIBRATE_SHARES_H

#include "calibrate/args.h"

struct shares_args {
    struct calibrate_args common;
    char *target;
};

extern const struct app_group calibrate_group_target;

#endif
