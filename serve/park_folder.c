/* SPDX-License-Identifier: MIT */
#include "serve/park_folder.h"

#include "app/console.h"
#include "app/files.h"
#include "base/err.h"
#include "base/whole_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME = 40 };
/* Names with more are of no server: it counts up from the largest one, and must never begin again. */
static const uint64_t MOST_ID = UINT64_MAX / 2;

static void name_of(char name[NAME], uint64_t id)
{
    snprintf(name, NAME, "winnow-%016" PRIx64 ".park", id);
}

/* Whether a name is of a parked prompt. */
static bool is_name(const char *name, uint64_t *id)
{
    char again[NAME];
    if (strncmp(name, "winnow-", 7) != 0)
        return false;
    *id = strtoull(name + 7, NULL, 16);
    name_of(again, *id);
    return *id > 0 && *id <= MOST_ID && strcmp(name, again) == 0;
}

/* Whether a name is of a file that was being written, winnow-NUMBER.park.PROCESS-NUMBER.tmp. */
static bool is_half(const char *name)
{
    char begin[NAME];
    uint64_t id;
    const char *park = strstr(name, ".park.");
    const size_t n = strlen(name), n_begin = park ? (size_t)(park - name) + 5 : 0;
    if (n_begin == 0 || n_begin >= sizeof begin || n < 4 || strcmp(name + n - 4, ".tmp") != 0)
        return false;
    memcpy(begin, name, n_begin);
    begin[n_begin] = '\0';
    return is_name(begin, &id);
}

static char *path_of(const struct serve_park_folder *f, uint64_t id)
{
    char name[NAME];
    name_of(name, id);
    return app_in_folder(f->path, name);
}

/* ---- Opening ---- */

static int cannot(const char *path, const char *what)
{
    return wnw__fail(WNW_E_IO, "--state %.200s: %s: %s", path, what, strerror(errno));
}

static int take_lock(struct serve_park_folder *f, const char *path)
{
    if (mkdir(path, S_IRWXU) != 0 && errno != EEXIST)
        return cannot(path, "the folder cannot be made");
    char *lock = app_in_folder(path, "winnow.lock");
    if (!lock)
        return wnw__fail(WNW_E_NOMEM, "no memory for the folder of parked prompts");
    f->lock = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, S_IRUSR | S_IWUSR);
    free(lock);
    if (f->lock < 0)
        return cannot(path, "nothing can be written there");
    if (flock(f->lock, LOCK_EX | LOCK_NB) == 0)
        return WNW_OK;
    if (errno == EWOULDBLOCK)
        return wnw__fail(
            WNW_E_ARG, "--state %.200s: another server uses this folder, or a chat; give each its own", path);
    return cannot(path, "it cannot be locked");
}

struct entry {
    uint64_t id;
    struct timespec at;
    size_t bytes;
};

static int by_time(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->at.tv_sec != y->at.tv_sec)
        return x->at.tv_sec < y->at.tv_sec ? -1 : 1;
    if (x->at.tv_nsec != y->at.tv_nsec)
        return x->at.tv_nsec < y->at.tv_nsec ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

struct list {
    struct entry *of; /* owned */
    size_t n, room;
};

static int add_entry(struct list *list, uint64_t id, const struct stat *st)
{
    if (list->n == list->room) {
        const size_t room = 2 * list->room + 64;
        struct entry *of = realloc(list->of, room * sizeof *of);
        if (!of)
            return wnw__fail(WNW_E_NOMEM, "no memory for the parked prompts of a folder");
        list->of = of;
        list->room = room;
    }
    list->of[list->n++] = (struct entry){.id = id, .at = st->st_mtim, .bytes = (size_t)st->st_size};
    return WNW_OK;
}

/* Lists the files, and removes those that a server was writing when it was killed. */
static int list_files(struct list *list, const struct serve_park_folder *f)
{
    DIR *dir = opendir(f->path);
    const struct dirent *e;
    int rc = dir ? WNW_OK : cannot(f->path, "it cannot be read");
    while (rc == WNW_OK && (e = readdir(dir))) {
        uint64_t id;
        struct stat st;
        char *path = app_in_folder(f->path, e->d_name);
        if (!path)
            rc = wnw__fail(WNW_E_NOMEM, "no memory for the parked prompts of a folder");
        else if (is_name(e->d_name, &id) && lstat(path, &st) == 0 && S_ISREG(st.st_mode))
            rc = add_entry(list, id, &st);
        else if (is_half(e->d_name) && wnw__whole_file_is_abandoned(path))
            unlink(path);
        free(path);
    }
    if (dir)
        closedir(dir);
    if (list->n > 0)
        qsort(list->of, list->n, sizeof *list->of, by_time);
    return rc;
}

