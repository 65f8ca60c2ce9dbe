/* SPDX-License-Identifier: MIT */
/* winnow calibrate compiler: CompilerKV's tables. */
#include "calibration/commands.h"

#include "app/console.h"
#include "app/values.h"
#include "calibration/cell.h"
#include "calibration/verify.h"

#include <stdlib.h>
#include <string.h>

static const struct app_option options[] = {
    {"budget", 0, APP_TEXT, "LIST", NULL, "none, must be given to calibrate; with --cell the table's own",
     "entries per layer and KV head that the tables are for: N[,N...], a file each",
     offsetof(struct compiler_args, budgets), 0, 0, NULL},
};
APP_GROUP(calibrate_group_compiler, "Tables", options);

static const struct app_option verify_options[] = {
    {"verify", 0, APP_TEXT, "FILE", NULL, "none",
     "calibrate nothing: compare the tables of this profile with neutral ones on the text of -f",
     offsetof(struct compiler_args, verify), 0, 0, NULL},
    {"pieces", 0, APP_INT, "N", NULL, "40; with --cell 1, the beginning",
     "pieces of the text to compare on, or to look at", offsetof(struct compiler_args, pieces), 1, 1000000,
     "1 to 1000000"},
    {"json", 0, APP_FLAG, NULL, NULL, "off", "print the comparison, or the cells, as one JSON object",
     offsetof(struct compiler_args, common.app.json), 0, 0, NULL},
};
APP_GROUP(calibrate_group_verify, "Comparing", verify_options);

static const struct app_option cell_options[] = {
    {"cell", 0, APP_TEXT, "FILE", NULL, "none",
     "calibrate nothing: print entropy, perplexity and cell of the prompt in -f, and where the thresholds of "
     "this profile "
     "bind",
     offsetof(struct compiler_args, cell), 0, 0, NULL},
    {"lengths", 0, APP_TEXT, "LIST", NULL, "the whole text, as far as the context reaches",
     "tokens of a prompt: N[,N...]", offsetof(struct compiler_args, lengths), 0, 0, NULL},
};
APP_GROUP(calibrate_group_cell, "Looking at a prompt", cell_options);

/* Reads N[,N...] of option --name into *out, which the caller frees. */
static int parse_list(int32_t **out, int32_t *n, const char *name, const char *list)
{
    char *copy = strdup(list), *rest = copy;
    int32_t *budgets = copy ? calloc(strlen(list) + 1, sizeof *budgets) : NULL;
    int rc = budgets ? APP_OK : app_fail(APP_FAILED, "out of memory");
    *n = 0;
    for (char *word; rc == APP_OK && (word = strsep(&rest, ","));) {
        int64_t value;
        if (!app_parse_int(&value, word) || value < 2 || value > INT32_MAX / 2)
            rc = app_fail(APP_BAD_INPUT, "--%s '%s': '%s' is not a number from 2 to %d", name, list, word,
                          INT32_MAX / 2);
        for (int32_t i = 0; rc == APP_OK && i < *n; i++)
            if (budgets[i] == value)
                rc = app_fail(APP_BAD_INPUT, "--%s '%s' names %s twice", name, list, word);
        if (rc == APP_OK)
            budgets[(*n)++] = (int32_t)value;
    }
    free(copy);
    if (rc != APP_OK) {
        free(budgets);
        budgets = NULL;
    }
    *out = budgets;
    return rc;
}

/* Compares tables instead of making them. */
static int run_verify(const struct compiler_args *a)
{
    struct calibrate_job job = {.args = &a->common, .kind = "compiler"};
    if (a->budgets || a->common.app.out || a->common.set || a->cell || a->lengths)
        return app_fail(APP_BAD_INPUT,
                        "--verify calibrates nothing; leave out --budget, --set, --cell, --lengths "
                        "and -o");
    int rc = calibrate_job_open(&job);
    if (rc == APP_OK)
        rc = calibrate_verify(&job, a->verify, a->pieces == APP_UNSET ? 40 : (int32_t)a->pieces);
    calibrate_job_close(&job);
    return rc;
}

/* Shows what tables make of prompts. */
static int run_cell(const struct compiler_args *a)
{
    struct calibrate_job job = {.args = &a->common, .kind = "compiler"};
    struct calibrate_cells what = {.path = a->cell,
                                   .n_pieces = a->pieces == APP_UNSET ? 1 : (int32_t)a->pieces};
    int32_t *budgets = NULL, *lengths = NULL;
    if (a->common.app.out || a->common.set)
        return app_fail(APP_BAD_INPUT, "--cell calibrates nothing; leave out --set and -o");
    if (!a->common.app.file)
        return app_fail(APP_BAD_INPUT, "--cell looks at a prompt; name its text with -f");
    int rc = a->budgets ? parse_list(&budgets, &what.n_budgets, "budget", a->budgets) : APP_OK;
    if (rc == APP_OK && a->lengths)
        rc = parse_list(&lengths, &what.n_lengths, "lengths", a->lengths);
    if (rc == APP_OK)
        rc = calibrate_job_open(&job);
    what.budgets = budgets;
    what.lengths = lengths;
    if (rc == APP_OK)
        rc = calibrate_cell(&job, &what);
    calibrate_job_close(&job);
    free(budgets);
    free(lengths);
    return rc;
}

int calibrate_run_compiler(const struct app_args *args)
{
    const struct compiler_args *a = (const struct compiler_args *)(const void *)args;
    struct calibrate_job job = {.args = &a->common, .kind = "compiler", .all_kinds = true};
    int32_t *budgets = NULL, n = 0;
    if (a->verify)
        return run_verify(a);
    if (a->cell)
        return run_cell(a);
    if (a->lengths || a->pieces != APP_UNSET)
        return app_fail(APP_BAD_INPUT, "--%s is for --cell%s; a calibration has --set length=N,items=N",
                        a->lengths ? "lengths" : "pieces", a->lengths ? "" : " and --verify");
    if (!a->budgets)
        return app_fail(APP_BAD_INPUT, "CompilerKV's tables belong to a budget; give one with --budget N");
    int rc = parse_list(&budgets, &n, "budget", a->budgets);
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
