/* SPDX-License-Identifier: MIT */
/* winnow calibrate heads: how important heads are. */
#include "calibration/commands.h"
#include "calibration/job.h"

int calibrate_run_heads(const struct app_args *app)
{
    const struct calibrate_args *args = (const struct calibrate_args *)app;
    struct calibrate_job job = {.args = args, .kind = "heads", .outputs = {{"dump", args->dump}}};
    return calibrate_job(&job);
}
