/* SPDX-License-Identifier: MIT */
/*
 * Finding calibration results. The places, in this order:
 *
 *   --profile           a file; or a folder that holds KIND.json or MODEL/KIND.json
 *   the cache folder    profiles/MODEL/KIND.json in $WINNOW_CACHE or ~/.cache/winnow
 *   shipped             profiles/MODEL/KIND.json among the files that come with the program (app/share.h)
 *
 * MODEL is the name of the model's file without .gguf. CompilerKV's tables belong to a budget: of the files
 * compiler-bBUDGET.json in the first place that has any, the nearest in ratio is taken.
 */
#include "app/profiles.h"

#include "app/console.h"
#include "app/models.h"
#include "app/share.h"
#include "app/values.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PLACES = 5 };

struct places {
    char *folder[MAX_PLACES]; /* owned */
    int n;
    char *model; /* owned: name of the model's folder */
};

static bool add_place(struct places *p, const char *folder, const char *tail)
{
    char *path;
    if (asprintf(&path, "%s%s%s", folder, *tail ? "/" : "", tail) < 0)
        return false;
    p->folder[p->n++] = path;
    return true;
}

/* Adds the folders of the profiles that come with the program. */
static bool add_shipped(struct places *p)
{
    char *tail, *shipped[2];
    if (asprintf(&tail, "profiles/%s", p->model) < 0)
        return false;
    const bool good = app_share_places(shipped, tail) == APP_OK;
    free(tail);
    for (int i = 0; good && i < 2 && shipped[i]; i++)
        p->folder[p->n++] = shipped[i];
    return good;
}

/* The name of the model's folder: that of its file without .gguf. The caller frees it; NULL = out of
 * memory. */
static char *model_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    const size_t len = strlen(base);
    return strndup(base, len > 5 && strcmp(base + len - 5, ".gguf") == 0 ? len - 5 : len);
}

int app_profile_folder(char **folder, const char *model_path)
{
    char *name = model_name(model_path), *tail = NULL;
    const bool good = name && asprintf(&tail, "profiles/%s", name) >= 0;
    *folder = NULL;
    const int rc = good ? app_cache_path(folder, tail) : app_fail(APP_FAILED, "out of memory");
    free(name);
    if (good)
        free(tail);
    return rc;
}

static bool find_places(struct places *p, const struct app_profile_want *want, bool given_folder)
{
    char *cache = NULL;
    const char *home = getenv("HOME"), *set = getenv("WINNOW_CACHE");
    p->model = model_name(want->model_path);
    bool good = p->model != NULL;
    if (good && given_folder) { /* the folder of this very model, or one of several models */
        good = good && add_place(p, want->given, "");
        good = good && add_place(p, want->given, p->model);
    }
    if (good && ((set && *set) || (home && *home)) && app_cache_path(&cache, "profiles") == APP_OK)
        good = add_place(p, cache, p->model);
    free(cache);
    return good && add_shipped(p);
}

static void free_places(struct places *p)
{
    for (int i = 0; i < p->n; i++)
        free(p->folder[i]);
    free(p->model);
}

/* The budget in "compiler-b512.json"; 0 for any other name. */
static int64_t table_budget(const char *name)
{
    char digits[24];
    int64_t budget;
    const size_t n = strncmp(name, "compiler-b", 10) == 0 ? strcspn(name + 10, ".") : 0;
    if (n == 0 || n >= sizeof digits || strcmp(name + 10 + n, ".json") != 0)
        return 0;
    memcpy(digits, name + 10, n);
    digits[n] = '\0';
    return app_parse_int(&budget, digits) && budget > 0 ? budget : 0;
}

/* Finds the table in the folder whose budget is nearest; of two that are equally near, the smaller. */
static bool nearest_table(char **path, const char *folder, double budget)
{
    int64_t best = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const int64_t b = table_budget(e->d_name);
        if (b == 0)
            continue;
        const double near = budget > 0 ? fabs(log2((double)b / budget)) : (double)b;
        const double so_far = best == 0    ? INFINITY
                              : budget > 0 ? fabs(log2((double)best / budget))
                                           : (double)best;
        if (near < so_far || (near == so_far && b < best))
            best = b;
    }
    if (dir)
        closedir(dir);
    return best > 0 && asprintf(path, "%s/compiler-b%lld.json", folder, (long long)best) > 0;
}

