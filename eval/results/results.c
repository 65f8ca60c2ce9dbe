/* SPDX-License-Identifier: MIT */
/* Folders of results, and which of them are shards of one run. */
#include "eval/results/results.h"

#include "app/console.h"
#include "app/files.h"
#include "app/models.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *eval_results_path(const char *folder)
{
    char *path = app_in_folder(folder, "results.jsonl"), *packed = app_in_folder(folder, "results.jsonl.gz");
    const bool is_packed = path && packed && access(path, F_OK) != 0 && access(packed, F_OK) == 0;
    free(is_packed ? path : packed);
    return is_packed ? packed : path;
}

/* Adds the lines of a folder's results. */
static int read_lines(struct eval_run *run, int32_t folder)
{
    struct eval_jsonl j;
    json_t *line = NULL;
    char *path = eval_results_path(run->folders[folder]);
    if (!path)
        return eval_no_memory(run->folders[folder]);
    int rc = eval_jsonl_open_regular(&j, path);
    j.growing = true;
    while (rc == APP_OK && (rc = eval_jsonl_next(&j, &line)) == APP_OK && line) {
        rc = eval_results_add(run, &j, folder, line);
        json_decref(line);
        line = NULL;
    }
    run->n_torn += rc == APP_OK && j.torn;
    eval_jsonl_close(&j);
    free(path);
    return rc;
}

static void clear_run(struct eval_run *run)
{
    for (int32_t i = 0; i < run->n_folders; i++)
        free(run->folders[i]);
    for (int32_t i = 0; i < run->n_tasks; i++)
        free(run->tasks[i]);
    for (int32_t i = 0; i < run->n_variants; i++) {
        for (int k = 0; k < EVAL_N_NAMES; k++)
            free(run->variants[i].name[k]);
        free(run->variants[i].canonical);
        free(run->variants[i].more);
        free(run->variants[i].why);
    }
    free(run->folders);
    free(run->tasks);
    free(run->variants);
    free(run->results);
    free(run->probes);
    free(run->model);
    json_decref(run->info);
    *run = (struct eval_run){0};
}

static bool add_folder(struct eval_run *run, const char *folder)
{
    if (!eval_grow(&run->folders, (size_t)run->n_folders, sizeof *run->folders))
        return false;
    run->folders[run->n_folders] = strdup(folder);
    return run->folders[run->n_folders] && ++run->n_folders > 0;
}

/* ---- run.json ---- */

/* The model's name: "model" is a text, or an object with "file" or "name". Folders and ".gguf" are left out. */
static char *model_name(const json_t *info)
{
    const json_t *model = json_object_get(info, "model");
    const json_t *name = json_is_object(model) ? json_object_get(model, "file") : model;
    if (json_is_object(model) && !json_is_string(name))
        name = json_object_get(model, "name");
    return app_model_short(json_is_string(name) ? json_string_value(name) : "model without a name");
}

/* Reads run.json into run->info, run->model and run->seed. Returns an exit code. */
static int read_info(struct eval_run *run, const char *folder)
{
    char *path = app_in_folder(folder, "run.json"), *text = NULL;
    size_t len;
    json_error_t error;
    if (!path)
        return eval_no_memory(folder);
    int rc = app_read_regular(&text, &len, path);
    if (rc == APP_OK) {
        run->info = json_loadb(text, len, 0, &error);
        run->model = run->info ? model_name(run->info) : NULL;
        const json_t *seed = json_object_get(run->info, "seed");
        run->seed = json_is_integer(seed) ? (uint64_t)json_integer_value(seed) : 42;
        run->n_too_long = json_integer_value(json_object_get(run->info, "too_long"));
        run->n_unmade = json_integer_value(json_object_get(run->info, "unmade"));
        if (!run->info && json_error_code(&error) != json_error_out_of_memory)
            rc = app_fail(APP_BAD_INPUT, "'%s' line %d: not JSON: %s", path, error.line, error.text);
        else if (!run->model)
            rc = eval_no_memory(path);
        else if (!json_is_object(run->info))
            rc = app_fail(APP_BAD_INPUT, "'%s' is not a JSON object in braces", path);
        else if (json_is_object(json_object_get(run->info, "texts")))
            rc = app_fail(APP_BAD_INPUT,
                          "'%s' is a study that asks no questions; it has a report of its own: name no other "
                          "folder with it",
                          folder);
    }
    free(text);
    free(path);
    return rc;
}

