/* SPDX-License-Identifier: MIT */
/* winnow calibrate curves */
#include "calibration/commands.h"

#include "calibration/policy.h"

int calibrate_run_curves(const struct app_args *args)
{
    const struct calibrate_args *own = (const struct calibrate_args *)args;
    struct calibrate_job job = {.args = own, .kind = "curves", .outputs = {{"dump", own->dump}}};
    return calibrate_policy_job(&job, "expected_attention:epsilon=0.02");
}
