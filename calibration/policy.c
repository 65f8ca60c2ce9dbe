/* SPDX-License-Identifier: MIT */
#include "calibration/policy.h"

#include "app/console.h"
#include "app/profiles.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Loads the results that the recipe's policy needs. */
static int load(wnw_profile **profile, struct calibrate_job *job, const char *recipe)
{
    const struct app_args *args = &job->args->app;
    struct app_text notes = {0};
    wnw_policy *policy;
    char user[96];
    const int status = wnw_policy_parse(&policy, recipe, NULL);
    if (status != WNW_OK)
        return app_fail_status(status);
    const wnw_needs needs = wnw_policy_needs(policy);
    wnw_policy_free(policy);
    snprintf(user, sizeof user, "policy %.80s", recipe);
    /* A folder for results may hold those of kinds that were measured before. */
    struct stat st;
    const bool folder = args->out && stat(args->out, &st) == 0 && S_ISDIR(st.st_mode);
    const int rc = app_profile_load(profile, &notes, job->model,
                                    &(struct app_profile_want){.given = args->profile ? args->profile
                                                                        : folder      ? args->out
                                                                                      : NULL,
                                                               .model = args->model,
                                                               .model_path = job->model_path,
                                                               .required = needs.profiles,
                                                               .optional = needs.profiles_optional,
                                                               .user = user,
                                                               .inputs = &job->inputs});
    const char *line = rc == APP_OK ? notes.s : NULL;
    while (line && *line) {
        const int len = (int)strcspn(line, "\n");
        app_note("warning: %.*s", len, line);
        line += len + (line[len] == '\n');
    }
    free(notes.s);
    return rc;
}

int calibrate_policy_job(struct calibrate_job *job, const char *def)
{
    const char *recipe = job->args->app.policy ? job->args->app.policy : def;
    wnw_profile *profile = NULL;
    int rc = calibrate_job_open(job);
    if (rc == APP_OK)
        rc = load(&profile, job, recipe);
    if (rc == APP_OK) {
        job->params.recipe = recipe;
        job->params.profile = profile;
        rc = calibrate_job_run(job);
    }
    if (rc == APP_OK)
        rc = calibrate_job_write(job);
    calibrate_job_close(job);
    wnw_profile_free(profile);
    return rc;
}
