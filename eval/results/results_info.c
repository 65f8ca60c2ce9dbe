/* SPDX-License-Identifier: MIT */
/* run.json: what a run was. */
#include "eval/results/results.h"

#include "app/console.h"
#include "app/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The model's name: "model" is a text, or an object with "file" or "name". Folders and ".gguf" are left out. */
static char *model_name(const json_t *info)
{
    const json_t *model = json_object_get(info, "model");
    const json_t *name = json_is_object(model) ? json_object_get(model, "file") : model;
    if (json_is_object(model) && !json_is_string(name))
        name = json_object_get(model, "name");
    const char *text = json_is_string(name) ? json_string_value(name) : "model without a name";
    const char *slash = strrchr(text, '/');
    text = slash && slash[1] ? slash + 1 : text;
    const size_t len = strlen(text), end = len > 5 && strcmp(text + len - 5, ".gguf") == 0 ? len - 5 : len;
    return strndup(text, end);
}

int eval_info_read(struct eval_run *run, const char *folder)
{
    char *path = app_in_folder(folder, "run.json"), *text = NULL;
    size_t len;
    json_error_t error;
    if (!path)
        return app_fail(APP_FAILED, "out of memory for '%s'", folder);
    int rc = app_read_file(&text, &len, path);
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
            rc = app_fail(APP_FAILED, "out of memory for '%s'", path);
        else if (!json_is_object(run->info))
            rc = app_fail(APP_BAD_INPUT, "'%s' is not a JSON object in braces", path);
        else if (json_is_object(json_object_get(run->info, "texts")))
            rc = app_fail(
                APP_BAD_INPUT,
                "'%s' is a study that asks no questions; its report is next to its results, and the same "
                "command makes it again",
                folder);
    }
    free(text);
    free(path);
    return rc;
}
