/* SPDX-License-Identifier: MIT */
/* The table of kinds of calibration. */
#include "calibrate/commands.h"

const struct app_command calibrate_commands[] = {
    {.name = NULL},
};
