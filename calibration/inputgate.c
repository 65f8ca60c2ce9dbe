/* SPDX-License-Identifier: MIT */
/* winnow calibrate inputgate: scores of a second reading, predicted from hidden states. */
#include "calibration/commands.h"
#include "calibration/job.h"

int calibrate_run_inputgate(const struct app_args *args)
{
    struct calibrate_job job = {
        .args = (const struct calibrate_args *)args, .kind = "inputgate", .all_kinds = true};
    return calibrate_job(&job);
}
