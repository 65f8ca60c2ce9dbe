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

/* The caller frees *options and closes the job in any case. */
static int measure_shares(char **options, struct calibrate_job *job, const struct shares_args *args)
{
    const char *set = args->common.set;
    WNW_TRY(calibrate_job_open(job));
    if (asprintf(options, "target=%s%s%s", args->target, set && *set ? "," : "", set ? set : "") < 0) {
        *options = NULL;
        return app_fail(APP_FAILED, "out of memory");
    }
    job->params.options = *options;
    WNW_TRY(calibrate_job_run(job));
    return calibrate_job_write(job);
}

int calibrate_run_shares(const struct app_args *app)
{
    const struct shares_args *args = (const struct shares_args *)app;
    struct calibrate_job job = {
        .args = &args->common, .kind = "shares", .outputs = {{"dump", args->common.dump}}, .all_kinds = true};
    char *options = NULL;
    const int rc = measure_shares(&options, &job, args);
    calibrate_job_close(&job);
    free(options);
    return rc;
}
