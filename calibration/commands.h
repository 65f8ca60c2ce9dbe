/* SPDX-License-Identifier: MIT */
/* The kinds of `winnow calibrate`. */
#ifndef WNW_CALIBRATION_COMMANDS_H
#define WNW_CALIBRATION_COMMANDS_H

#include "app/options.h"
#include "calibration/job.h"

extern const struct app_command calibrate_commands[]; /* ended by a name of NULL */

/* Each is defined in the file of its kind and returns an exit code. */
int calibrate_run_srh(const struct app_args *args);
int calibrate_run_layers(const struct app_args *args);
int calibrate_run_compiler(const struct app_args *args);
int calibrate_run_heads(const struct app_args *args);
int calibrate_run_stats(const struct app_args *args);
int calibrate_run_all(const struct app_args *args);
int calibrate_run_curves(const struct app_args *args);
int calibrate_run_shares(const struct app_args *args);
int calibrate_run_gate(const struct app_args *args);
int calibrate_run_gradient(const struct app_args *args);
int calibrate_run_inputgate(const struct app_args *args);
int calibrate_run_quality(const struct app_args *args);

#endif
