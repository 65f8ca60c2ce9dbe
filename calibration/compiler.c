/* SPDX-License-Identifier: MIT */
/* winnow calibrate compiler: CompilerKV's tables. */
#include "calibration/commands.h"

#include "app/console.h"
#include "app/values.h"

#include <stdlib.h>
#include <string.h>

static const struct app_option options[] = {
    {"budget", 0, APP_TEXT, "LIST", NULL, "must be given",
     "entries per layer and KV head that the tables are for: N[,N...], a file each",
     offsetof(struct compiler_args, budgets), 0, 0, NULL},
};
APP_GROUP(calibrate_group_compiler, "Tables", options);

/* Reads N[,N...] of --budget into *out, which the caller frees in any case. */
static int parse_budgets(int32_t **out, int32_t *n, const char *list)
{
    char *copy = strdup(list), *rest = copy;
    int32_t *budgets = copy ? calloc(strlen(list) + 1, sizeof *budgets) : NULL;
    int rc = budgets ? APP_OK : app_fail(APP_FAILED, "out of memory");
    *n = 0;
    for (char *word; rc == APP_OK && (word = strsep(&rest, ","));) {
        int64_t value;
        if (!app_parse_int(&value, word) || value < 2 || value > INT32_MAX / 2) {
            rc = app_fail(APP_BAD_INPUT, "--budget '%s': '%s' is not a number from 2 to %d", list, word,
                          INT32_MAX / 2);
            break;
        }
        for (int32_t i = 0; i < *n; i++)
            if (budgets[i] == value)
                rc = app_fail(APP_BAD_INPUT, "--budget '%s' names %s twice", list, word);
        budgets[(*n)++] = (int32_t)value;
    }
    free(copy);
    *out = budgets;
    return rc;
}

int calibrate_run_compiler(const struct app_args *args)
{
    const struct compiler_args *a = (const struct compiler_args *)(const void *)args;
    struct calibrate_job job = {.args = &a->common, .kind = "compiler", .all_kinds = true};
    int32_t *budgets = NULL, n = 0;
    if (!a->budgets)
        return app_fail(APP_BAD_INPUT, "CompilerKV's tables belong to a budget; give one with --budget N");
    int rc = parse_budgets(&budgets, &n, a->budgets);
    if (rc == APP_OK)
        rc = calibrate_job_open(&job);
    if (rc == APP_OK && n > 1 && job.file)
        rc = app_fail(APP_BAD_INPUT,
                      "%d budgets make %d profiles, and '%s' is one file; name a folder with -o", (int)n,
                      (int)n, job.file);
    if (rc == APP_OK) {
        job.params.budgets = budgets;
        job.params.n_budgets = n;
        rc = calibrate_job_run(&job);
    }
    if (rc == APP_OK)
        rc = calibrate_job_write(&job);
    calibrate_job_close(&job);
    free(budgets);
    return rc;
}
