/* SPDX-License-Identifier: MIT */
/*
 * Finds calibration results. The places, in this order:
 *
 *   --profile           a file; or a folder that holds KIND.json or MODEL/KIND.json;
 *   the cache folder    profiles/MODEL/KIND.json in $WINNOW_CACHE or ~/.cache/winnow;
 *   shipped             profiles/MODEL/KIND.json among the files that come with the program (app/share.h).
 *
 * MODEL is the name of the model's file without .gguf. CompilerKV's tables belong to a budget and are called
 * compiler-bBUDGET.json. The first place that has any is used, and there the budget that is nearest in ratio.
 *
 * A file that --profile names must be usable. A file that was only found and cannot be used is skipped with a
 * remark, and the next place is tried. So no file makes a command fail that works without it.
 */
#include "app/profiles.h"

#include "app/console.h"
#include "app/models.h"
#include "app/share.h"
#include "app/values.h"
#include "base/err.h"
#include "winnow_calibrate.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PLACES = 5 };

struct places {
    char *folder[MAX_PLACES]; /* owned */
    int n, n_given;           /* the first n_given are those of --profile */
    char *model;              /* owned: name of the model's folder */
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

int app_profile_folder(char **folder, const char *model_path)
{
    char *name = app_model_short(model_path), *tail = NULL;
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
    p->model = app_model_short(want->model_path);
    bool good = p->model != NULL;
    if (good && given_folder) { /* the folder of this very model, or one of several models */
        good = good && add_place(p, want->given, "");
        good = good && add_place(p, want->given, p->model);
        p->n_given = p->n;
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

/* How far the budget of a table is from the one that is asked for, in powers of two; 0: the smallest is the nearest. */
static double distance_of(int64_t of_table, double budget)
{
    return budget > 0 ? fabs(log2((double)of_table / budget)) : (double)of_table;
}

/* Finds the table in the folder whose budget is nearest. Of two that are equally near it is the larger, whose thresholds evict less. */
static bool nearest_table(char **path, const char *folder, double budget)
{
    int64_t best = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        const int64_t b = table_budget(e->d_name);
        if (b == 0)
            continue;
        const double near = distance_of(b, budget), so_far = best > 0 ? distance_of(best, budget) : INFINITY;
        if (near < so_far || (near == so_far && b > best))
            best = b;
    }
    if (dir)
        closedir(dir);
    return best > 0 && asprintf(path, "%s/compiler-b%lld.json", folder, (long long)best) > 0;
}

/* Path of the first file of the kind from place *i on, which becomes the place after it; NULL if there is none.
 * The caller frees it. */
static char *find_kind(const struct places *p, int32_t kind, double budget, int *i)
{
    while (*i < p->n) {
        char *path = NULL;
        const char *folder = p->folder[(*i)++];
        if (kind == WNW_PROFILE_COMPILER) {
            if (nearest_table(&path, folder, budget))
                return path;
            continue;
        }
        if (asprintf(&path, "%s/%s.json", folder, wnw_profile_kind_name(kind)) > 0) {
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
    int first = 0;
    *path = good ? find_kind(&places, kind, want->budget, &first) : NULL;
    free_places(&places);
    return good ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

/* Why a file cannot be used; nothing is printed before it is known whether that is an error. */
struct reason {
    char text[1024];
};

static int because(struct reason *why, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int because(struct reason *why, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why->text, sizeof why->text, fmt, ap);
    va_end(ap);
    return code;
}

static int add_file(wnw_profile *p, struct app_text *notes, struct app_inputs *inputs, const char *path,
                    struct reason *why)
{
    struct stat st;
    if (stat(path, &st) != 0 || access(path, R_OK) != 0)
        return because(why, APP_BAD_INPUT, "cannot read the profile '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return because(why, APP_BAD_INPUT, "the profile '%s' is neither a file nor a folder", path);
    app_inputs_add(inputs, path);
    wnw_set_log(app_note_warning, notes);
    const int status = wnw_profile_add_file(p, path);
    wnw_set_log(NULL, NULL);
    return status == WNW_OK ? APP_OK : because(why, app_exit_code(status), "%s", wnw_last_error());
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

/* Reads one file of the kind. */
static int add_kind(wnw_profile *p, struct app_text *notes, struct app_inputs *inputs, const char *path,
                    int32_t kind, struct reason *why)
{
    const int rc = add_file(p, notes, inputs, path, why);
    /* A file may hold another kind than its name says. */
    return rc != APP_OK || wnw_profile_kinds(p) >> kind & 1u
               ? rc
               : because(why, APP_BAD_INPUT, "'%s' does not hold a profile of kind %s", path,
                         wnw_profile_kind_name(kind));
}

/* Adds the remark that a file is not used. */
static void passed_over(struct app_text *notes, const struct reason *why)
{
    char *text = NULL;
    if (asprintf(&text, "%s; the file is passed over", why->text) > 0)
        app_note_warning(WNW_LOG_WARN, text, notes);
    free(text);
}

/* Reads the first file of the kind that can be used; *found becomes true if nobody named it. It is an error if a
 * file that was named cannot be used, or if of a required kind none can. */
static int load_kind(wnw_profile *p, struct app_text *notes, const struct places *places,
                     const struct app_profile_want *want, int32_t kind, bool *found)
{
    struct reason first = {""};
    int at = 0;
    for (char *path; (path = find_kind(places, kind, want->budget, &at)) != NULL;) {
        struct reason why;
        const bool named = at <= places->n_given;
        const int rc = add_kind(p, notes, want->inputs, path, kind, &why);
        free(path);
        if (rc == APP_OK) {
            *found = !named;
            return APP_OK;
        }
        if (named || rc == APP_FAILED)
            return app_fail(rc, "%s", why.text);
        if (!*first.text)
            first = why;
        passed_over(notes, &why);
    }
    return *first.text && want->required >> kind & 1u ? app_fail(APP_BAD_INPUT, "%s", first.text) : APP_OK;
}

static int load_kinds(wnw_profile *p, struct app_text *notes, const struct places *places,
                      const struct app_profile_want *want)
{
    const uint32_t open = (want->required | want->optional) & ~wnw_profile_kinds(p);
    uint32_t found_kinds = 0;
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++) {
        bool found = false;
        if (open >> kind & 1u)
            WNW_TRY(load_kind(p, notes, places, want, kind, &found));
        found_kinds |= (uint32_t)found << kind;
    }
    wnw_profile_set_found(p, found_kinds);
    const uint32_t lacking = want->required & open & ~wnw_profile_kinds(p);
    return lacking ? missing(places, lacking, want) : APP_OK;
}

/* ---- Files of one model ---- */

/* Refuses a profile of another model. */
static int check_model(const wnw_profile *p, const char *path, struct app_profile_model *m,
                       struct reason *why)
{
    const int status = *m->fingerprint ? WNW_OK : app_file_fingerprint(m->fingerprint, m->path);
    if (status != WNW_OK)
        return because(why, app_exit_code(status), "%s", wnw_last_error());
    if (strcmp(wnw_profile_fingerprint(p), m->fingerprint) == 0)
        return APP_OK;
    return because(why, APP_BAD_INPUT,
                   "profile '%.200s' was made for another model: fingerprint %s, and this model has %s; "
                   "calibrate it with "
                   "`winnow calibrate`",
                   path, wnw_profile_fingerprint(p), m->fingerprint);
}

static int check_file(const char *path, struct app_profile_model *m, struct reason *why)
{
    wnw_profile *p = NULL;
    const int status = wnw_profile_open(&p, path);
    const int rc = status == WNW_OK ? check_model(p, path, m, why)
                                    : because(why, app_exit_code(status), "%s", wnw_last_error());
    wnw_profile_free(p);
    return rc;
}

/* The first file of the kind that belongs to the model. */
static int find_own(char **path, const struct places *places, struct app_profile_model *m, int32_t kind)
{
    int at = 0;
    while ((*path = find_kind(places, kind, 0, &at)) != NULL) {
        struct reason why;
        const int rc = check_file(*path, m, &why);
        if (rc == APP_OK)
            return rc;
        free(*path);
        *path = NULL;
        if (rc == APP_FAILED)
            return app_fail(rc, "%s", why.text);
        app_note("warning: %s; the file is passed over", why.text);
    }
    return APP_OK;
}

int app_profile_find_own(char **path, const char *given, struct app_profile_model *m, int32_t kind)
{
    const struct app_profile_want want = {.given = given, .model_path = m->path};
    struct places places = {0};
    const bool good = find_places(&places, &want, given != NULL);
    *path = NULL;
    const int rc = good ? find_own(path, &places, m, kind) : app_fail(APP_FAILED, "out of memory");
    free_places(&places);
    return rc;
}

int app_profile_list(struct app_text *list, const char *model_path)
{
    struct app_profile_model m = {.path = model_path};
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++) {
        char *path = NULL;
        if (kind != WNW_PROFILE_COMPILER)
            WNW_TRY(app_profile_find_own(&path, NULL, &m, kind));
        const bool listed = path && !strchr(path, ':');
        const bool good = !listed || app_text_put(list, "%s%s", list->len > 0 ? ":" : "", path);
        free(path);
        if (!good)
            return app_fail(APP_FAILED, "out of memory");
    }
    return APP_OK;
}

int app_profile_list_check(const char *list, const char *model_path)
{
    struct app_profile_model m = {.path = model_path};
    char *path;
    int status, rc = APP_OK;
    while (rc == APP_OK && (status = wnw_profile_next(&path, &list)) == WNW_OK && path) {
        wnw_profile *p = NULL;
        struct reason why;
        const bool own =
            wnw_profile_open(&p, path) == WNW_OK && wnw_profile_kinds(p) != 1u << WNW_PROFILE_COMPILER;
        if (own && (rc = check_model(p, path, &m, &why)) != APP_OK)
            rc = app_fail(rc, "%s", why.text);
        wnw_profile_free(p);
        wnw_free(path);
    }
    return rc == APP_OK && status != WNW_OK ? app_fail_status(status) : rc;
}

/* Whether there is a file of a kind that is wanted. */
static bool any_file(const struct places *places, const struct app_profile_want *want)
{
    char *path = NULL;
    for (int32_t kind = 0; !path && kind < WNW_N_PROFILE_KINDS; kind++) {
        int at = 0;
        if ((want->required | want->optional) >> kind & 1u)
            path = find_kind(places, kind, want->budget, &at);
    }
    const bool any = path != NULL;
    free(path);
    return any;
}

static int load(wnw_profile **out, struct app_text *notes, const wnw_model *m, const struct places *places,
                const struct app_profile_want *want, bool folder)
{
    struct reason why;
    /* A profile has the model's fingerprint, for which all weights are read. */
    if (!want->given && !want->required && !any_file(places, want))
        return APP_OK;
    WNW_TRY(app_status_code(wnw_profile_new(out, m)));
    if (want->given && !folder) {
        const int rc = add_file(*out, notes, want->inputs, want->given, &why);
        if (rc != APP_OK)
            return app_fail(rc, "%s", why.text);
    }
    return load_kinds(*out, notes, places, want);
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
    const int rc = find_places(&places, want, folder) ? load(out, notes, m, &places, want, folder)
                                                      : app_fail(APP_FAILED, "out of memory");
    free_places(&places);
    if (rc != APP_OK) {
        wnw_profile_free(*out);
        *out = NULL;
    }
    return rc;
}
