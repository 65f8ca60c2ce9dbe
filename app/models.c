/* SPDX-License-Identifier: MIT */
/* Where models lie and what they are called. */
#include "app/models.h"

#include "app/console.h"
#include "base/err.h"
#include "base/strings.h"
#include "winnow_tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const app_model_names[] = {"smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b",
                                       "gemma-3-270m", NULL};

static int cannot_open(const char *path)
{
    return app_fail(app_errno_code(errno), "cannot open '%s': %s", path, strerror(errno));
}

/* A model is mapped into memory, so it must be a regular file. The check does not open the file, because
 * opening a FIFO waits and opening a device may do anything. */
static int check_model_file(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || access(path, R_OK) != 0)
        return cannot_open(path);
    if (S_ISDIR(st.st_mode))
        return app_fail(APP_BAD_INPUT, "'%s' is a directory; name a file", path);
    if (!S_ISREG(st.st_mode))
        return app_fail(APP_BAD_INPUT, "'%s' is not a regular file, which a model must be; copy it to one",
                        path);
    return APP_OK;
}

bool app_cache_known(void)
{
    const char *cache = getenv("WINNOW_CACHE"), *home = getenv("HOME");
    return (cache && *cache) || (home && *home);
}

int app_cache_path(char **path, const char *tail)
{
    const char *cache = getenv("WINNOW_CACHE");
    const char *home = getenv("HOME");
    *path = NULL;
    if (!app_cache_known())
        return app_fail(APP_BAD_INPUT,
                        "neither WINNOW_CACHE nor HOME is set; set one of them or give -m a path");
    const bool own = cache && *cache;
    if (asprintf(path, "%s%s/%s", own ? cache : home, own ? "" : "/.cache/winnow", tail) < 0) {
        *path = NULL;
        return app_fail(APP_FAILED, "out of memory");
    }
    return APP_OK;
}

int app_model_place(char **path, int64_t *bytes, int i)
{
    char tail[64];
    struct stat st;
    snprintf(tail, sizeof tail, "models/%s.gguf", app_model_names[i]);
    const int rc = app_cache_path(path, tail);
    *bytes = rc == APP_OK && stat(*path, &st) == 0 && S_ISREG(st.st_mode) ? (int64_t)st.st_size : -1;
    return rc;
}

int app_model_path(char **path, const char *name)
{
    bool listed = false;
    *path = NULL;
    for (int i = 0; app_model_names[i]; i++)
        listed = listed || strcmp(name, app_model_names[i]) == 0;
    if (!listed) {
        if (!strchr(name, '/') && access(name, F_OK) != 0) {
            const char *near = wnw__nearest(name, app_model_names);
            return app_fail(APP_BAD_INPUT, "there is no file '%s' and no model of that name%s%s%s", name,
                            near ? "; did you mean " : "", near ? near : "",
                            near ? "?" : "; `winnow models` lists the names");
        }
        WNW_TRY(check_model_file(name));
        *path = strdup(name);
        return *path ? APP_OK : app_fail(APP_FAILED, "out of memory");
    }
    char tail[64];
    snprintf(tail, sizeof tail, "models/%s.gguf", name);
    int rc = app_cache_path(path, tail);
    if (rc == APP_OK && access(*path, F_OK) != 0)
        rc = app_fail(APP_BAD_INPUT,
                      "model %s is not at '%s'; fetch it with `scripts/fetch_models.sh %s` of winnow's "
                      "sources, or name a GGUF file with -m",
                      name, *path, name);
    else if (rc == APP_OK)
        rc = check_model_file(*path);
    if (rc != APP_OK) {
        free(*path);
        *path = NULL;
    }
    return rc;
}

char *app_model_short(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash && slash[1] ? slash + 1 : path;
    const size_t len = strlen(name);
    return strndup(name, len > 5 && strcmp(name + len - 5, ".gguf") == 0 ? len - 5 : len);
}

/* Where digests of models are kept; NULL without a cache folder. The caller frees it. */
static char *digests_folder(void)
{
    char *path = NULL;
    return app_cache_known() && app_cache_path(&path, "digests") == APP_OK ? path : NULL;
}

int app_file_fingerprint(char out[WNW_FINGERPRINT_SIZE], const char *path)
{
    wnw_model_params params = wnw_model_default_params();
    char *digests = digests_folder();
    params.digests = digests;
    const int status = wnw_file_fingerprint(path, &params, out);
    free(digests);
    return status;
}

int app_model_open(wnw_model **m, const char *path, const wnw_model_params *params, struct app_text *notes)
{
    struct app_text lines = {0};
    wnw_model_params own = params ? *params : wnw_model_default_params();
    char *digests = digests_folder();
    own.digests = digests;
    wnw_set_log(app_note_warning, notes ? notes : &lines);
    const int status = wnw_model_open(m, path, &own);
    wnw_set_log(NULL, NULL);
    app_note_lines("warning: ", lines.s);
    free(lines.s);
    free(digests);
    return status;
}