/* Path of the first file of the kind; NULL if there is none. The caller frees it. */
static char *find_kind(const struct places *p, int32_t kind, double budget)
{
    for (int i = 0; i < p->n; i++) {
        char *path = NULL;
        if (kind == WNW_PROFILE_COMPILER) {
            if (nearest_table(&path, p->folder[i], budget))
                return path;
            continue;
        }
        if (asprintf(&path, "%s/%s.json", p->folder[i], wnw_profile_kind_name(kind)) > 0) {
            if (access(path, F_OK) == 0)
                return path;
            free(path);
        }
    }
    return NULL;
}

int app_profile_find(char **path, const struct app_profile_want *want, int32_t kind)
{
    struct places places = {0};
    struct stat st;
    const bool folder = want->given && stat(want->given, &st) == 0 && S_ISDIR(st.st_mode);
    const bool good = find_places(&places, want, folder);
    *path = good ? find_kind(&places, kind, want->budget) : NULL;
    free_places(&places);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

static int add_file(wnw_profile *p, struct app_text *notes, struct app_inputs *inputs, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || access(path, R_OK) != 0)
        return app_fail(APP_BAD_INPUT, "cannot read the profile '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return app_fail(APP_BAD_INPUT, "the profile '%s' is neither a file nor a folder", path);
    app_inputs_add(inputs, path);
    wnw_set_log(app_note_warning, notes);
    const int status = wnw_profile_add_file(p, path);
    wnw_set_log(NULL, NULL);
    return status == WNW_OK ? APP_OK : app_fail_status(status);
}

/* Prints which kinds were not found, where they were looked for and how to make them. */
static int missing(const struct places *p, uint32_t kinds, const struct app_profile_want *want)
{
    char names[160] = "", commands[400] = "", where[1024] = "";
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++) {
        const char *name = wnw_profile_kind_name(kind);
        if (!(kinds >> kind & 1u))
            continue;
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", *names ? " and " : "", name);
        snprintf(commands + strlen(commands), sizeof commands - strlen(commands),
                 "%s`winnow calibrate %s -m %.120s`", *commands ? " and " : "", name, want->model);
    }
    for (int i = 0; i < p->n && strlen(where) < sizeof where - 2; i++)
        snprintf(where + strlen(where), sizeof where - strlen(where), "%s%s", *where ? ", " : "",
                 p->folder[i]);
    return app_fail(APP_BAD_INPUT,
                    "%.90s needs a calibration profile of kind %s for this model; none in %s; make it with "
                    "%s, or name a file or folder with --profile",
                    want->user, names, *where ? where : "any folder", commands);
}

static int load_kinds(wnw_profile *p, struct app_text *notes, const struct places *places,
                      const struct app_profile_want *want)
{
    const uint32_t open = (want->required | want->optional) & ~wnw_profile_kinds(p);
    uint32_t lacking = 0;
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++) {
        if (!(open >> kind & 1u))
            continue;
        char *path = find_kind(places, kind, want->budget);
        const int rc = path ? add_file(p, notes, want->inputs, path) : APP_OK;
        /* A file may hold another kind than its name says. */
        const bool there = path && (wnw_profile_kinds(p) >> kind & 1u);
        if (path && rc == APP_OK && !there) {
            const int wrong = app_fail(APP_BAD_INPUT, "'%s' does not hold a profile of kind %s", path,
                                       wnw_profile_kind_name(kind));
            free(path);
            return wrong;
        }
        free(path);
        if (rc != APP_OK)
            return rc;
        if (!there && want->required >> kind & 1u)
            lacking |= 1u << kind;
    }
    return lacking ? missing(places, lacking, want) : APP_OK;
}

int app_profile_load(wnw_profile **out, struct app_text *notes, const wnw_model *m,
                     const struct app_profile_want *want)
{
    struct stat st;
    struct places places = {0};
    *out = NULL;
    if (!want->given && !want->required && !want->optional)
        return APP_OK;
    if (want->given && stat(want->given, &st) != 0)
        return app_fail(APP_BAD_INPUT, "--profile: cannot read '%s': %s", want->given, strerror(errno));
    const bool folder = want->given && S_ISDIR(st.st_mode);
    const int status = wnw_profile_new(out, m);
    int rc = status == WNW_OK ? APP_OK : app_fail_status(status);
    if (rc == APP_OK && !find_places(&places, want, folder))
        rc = app_fail(APP_FAILED, "out of memory");
    if (rc == APP_OK && want->given && !folder)
        rc = add_file(*out, notes, want->inputs, want->given);
    if (rc == APP_OK)
        rc = load_kinds(*out, notes, &places, want);
    free_places(&places);
    if (rc != APP_OK) {
        wnw_profile_free(*out);
        *out = NULL;
    }
    return rc;
}
