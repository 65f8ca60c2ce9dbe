/* SPDX-License-Identifier: MIT */
/* Whether CompilerKV's tables help: a profile's against neutral ones on a text that calibration did not read. */
#ifndef WNW_CALIBRATION_VERIFY_H
#define WNW_CALIBRATION_VERIFY_H

#include "calibration/job.h"

/* Compares the tables of the profile file at `path` with neutral ones on n_pieces pieces of the job's text and
 * prints what the text's likelihood gains, with intervals. The job was opened. Returns an exit code. */
int calibrate_verify(const struct calibrate_job *job, const char *path, int32_t n_pieces);

#endif
