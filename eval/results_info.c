/* SPDX-License-Identifier: MIT */
/* run.json: what a run was. */
#include "eval/results.h"

#include "app/console.h"
#include "app/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What may differ between shards of one run: how the work was cut up, where and when it was done. */
static const char *const of_shard[] = {"command", "shard",   "threads", "calibration", "backend", "device",
                                       "host",    "started", "ended",   "winnow",      "out",     NULL};

static bool is_of_shard(const char *key)
{
    for (int i = 0; of_shard[i]; i++)
        if (strcmp(of_shard[i], key) == 0)
            return true;
    return false;
}

bool eval_info_same(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *value;
    /* The loops change nothing, but their macro takes a pointer to an object that is not const. */
    json_object_foreach((json_t *)(uintptr_t)a, key, value)
    {
        if (!is_of_shard(key) && !json_equal(value, json_object_get(b, key)))
            return false;
    }
    json_object_foreach((json_t *)(uintptr_t)b, key, value)
    {
        if (!is_of_shard(key) && !json_object_get(a, key))
            return false;
    }
    return true;
}

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
    char *path = NULL, *text = NULL;
    size_t len;
    json_error_t error;
    if (asprintf(&path, "%s/run.json", folder) < 0)
        return app_fail(APP_FAILED, "out of memory for '%s'", folder);
    int rc = app_read_file(&text, &len, path);
    if (rc == APP_OK) {
        run->info = json_loadb(text, len, 0, &error);
        run->model = run->info ? model_name(run->info) : NULL;
        const json_t *seed = json_object_get(run->info, "seed");
        run->seed = json_is_integer(seed) ? (uint64_t)json_integer_value(seed) : 42;
        if (!run->info && json_error_code(&error) != json_error_out_of_memory)
            rc = app_fail(APP_BAD_INPUT, "'%s' line %d: not JSON: %s", path, error.line, error.text);
        else if (!run->model)
            rc = app_fail(APP_FAILED, "out of memory for '%s'", path);
        else if (!json_is_object(run->info))
            rc = app_fail(APP_BAD_INPUT, "'%s' is not a JSON object in braces", path);
        else if (json_is_object(json_object_get(run->info, "texts")))
            rc = app_fail(
                APP_BAD_INPUT,
                "'%s' is a study that asks no questions; its report is beside its results, and the same "
                "command makes it again",
                folder);
    }
    free(text);
    free(path);
    return rc;
}
