/* SPDX-License-Identifier: MIT */
/* The kinds of `winnow calibrate` that have no options of their own. */
#include "calibration/commands.h"

#include "app/automatic.h"
#include "app/console.h"
#include "app/profiles.h"
#include "calibration/job.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Kinds that read texts alone ---- */

int calibrate_run_heads(const struct app_args *app)
{
    const struct calibrate_args *args = (const struct calibrate_args *)app;
    struct calibrate_job job = {.args = args, .kind = "heads", .outputs = {{"dump", args->dump}}};
    return calibrate_job(&job);
}

int calibrate_run_stats(const struct app_args *args)
{
    struct calibrate_job job = {.args = (const struct calibrate_args *)args, .kind = "stats"};
    return calibrate_job(&job);
}

int calibrate_run_gate(const struct app_args *args)
{
    struct calibrate_job job = {
        .args = (const struct calibrate_args *)args, .kind = "gate", .all_kinds = true};
    return calibrate_job(&job);
}

int calibrate_run_gradient(const struct app_args *args)
{
    struct calibrate_job job = {
        .args = (const struct calibrate_args *)args, .kind = "gradient", .all_kinds = true};
    return calibrate_job(&job);
}

/* ---- Kinds that measure a policy, which may itself need calibration results ---- */

/* Loads results of these kinds, which `user` needs. */
static int load(wnw_profile **profile, struct calibrate_job *job, uint32_t required, uint32_t optional,
                const char *user)
{
    const struct app_args *args = &job->args->app;
    struct app_text notes = {0};
    /* A folder for results may hold those of kinds that were measured before. */
    struct stat st;
    const bool folder = args->out && stat(args->out, &st) == 0 && S_ISDIR(st.st_mode);
    const char *before = folder ? args->out : NULL;
    const int rc =
        app_profile_load(profile, &notes, job->model,
                         &(struct app_profile_want){.given = args->profile ? args->profile : before,
                                                    .model = args->model,
                                                    .model_path = job->model_path,
                                                    .required = required,
                                                    .optional = optional,
                                                    .user = user,
                                                    .inputs = &job->inputs});
    app_note_lines("warning: ", rc == APP_OK ? notes.s : NULL);
    free(notes.s);
    return rc;
}

/* Loads the results that the recipe's policy needs. */
static int load_for(wnw_profile **profile, struct calibrate_job *job, const char *recipe)
{
    wnw_policy *policy;
    char user[96];
    const int status = wnw_policy_parse(&policy, recipe, NULL);
    if (status != WNW_OK)
        return app_fail_status(status);
    const wnw_needs needs = wnw_policy_needs(policy);
    wnw_policy_free(policy);
    snprintf(user, sizeof user, "policy %.80s", recipe);
    return load(profile, job, needs.profiles, needs.profiles_optional, user);
}

/* The caller frees *profile and closes the job in any case. */
static int measure_policy(wnw_profile **profile, struct calibrate_job *job, const char *recipe)
{
    WNW_TRY(calibrate_job_open(job));
    WNW_TRY(load_for(profile, job, recipe));
    job->params.recipe = recipe;
    job->params.profile = *profile;
    WNW_TRY(calibrate_job_run(job));
    return calibrate_job_write(job);
}

/* `def` is the recipe where --policy gives none, the one that the library takes then. */
static int run_policy(struct calibrate_job *job, const char *def)
{
    wnw_profile *profile = NULL;
    const int rc = measure_policy(&profile, job, job->args->app.policy ? job->args->app.policy : def);
    calibrate_job_close(job);
    wnw_profile_free(profile);
    return rc;
}

int calibrate_run_layers(const struct app_args *app)
{
    const struct calibrate_args *args = (const struct calibrate_args *)app;
    struct calibrate_job job = {
        .args = args, .kind = "layers", .outputs = {{"dump", args->dump}}, .all_kinds = true};
    return run_policy(&job, "compresskv+uniform");
}

int calibrate_run_curves(const struct app_args *app)
{
    const struct calibrate_args *args = (const struct calibrate_args *)app;
    struct calibrate_job job = {.args = args, .kind = "curves", .outputs = {{"dump", args->dump}}};
    return run_policy(&job, "expected_attention:epsilon=0.02");
}

/* The caller frees *profile and closes the job in any case. */
static int measure_quality(wnw_profile **profile, struct calibrate_job *job)
{
    WNW_TRY(calibrate_job_open(job));
    WNW_TRY(load(profile, job, 0, APP_KEEP_PROFILES, "calibrate quality"));
    job->params.profile = *profile;
    WNW_TRY(calibrate_job_run(job));
    return calibrate_job_write(job);
}

int calibrate_run_quality(const struct app_args *app)
{
    struct calibrate_job job = {
        .args = (const struct calibrate_args *)app, .kind = "quality", .all_kinds = true};
    wnw_profile *profile = NULL;
    const int rc = measure_quality(&profile, &job);
    calibrate_job_close(&job);
    wnw_profile_free(profile);
    return rc;
}