struct counts {
    int32_t whole, unfit, unread, damaged;
};

static int look_at(const struct serve_park_folder *f, const struct entry *e, struct counts *counts,
                   serve_park_take *take, void *user)
{
    struct serve_park_about about;
    char *path = path_of(f, e->id);
    int rc = path ? serve_park_file_look(&about, path, f->fingerprint)
                  : wnw__fail(WNW_E_NOMEM, "no memory for a parked prompt");
    free(path);
    if (rc == WNW_E_NOMEM)
        return rc;
    if (rc == WNW_E_IO) { /* the disk says no, which it may not say the next time */
        counts->unread++;
        return take(
            &(struct serve_park_found){
                .id = e->id, .bytes = e->bytes, .used = e->at.tv_sec, .about = &about, .unfit = true},
            user);
    }
    if (rc != WNW_OK && rc != WNW_E_MISMATCH) {
        serve_park_folder_remove(f, e->id);
        counts->damaged++;
        return WNW_OK;
    }
    counts->whole += rc == WNW_OK;
    counts->unfit += rc != WNW_OK;
    rc = take(
        &(struct serve_park_found){
            .id = e->id, .bytes = e->bytes, .used = e->at.tv_sec, .about = &about, .unfit = rc != WNW_OK},
        user);
    if (rc != WNW_OK)
        serve_park_about_clear(&about);
    return rc;
}

/* Looks at every file, and says what was there. */
static int look_at_all(const struct serve_park_folder *f, struct list *list, const char *path,
                       serve_park_take *take, void *user)
{
    struct counts counts = {0};
    WNW_TRY(list_files(list, f));
    for (size_t i = 0; i < list->n; i++)
        WNW_TRY(look_at(f, &list->of[i], &counts, take, user));
    if (list->n > 0)
        app_note(
            "%s has %d parked prompts; %d of another model or version are passed over, %d that cannot be "
            "read stay, %d damaged ones were removed",
            path, (int)counts.whole, (int)counts.unfit, (int)counts.unread, (int)counts.damaged);
    return WNW_OK;
}

int serve_park_folder_open(struct serve_park_folder *f, const char *path, const char *fingerprint,
                           serve_park_take *take, void *user)
{
    struct list list = {0};
    *f = (struct serve_park_folder){.path = strdup(path), .lock = -1};
    snprintf(f->fingerprint, sizeof f->fingerprint, "%s", fingerprint);
    int rc = f->path ? take_lock(f, path) : wnw__fail(WNW_E_NOMEM, "no memory for a folder");
    if (rc == WNW_OK)
        rc = look_at_all(f, &list, path, take, user);
    free(list.of);
    if (rc != WNW_OK)
        serve_park_folder_close(f);
    return rc;
}

void serve_park_folder_close(struct serve_park_folder *f)
{
    if (f->path && f->lock >= 0)
        close(f->lock);
    free(f->path);
    *f = (struct serve_park_folder){.lock = -1};
}

bool serve_park_folder_is(const char *path)
{
    char *lock = app_in_folder(path, "winnow.lock");
    const bool is = lock && access(lock, F_OK) == 0;
    free(lock);
    return is;
}

/* ---- Files ---- */

int serve_park_folder_write(size_t *bytes, const struct serve_park_folder *f, uint64_t id,
                            const struct serve_park_about *about, const uint8_t *image, size_t n)
{
    char *path = path_of(f, id);
    *bytes = 0;
    const int rc = path ? serve_park_file_write(bytes, path, about, f->fingerprint, image, n)
                        : wnw__fail(WNW_E_NOMEM, "no memory for a parked prompt");
    free(path);
    return rc;
}

int serve_park_folder_image(uint8_t **image, size_t *n, const struct serve_park_folder *f, uint64_t id)
{
    char *path = path_of(f, id);
    *image = NULL;
    const int rc = path ? serve_park_file_image(image, n, path)
                        : wnw__fail(WNW_E_NOMEM, "no memory for a parked prompt");
    free(path);
    return rc;
}

void serve_park_folder_touch(const struct serve_park_folder *f, uint64_t id)
{
    char *path = path_of(f, id);
    if (path)
        (void)utimensat(AT_FDCWD, path, NULL, 0);
    free(path);
}

void serve_park_folder_remove(const struct serve_park_folder *f, uint64_t id)
{
    char *path = path_of(f, id);
    if (path)
        unlink(path);
    free(path);
}
