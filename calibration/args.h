/* SPDX-License-Identifier: MIT */
/* Arguments of `winnow calibrate KIND`. Those of a kind that has more begin with this struct. */
#ifndef WNW_CALIBRATION_ARGS_H
#define WNW_CALIBRATION_ARGS_H

#include "app/args.h"

struct calibrate_args {
    struct app_args app;
    char *effort, *set, *dump, *map;
};

/* The options of every kind, but --set, --dump and --map, which are groups of their own. */
extern const struct app_group calibrate_group_work, calibrate_group_policy, calibrate_group_set,
    calibrate_group_dump, calibrate_group_map;

#endif
