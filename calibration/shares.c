/* SPDX-License-Identifier: MIT */
/* winnow calibrate shares: head budgets from a method that reads its text twice. */
#include "calibration/commands.h"

#include "app/console.h"
#include "calibration/job.h"

#include <stdio.h>
#include <stdlib.h>

static const struct app_option target_options[] = {
    {"target", 0, APP_TEXT, "METHOD", "kvzip", NULL,
     "whose choice of entries is measured: kvzip or kvcompose", offsetof(struct shares_args, target), 0, 0,
     NULL},
};
APP_GROUP(calibrate_group_target, "Target", target_options);

int calibrate_run_shares(const struct app_args *app)
{
    const struct shares_args *args = (const struct shares_args *)app;
    struct calibrate_job job = {
        .args = &args->common, .kind = "shares", .outputs = {{"dump", args->common.dump}}, .all_kinds = true};
    const char *set = args->common.set;
    char *options = NULL;
    int rc = calibrate_job_open(&job);
    if (rc == APP_OK &&
        asprintf(&options, "target=%s%s%s", args->target, set && *set ? "," : "", set ? set : "") < 0) {
        options = NULL;
        rc = app_fail(APP_FAILED, "out of memory");
    }
    if (rc == APP_OK) {
        job.params.options = options;
        rc = calibrate_job_run(&job);
    }
    if (rc == APP_OK)
        rc = calibrate_job_write(&job);
    calibrate_job_close(&job);
    free(options);
    return rc;
}
