/* SPDX-License-Identifier: MIT */
/*
 * Files that appear whole or not at all: everything goes to a new file next to the target, which takes the
 * target's name when all of it is on the disk. Nothing that the command reads and nothing that is open
 * already is ever replaced, and a signal that ends the process removes the unfinished file.
 */
#include "app/output.h"

#include "app/console.h"
#include "app/values.h"
#include "base/err.h"
#include "base/whole_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Inputs ---- */

void app_inputs_add(struct app_inputs *in, const char *path)
{
    struct stat st;
    if (!path || in->n == APP_MAX_INPUTS || stat(path, &st) != 0)
        return;
    in->id[in->n].dev = st.st_dev;
    in->id[in->n++].ino = st.st_ino;
}

static bool is_input(const struct app_inputs *in, const struct stat *st)
{
    for (int i = 0; in && i < in->n; i++)
        if (in->id[i].dev == st->st_dev && in->id[i].ino == st->st_ino)
            return true;
    return false;
}

static bool leads_to(int fd, const struct stat *st)
{
    struct stat other;
    return fstat(fd, &other) == 0 && other.st_dev == st->st_dev && other.st_ino == st->st_ino;
}

/* The lowest descriptor of this process that leads to the file, -1 if none does. If the file were replaced,
 * writes to that descriptor would go into a file that has lost its name. */
static int open_descriptor(const struct stat *st)
{
    int found = -1;
    DIR *dir = opendir("/proc/self/fd");
    for (int fd = STDIN_FILENO; !dir && found < 0 && fd <= STDERR_FILENO; fd++)
        found = leads_to(fd, st) ? fd : -1;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        int64_t fd;
        if (app_parse_int(&fd, e->d_name) && fd >= 0 && fd <= INT_MAX && leads_to((int)fd, st) &&
            (found < 0 || fd < found))
            found = (int)fd;
    }
    if (dir)
        closedir(dir);
    return found;
}

/* ---- Where the file goes ---- */

static int cannot_write(const char *path, int err)
{
    return app_fail(app_errno_code(err), "cannot write '%s': %s", path, strerror(err));
}

/* Refuses a target that exists and must not be replaced. */
static int check_present(const char *path, const struct stat *st, const struct app_inputs *inputs)
{
    /* The finished file is renamed into place, which must never replace a device or a directory. */
    if (!S_ISREG(st->st_mode))
        return app_fail(APP_BAD_INPUT, "'%s' is not a regular file; name a file to write", path);
    if (is_input(inputs, st))
        return app_fail(APP_BAD_INPUT,
                        "'%s' is an input of this command and would be replaced; name another file", path);
    static const char *const standard[] = {" (standard input)", " (standard output)", " (standard error)"};
    const int fd = open_descriptor(st);
    if (fd >= 0)
        return app_fail(APP_BAD_INPUT,
                        "'%s' is open as descriptor %d%s, and the finished file would take its place; name "
                        "another file",
                        path, fd, fd <= STDERR_FILENO ? standard[fd] : "");
    return access(path, W_OK) == 0 ? APP_OK : cannot_write(path, errno);
}

/* Whether a file can be made at `target`, which `path` led to. */
static int check_folder(const char *path, const char *target)
{
    struct stat st;
    const char *slash = strrchr(target, '/');
    char *folder = wnw__folder_of(target);
    int rc = APP_OK;
    if (!folder)
        return app_fail(APP_FAILED, "out of memory");
    if (slash && !slash[1])
        rc = app_fail(APP_BAD_INPUT, "'%s' names a folder; name a file to write", path);
    else if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode))
        rc = app_fail(APP_BAD_INPUT, "cannot write '%s': there is no folder '%s'", path, folder);
    else if (access(folder, W_OK | X_OK) != 0)
        rc = cannot_write(path, errno);
    free(folder);
    return rc;
}

/* Fills in *target, the path that links lead to, which the caller frees, and *mode, the permissions of the new
 * file. */
static int find_target(char **target, mode_t *mode, const char *path, const struct app_inputs *inputs)
{
    struct stat st;
    *target = NULL;
    *mode = 0;
    if (*path == '\0')
        return app_fail(APP_BAD_INPUT, "the name of the output file is empty");
    if (strcmp(path, "-") == 0) /* which the user did not mean to be a name */
        return app_fail(APP_BAD_INPUT,
                        "'-' is no file: results are not written to standard output; name a file, ./- "
                        "if it shall be called so");
    const bool present = stat(path, &st) == 0;
    if (!present && errno != ENOENT)
        return cannot_write(path, errno);
    if (present)
        WNW_TRY(check_present(path, &st, inputs));
    *target = wnw__behind_links(path);
    if (!*target)
        return cannot_write(path, errno);
    int rc = check_folder(path, *target);
    if (rc != APP_OK) {
        free(*target);
        *target = NULL;
        return rc;
    }
    const mode_t mask = umask(0);
    umask(mask);
    *mode = present ? st.st_mode & 0777 : 0666 & ~mask;
    return APP_OK;
}

int app_out_check(const char *path, const struct app_inputs *inputs)
{
    char *target;
    mode_t mode;
    const int rc = find_target(&target, &mode, path, inputs);
    free(target);
    return rc;
}

