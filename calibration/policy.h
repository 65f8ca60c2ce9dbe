/* SPDX-License-Identifier: MIT */
/* Kinds that measure a policy, which may itself need calibration results. */
#ifndef WNW_CALIBRATION_POLICY_H
#define WNW_CALIBRATION_POLICY_H

#include "calibration/job.h"

/* calibrate_job for such a kind. `def` is the recipe where --policy gives none, the one that the library takes then.
 * Closes the job and returns an exit code. */
int calibrate_policy_job(struct calibrate_job *job, const char *def);

#endif
