/* SPDX-License-Identifier: MIT */
/* winnow calibrate gate: scores of a second reading, predicted from the cache. */
#include "calibration/commands.h"
#include "calibration/job.h"

int calibrate_run_gate(const struct app_args *args)
{
    struct calibrate_job job = {
        .args = (const struct calibrate_args *)args, .kind = "gate", .all_kinds = true};
    return calibrate_job(&job);
}