/* The path of a file in its folder's real place, which the caller frees; NULL where there is no such folder. */
static char *place_of(const char *path)
{
    char *target = wnw__behind_links(path), *folder = target ? wnw__folder_of(target) : NULL,
         *real = folder ? realpath(folder, NULL) : NULL, *real_path = NULL;
    const char *slash = target ? strrchr(target, '/') : NULL;
    if (real && asprintf(&real_path, "%s/%s", real, slash ? slash + 1 : target) < 0)
        real_path = NULL;
    free(real);
    free(folder);
    free(target);
    return real_path;
}

bool app_out_same(const char *a, const char *b)
{
    char *x = place_of(a), *y = place_of(b);
    const bool same = strcmp(a, b) == 0 || (x && y && strcmp(x, y) == 0);
    free(x);
    free(y);
    return same;
}

int app_make_folders(const char *path)
{
    char *part = strdup(path);
    int rc = part ? APP_OK : app_fail(APP_FAILED, "out of memory");
    for (char *at = part; rc == APP_OK && at;) {
        at = strchr(at + 1, '/');
        if (at)
            *at = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            rc = cannot_write(part, errno);
        if (at)
            *at = '/';
    }
    free(part);
    return rc;
}

/* ---- Signals ---- */

/* Name of the unfinished file, for the signal handler, which can read no other variable safely. */
static char unfinished[PATH_MAX];

static const int ending_signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGXCPU};
enum { N_ENDING = sizeof ending_signals / sizeof *ending_signals };

static void remove_unfinished(int sig)
{
    if (unfinished[0])
        unlink(unfinished);
    raise(sig); /* the default action is set again and is taken when this function returns */
}

/* A signal that the process ignores stays ignored. */
static void watch_signals(bool on)
{
    for (int i = 0; i < N_ENDING; i++) {
        struct sigaction now, want = {.sa_flags = (int)SA_RESETHAND};
        want.sa_handler = on ? remove_unfinished : SIG_DFL;
        sigemptyset(&want.sa_mask);
        if (sigaction(ending_signals[i], NULL, &now) == 0 &&
            now.sa_handler == (on ? SIG_DFL : remove_unfinished))
            sigaction(ending_signals[i], &want, NULL);
    }
}

/* ---- Writing ---- */

/* Makes a new file next to the target and returns its descriptor. The file's name is short, however long the
 * target's is. */
static int make_temporary(const char *target, mode_t mode)
{
    const char *slash = strrchr(target, '/');
    const int folder = slash ? (int)(slash - target) + 1 : 0;
    if (snprintf(unfinished, sizeof unfinished, "%.*swinnow.tmp-XXXXXX", folder, target) >=
        (int)sizeof unfinished) {
        unfinished[0] = '\0';
        errno = ENAMETOOLONG;
        return -1;
    }
    watch_signals(true);
    const int fd = mkostemp(unfinished, O_CLOEXEC);
    if (fd >= 0 && fchmod(fd, mode) == 0)
        return fd;
    const int err = errno;
    if (fd >= 0) {
        close(fd);
        unlink(unfinished);
    }
    watch_signals(false);
    unfinished[0] = '\0';
    errno = err;
    return -1;
}

int app_out_open(struct app_out *out, const char *path, const struct app_inputs *inputs)
{
    mode_t mode;
    *out = (struct app_out){0};
    int rc = find_target(&out->path, &mode, path, inputs);
    if (rc != APP_OK)
        return rc;
    const int fd = make_temporary(out->path, mode);
    if (fd < 0) {
        rc = cannot_write(path, errno);
        free(out->path);
        *out = (struct app_out){0};
        return rc;
    }
    out->f = fdopen(fd, "w");
    if (out->f)
        return APP_OK;
    close(fd);
    app_out_abort(out);
    return app_fail(APP_FAILED, "out of memory");
}

int app_out_json(struct app_out *out, const json_t *o)
{
    errno = 0;
    if (o && json_dumpf(o, out->f, JSON_COMPACT) == 0 && fputc('\n', out->f) != EOF)
        return APP_OK;
    const int rc = ferror(out->f)
                       ? app_fail(APP_FAILED, "writing '%s' failed: %s", out->path, strerror(errno))
                       : app_fail(APP_FAILED, "out of memory for '%s'", out->path);
    app_out_abort(out);
    return rc;
}

int app_out_commit(struct app_out *out)
{
    errno = 0;
    bool good = !ferror(out->f) && fflush(out->f) == 0 && fsync(fileno(out->f)) == 0;
    const int err = errno;
    good = fclose(out->f) == 0 && good;
    out->f = NULL;
    errno = err ? err : errno;
    good = good && rename(unfinished, out->path) == 0;
    if (good)
        unfinished[0] = '\0';
    const char *why = errno ? strerror(errno) : "an earlier write was lost";
    const int rc = good ? APP_OK : app_fail(APP_FAILED, "writing '%s' failed: %s", out->path, why);
    app_out_abort(out);
    return rc;
}

void app_out_discard(void)
{
    if (unfinished[0])
        unlink(unfinished);
}

void app_out_abort(struct app_out *out)
{
    if (!out->path)
        return;
    if (out->f)
        fclose(out->f);
    if (unfinished[0])
        unlink(unfinished);
    watch_signals(false);
    unfinished[0] = '\0';
    free(out->path);
    *out = (struct app_out){0};
}
