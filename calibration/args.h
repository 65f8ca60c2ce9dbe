/* SPDX-License-Identifier: MIT */
/* Arguments of `winnow calibrate KIND`. Those of a kind that has more begin with what all have. */
#ifndef WNW_CALIBRATION_ARGS_H
#define WNW_CALIBRATION_ARGS_H

#include "app/args.h"

struct calibrate_args {
    struct app_args app;
    char *effort, *set, *dump, *map;
};

struct srh_args {
    struct calibrate_args common;
    char *probes;
};
struct compiler_args {
    struct calibrate_args common;
    char *budgets;
};
struct shares_args {
    struct calibrate_args common;
    char *target;
};

/* The options of every kind, but --set (of a kind, and of all of them), --dump and --map, which are groups of their own. */
extern const struct app_group calibrate_group_work, calibrate_group_policy, calibrate_group_profile,
    calibrate_group_set, calibrate_group_set_all, calibrate_group_dump, calibrate_group_map;
/* Those of one kind, in its file: srh.c, compiler.c, shares.c. */
extern const struct app_group calibrate_group_probes, calibrate_group_compiler, calibrate_group_target;

#endif
