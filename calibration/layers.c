/* SPDX-License-Identifier: MIT */
/* winnow calibrate layers */
#include "calibration/commands.h"

#include "calibration/policy.h"

int calibrate_run_layers(const struct app_args *args)
{
    const struct calibrate_args *own = (const struct calibrate_args *)args;
    struct calibrate_job job = {.args = own, .kind = "layers", .outputs = {{"dump", own->dump}}};
    return calibrate_policy_job(&job, "compresskv+uniform");
}
