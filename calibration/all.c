/* SPDX-License-Identifier: MIT */
/* winnow calibrate all: every profile that methods read and this model does not have. */
#include "app/console.h"
#include "app/models.h"
#include "app/profiles.h"
#include "app/stop.h"
#include "app/text.h"
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
        if (!*info.recipe || wnw_policy_parse(&policy, info.name, NULL) != WNW_OK)
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

/* The settings of one kind out of "KIND.KEY=VALUE,...", as its own --set has them; s stays NULL where it has none. */
static int settings_of(struct app_text *out, const char *list, const char *kind)
{
    const size_t n = strlen(kind);
    for (const char *at = list; at && *at; at += *at == ',') {
        const size_t len = strcspn(at, ",");
        if (len > n && strncmp(at, kind, n) == 0 && at[n] == '.' &&
            !app_text_put(out, "%s%.*s", out->len ? "," : "", (int)(len - n - 1), at + n + 1))
            return app_fail(APP_FAILED, "out of memory");
        at += len;
    }
    return APP_OK;
}

/* Whether every setting begins with the name of a kind that has a command. */
static int check_settings(const char *list)
{
    for (const char *at = list; at && *at; at += *at == ',') {
        const size_t len = strcspn(at, ","), n = strcspn(at, ".,");
        char kind[32];
        snprintf(kind, sizeof kind, "%.*s", (int)n, at);
        if (n == len || n >= sizeof kind || strcmp(kind, "all") == 0 || !command_of(kind))
            return app_fail(APP_BAD_INPUT,
                            "--set '%.*s' is no setting of a kind; give KIND.KEY=VALUE, such as srh.facts=2",
                            (int)len, at);
        at += len;
    }
    return APP_OK;
}

/* Runs a command with the options of `all`, as if they had been typed. */
static int run(const struct app_command *cmd, const struct calibrate_args *all)
{
    enum { MAX_WORDS = 20 };
    const char *argv[MAX_WORDS] = {cmd->name,   "-m",        all->app.model,   "--effort",
                                   all->effort, "--kv-type", all->app.kv_type, "--seed"};
    char seed[24], threads[24];
    struct app_text set = {0};
    int n = 8, rc = settings_of(&set, all->set, cmd->name + strlen("calibrate "));
    if (rc != APP_OK) {
        free(set.s);
        return rc;
    }
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
    if (set.s) {
        argv[n++] = "--set";
        argv[n++] = set.s;
    }
    struct app_args *args = calloc(1, cmd->args_size);
    rc = args ? APP_OK : app_fail(APP_FAILED, "out of memory");
    if (args) {
        app_note("%s", cmd->name);
        rc = app_parse(args, cmd, n, argv);
        if (rc == APP_OK)
            rc = cmd->run(args);
        app_args_clear(args, cmd);
    }
    free(args);
    free(set.s);
    return rc;
}

/* What one kind cannot measure, because the model answers no question, say, does not keep the others from being
 * measured; the first failure is the result. */
int calibrate_run_all(const struct app_args *app)
{
    const struct calibrate_args *args = (const struct calibrate_args *)app;
    const uint32_t kinds = kinds_of_presets();
    char *model_path;
    int worst = check_settings(args->set);
    if (worst != APP_OK)
        return worst;
    struct stat st;
    if (app->out && (stat(app->out, &st) != 0 || !S_ISDIR(st.st_mode)))
        return app_fail(APP_BAD_INPUT, "-o %s is not a folder; all profiles go to one", app->out);
    worst = app_model_path(&model_path, app->model);
    if (worst != APP_OK) /* one sentence, not one for each kind */
        return worst;
    struct app_profile_model model = {.path = model_path};
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++) {
        const char *name = wnw_profile_kind_name(kind);
        const struct app_command *cmd = command_of(name);
        char *path;
        if (!(kinds >> kind & 1u) || !cmd)
            continue;
        int rc = app_profile_find_own(&path, app->out, &model, kind);
        if (rc == APP_OK && path)
            app_note("%s is there: %s", name, path);
        else if (rc == APP_OK)
            rc = run(cmd, args);
        free(path);
        worst = worst == APP_OK || rc == APP_INTERRUPTED ? rc : worst;
        if (rc == APP_INTERRUPTED)
            break;
    }
    free(model_path);
    return worst;
}
