/* SPDX-License-Identifier: MIT */
/* Arguments of `winnow calibrate srh`. */
#ifndef WNW_CALIBRATION_SRH_H
#define WNW_CALIBRATION_SRH_H

#include "calibration/args.h"

struct srh_args {
    struct calibrate_args common;
    char *probes;
};

extern const struct app_group calibrate_group_probes;

#endif
