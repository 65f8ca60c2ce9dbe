/* SPDX-License-Identifier: MIT */
/* winnow calibrate all: every profile that methods read and this model does not have. */
#include "app/console.h"
#include "app/models.h"
#include "app/profiles.h"
#include "app/stop.h"
#include "calibration/commands.h"
#include "calibration/job.h"
#include "winnow_method.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* CompilerKV's tables belong to a budget and serve half of it to twice as much. */
#define COMPILER_BUDGET "512"

/* Bit set of the kinds of profile that some preset reads. */
static uint32_t kinds_of_presets(void)
{
    wnw_method_info info = wnw_method_info_default();
    uint32_t kinds = 0;
    for (int32_t i = 0; wnw_method_get(i, &info); i++) {
        wnw_policy *policy;
        if (!*info.recipe || wnw_policy_parse(&policy, info.recipe, NULL) != WNW_OK)
            continue;
        const wnw_needs needs = wnw_policy_needs(policy);
        kinds |= needs.profiles | needs.profiles_optional;
        wnw_policy_free(policy);
    }
    return kinds;
}

/* The command that makes profiles of a kind; NULL if there is none. */
static const struct app_command *command_of(const char *kind)
{
    for (const struct app_command *c = calibrate_commands; c->name; c++)
        if (strncmp(c->name, "calibrate ", 10) == 0 && strcmp(c->name + 10, kind) == 0)
            return c;
    return NULL;
}

/* Runs a command with the options of `all`, as if they had been typed. */
static int run(const struct app_command *cmd, const struct calibrate_args *all)
{
    enum { MAX_WORDS = 20 };
    const char *argv[MAX_WORDS] = {cmd->name,   "-m",        all->app.model,   "--effort",
                                   all->effort, "--kv-type", all->app.kv_type, "--seed"};
    char seed[24], threads[24];
    int n = 8;
    snprintf(seed, sizeof seed, "%lld", (long long)all->app.seed);
    argv[n++] = seed;
    if (all->app.file) {
        argv[n++] = "-f";
        argv[n++] = all->app.file;
    }
    if (all->app.threads != APP_UNSET) {
        snprintf(threads, sizeof threads, "%lld", (long long)all->app.threads);
        argv[n++] = "-t";
        argv[n++] = threads;
    }
    if (all->app.out) {
        argv[n++] = "-o";
        argv[n++] = all->app.out;
    }
    if (strcmp(cmd->name, "calibrate compiler") == 0) {
        argv[n++] = "--budget";
        argv[n++] = COMPILER_BUDGET;
    }
    struct app_args *args = calloc(1, cmd->args_size);
    if (!args)
        return app_fail(APP_FAILED, "out of memory");
    app_note("%s", cmd->name);
    int rc = app_parse(args, cmd, n, argv);
    if (rc == APP_OK)
        rc = cmd->run(args);
    app_args_clear(args, cmd);
    free(args);
    return rc;
}

/* What one kind cannot measure, because the model answers no question, say, does not keep the others from being
 * measured; the first failure is the result. */
int calibrate_run_all(const struct app_args *app)
{
    const struct calibrate_args *args = (const struct calibrate_args *)app;
    const uint32_t kinds = kinds_of_presets();
    char *model_path;
    int worst = app_model_path(&model_path, app->model);
    free(model_path);
    if (worst != APP_OK) /* one sentence, not one for each kind */
        return worst;
    struct stat st;
    if (app->out && (stat(app->out, &st) != 0 || !S_ISDIR(st.st_mode)))
        return app_fail(APP_BAD_INPUT, "-o %s is not a folder; all profiles go to one", app->out);
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++) {
        const char *name = wnw_profile_kind_name(kind);
        const struct app_command *cmd = command_of(name);
        const struct app_profile_want want = {.given = app->out, .model_path = app->model};
        char *path;
        if (!(kinds >> kind & 1u) || !cmd)
            continue;
        int rc = app_profile_find(&path, &want, kind);
        if (rc == APP_OK && path)
            app_note("%s is there: %s", name, path);
        else if (rc == APP_OK)
            rc = run(cmd, args);
        free(path);
        if (rc == APP_INTERRUPTED)
            return rc;
        worst = worst == APP_OK ? rc : worst;
    }
    return worst;
}
