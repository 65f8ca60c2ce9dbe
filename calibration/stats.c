/* SPDX-License-Identifier: MIT */
/* winnow calibrate stats: what the queries of a model look like. */
#include "calibration/commands.h"
#include "calibration/job.h"

int calibrate_run_stats(const struct app_args *args)
{
    struct calibrate_job job = {.args = (const struct calibrate_args *)args, .kind = "stats"};
    return calibrate_job(&job);
}