/* Reads a folder's run.json and puts the folder to the run that it is a shard of, or to a new one. */
static int place_folder(struct eval_runs *out, const char *folder)
{
    struct stat st;
    struct eval_run run = {0};
    int32_t i;
    if (stat(folder, &st) == 0 && !S_ISDIR(st.st_mode))
        return app_fail(APP_BAD_INPUT, "'%s' is not a folder; name the folder that `winnow eval --out` wrote",
                        folder);
    int rc = read_info(&run, folder);
    for (i = 0; rc == APP_OK && i < out->n && eval_info_difference(out->run[i].info, run.info, true); i++)
        ;
    if (rc != APP_OK) {
        clear_run(&run);
        return rc;
    }
    if (i == out->n) {
        out->run[out->n++] = run;
    } else {
        out->run[i].n_too_long += run.n_too_long;
        out->run[i].n_unmade += run.n_unmade;
        clear_run(&run);
    }
    return add_folder(&out->run[i], folder) ? APP_OK : eval_no_memory(folder);
}

static int refuse_twice(char *const *folders, int32_t n)
{
    struct stat a, b;
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < i; k++)
            if (stat(folders[i], &a) == 0 && stat(folders[k], &b) == 0 && a.st_dev == b.st_dev &&
                a.st_ino == b.st_ino)
                return app_fail(APP_BAD_INPUT, "the folder '%s' is named twice", folders[i]);
    return APP_OK;
}

int eval_runs_read(struct eval_runs *out, char *const *folders, int32_t n)
{
    *out = (struct eval_runs){.run = calloc((size_t)n + 1, sizeof *out->run)};
    WNW_TRY(out->run ? refuse_twice(folders, n) : eval_no_memory(folders[0]));
    for (int32_t i = 0; i < n; i++)
        WNW_TRY(place_folder(out, folders[i]));
    for (int32_t i = 0; i < out->n; i++) {
        struct eval_run *run = &out->run[i];
        for (int32_t k = 0; k < run->n_folders; k++)
            WNW_TRY(read_lines(run, k));
        if (run->n == 0)
            return app_fail(APP_BAD_INPUT, "'%s/results.jsonl' has no answers yet", run->folders[0]);
        WNW_TRY(eval_results_sort(run));
    }
    return APP_OK;
}

void eval_runs_clear(struct eval_runs *runs)
{
    for (int32_t i = 0; i < runs->n; i++)
        clear_run(&runs->run[i]);
    free(runs->run);
    *runs = (struct eval_runs){0};
}

/* Opens the file and reads the line of r once more. The caller closes j in any case. */
static int read_line_of(json_t **line, struct eval_jsonl *j, const struct eval_result *r, const char *path)
{
    WNW_TRY(eval_jsonl_open_regular(j, path));
    if (fseeko(j->f, (off_t)r->at, SEEK_SET) != 0)
        return app_fail(APP_FAILED, "reading '%s' failed", path);
    j->number = r->line - 1;
    WNW_TRY(eval_jsonl_next(j, line));
    return *line ? APP_OK : app_fail(APP_FAILED, "'%s' became shorter while it was read", path);
}

int eval_result_texts(json_t **line, const struct eval_run *run, const struct eval_result *r)
{
    struct eval_jsonl j;
    char *path = eval_results_path(run->folders[r->folder]);
    *line = NULL;
    if (!path)
        return eval_no_memory(run->folders[r->folder]);
    const int rc = read_line_of(line, &j, r, path);
    eval_jsonl_close(&j);
    free(path);
    return rc;
}

/* Whether a run has caches of several types, so that a label must name its own. */
static bool has_types(const struct eval_run *run)
{
    for (int32_t i = 1; i < run->n_variants; i++)
        if (strcmp(run->variants[i].kv_type, run->variants[0].kv_type) != 0)
            return true;
    return false;
}

bool eval_variant_label(struct app_text *out, const struct eval_run *run, const struct eval_variant *v,
                        bool size)
{
    out->len = 0;
    bool good = app_text_put(out, "%s", v->policy);
    if (size && !v->full)
        good = good && (isnan(v->removed) ? app_text_put(out, " %s", v->size)
                                          : app_text_put(out, " r=%s", v->size + 6));
    if (has_types(run))
        good = good && app_text_put(out, " %s", v->kv_type);
    return good && (!v->more[0] || app_text_put(out, " %s", v->more)) && app_text_repair(out);
}
