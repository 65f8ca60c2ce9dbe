/* SPDX-License-Identifier: MIT */
/* What winnow doctor says of models, the backend's library and the files that come along. */
#include "app/console.h"
#include "app/models.h"
#include "app/share.h"
#include "cli/backend_library.h"
#include "cli/doctor.h"
#include "winnow_bridge.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Opens a model without its weights being read or copied, and says whether that went well. size: -1 if it is not there. *good
 * becomes true where it can be used. */
static json_t *try_model(struct cli_doctor *d, const char *name, const char *path, int64_t size, bool given,
                         bool *good)
{
    wnw_model_params params = wnw_model_default_params();
    struct app_text notes = {0};
    wnw_model *m = NULL;
    bool opens = false;
    char error[1024] = "";
    params.repack = false;
    if (size >= 0) {
        opens = app_model_open(&m, path, &params, &notes) == WNW_OK;
        snprintf(error, sizeof error, "%s", opens ? "" : wnw_last_error());
        wnw_model_free(m);
        free(notes.s);
    }
    const bool fits = size < 0 || (uint64_t)size <= d->limits.room;
    if (size >= 0 && !opens)
        cli_doctor_find(d, true, "fetch it again, or name another one with -m", "%s does not open: %s", path,
                        error);
    else if (!fits)
        cli_doctor_find(d, given, "use a smaller model or quantisation, or end other programs",
                        "the weights of %s take %.1f MiB, and %.1f MiB of memory are left", name,
                        (double)size / 1048576.0, (double)d->limits.room / 1048576.0);
    *good = *good || (opens && fits);
    return json_pack("{s:o, s:o, s:b, s:o, s:b, s:b, s:o}", "name", app_json_text(name), "path",
                     app_json_text(path), "present", (int)(size >= 0), "bytes",
                     size >= 0 ? json_integer(size) : json_null(), "opens", (int)opens, "fits", (int)fits,
                     "error", *error ? app_json_text(error) : json_null());
}

static void models(struct cli_doctor *d, const char *given)
{
    json_t *list = json_array();
    bool good = false;
    for (int i = 0; app_cache_known() && app_model_names[i] && list; i++) {
        char *path;
        int64_t size;
        if (app_model_place(&path, &size, i) == APP_OK)
            app_json_append(&list, try_model(d, app_model_names[i], path, size, false, &good));
        free(path);
    }
    if (given && list) {
        struct stat st;
        const int64_t size = stat(given, &st) == 0 ? (int64_t)st.st_size : -1;
        app_json_append(&list, try_model(d, given, given, size, true, &good));
    }
    if (!app_cache_known())
        cli_doctor_find(d, !given, "set one of them, or give -m a path",
                        "neither WINNOW_CACHE nor HOME is set, so that no model is found by its name");
    else if (!good)
        cli_doctor_find(
            d, true, "scripts/fetch_models.sh of winnow's sources fetches them; -m names any other GGUF file",
            "no model can be used");
    cli_doctor_section(d, "models", list);
}

static void backend(struct cli_doctor *d)
{
    char path[4096];
    const char *why = cli_backend_find(path, sizeof path);
    if (why)
        cli_doctor_find(d, false, "nothing, unless other llama.cpp programs or `winnow serve` are to use it",
                        "%s", why);
    cli_doctor_section(d, "backend",
                       json_pack("{s:o, s:s?}", "path", why ? json_null() : app_json_text(path), "built_for",
                                 wnw_bridge_built_for()));
}

static void server(struct cli_doctor *d)
{
    char path[4096];
    const bool there = app_program_part(path, sizeof path, "winnow-llama-server", true);
    if (!there)
        cli_doctor_find(d, false, "run `make server` in winnow's sources, if you want `winnow serve`",
                        "there is no winnow-llama-server next to this program, nor in lib/winnow");
    cli_doctor_section(d, "server", json_pack("{s:o}", "path", there ? app_json_text(path) : json_null()));
}

/* Number of the profiles in a folder of a model. */
static int count_profiles(const char *folder, const char *model)
{
    char path[4096];
    int n = 0;
    DIR *dir = snprintf(path, sizeof path, "%s/%s", folder, model) < (int)sizeof path ? opendir(path) : NULL;
    const struct dirent *e;
    while (dir && (e = readdir(dir))) {
        const size_t len = strlen(e->d_name);
        n += len > 5 && strcmp(e->d_name + len - 5, ".json") == 0;
    }
    if (dir)
        closedir(dir);
    return n;
}

/* The models that a folder has profiles of. */
static void add_profiles(json_t **list, const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *e;
    while (dir && *list && (e = readdir(dir))) {
        const int n = *e->d_name == '.' ? 0 : count_profiles(folder, e->d_name);
        if (n > 0)
            app_json_append(list, json_pack("{s:o, s:o, s:i}", "model", app_json_text(e->d_name), "folder",
                                            app_json_text(folder), "files", n));
    }
    if (dir)
        closedir(dir);
}

/* Whether a shipped file or folder is there; adds profiles of those that are. */
static void shipped(struct cli_doctor *d, const char *tail, json_t **profiles)
{
    char *places[2];
    bool found = false;
    if (app_share_places(places, tail) != APP_OK)
        return;
    for (int i = 0; i < 2 && !found; i++) {
        found = places[i] && access(places[i], R_OK) == 0;
        if (found && profiles)
            add_profiles(profiles, places[i]);
    }
    if (!found)
        cli_doctor_find(d, true, "install winnow again", "%s, which comes with winnow, is not at %s", tail,
                        places[1] ? places[1] : "its place");
    free(places[0]);
    free(places[1]);
}

static void come_along(struct cli_doctor *d)
{
    json_t *list = json_array();
    char *own = NULL;
    shipped(d, APP_TEXT_CALIBRATION, NULL);
    shipped(d, APP_TEXT_KINDS, NULL);
    shipped(d, APP_TEXT_HELD_OUT, NULL);
    shipped(d, "profiles", &list);
    if (list && app_cache_known() && app_cache_path(&own, "profiles") == APP_OK)
        add_profiles(&list, own);
    free(own);
    cli_doctor_section(d, "profiles", list);
}

void cli_doctor_files(struct cli_doctor *d, const char *given)
{
    models(d, given);
    backend(d);
    server(d);
    come_along(d);
}
