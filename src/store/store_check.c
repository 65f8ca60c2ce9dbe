/* SPDX-License-Identifier: MIT */
/* Checking a folder of documents: nothing is deleted but files that were never whole. See store.h. */
#include "store/store.h"

#include "base/err.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char aside[] = "unreadable"; /* folder in the folder */

/* ---- Names of files ---- */

struct names {
    char (*at)[WNW_DOCUMENT_NAME];
    size_t n, cap;
};

static int add_name(struct names *names, const char *name)
{
    if (names->n == names->cap) {
        const size_t cap = names->cap * 2 + 64;
        char(*more)[WNW_DOCUMENT_NAME] = realloc(names->at, cap * sizeof *more);
        if (!more)
            return wnw__fail(WNW_E_NOMEM, "no memory for the names of documents");
        names->at = more;
        names->cap = cap;
    }
    snprintf(names->at[names->n++], sizeof *names->at, "%.39s", name); /* all that a row can have */
    return WNW_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int add_names_of_index(struct names *names, wnw_store *store)
{
    wnw_store_entry *entries;
    int64_t n;
    int rc = wnw__index_list(store, &entries, &n);
    for (int64_t i = 0; rc == WNW_OK && i < n; i++)
        rc = add_name(names, entries[i].name);
    free(entries);
    return rc;
}

static int add_names_of_folder(struct names *names, const wnw_store *store)
{
    int rc = WNW_OK;
    DIR *dir = opendir(store->folder);
    if (!dir)
        return wnw__fail(WNW_E_IO, "cannot read the folder '%.200s': %s", store->folder, strerror(errno));
    for (struct dirent *e; rc == WNW_OK && (e = readdir(dir));)
        if (wnw__document_is_name(e->d_name))
            rc = add_name(names, e->d_name);
    closedir(dir);
    return rc;
}

/* The names of documents that the index has, or the folder, each once. */
static int find_names(struct names *names, wnw_store *store, bool of_index)
{
    size_t n_once = 0;
    if (of_index)
        WNW_TRY(add_names_of_index(names, store));
    WNW_TRY(add_names_of_folder(names, store));
    if (names->n > 0)
        qsort(names->at, names->n, sizeof *names->at, by_name);
    for (size_t i = 0; i < names->n; i++)
        if (i == 0 || strcmp(names->at[i], names->at[i - 1]) != 0)
            memmove(names->at[n_once++], names->at[i], sizeof *names->at);
    names->n = n_once;
    return WNW_OK;
}

/* ---- Rows that are missing ---- */

/* What a file says of itself, after it was closed. */
struct found {
    struct wnw__document d;
    char *text[3]; /* owned */
};

static void free_found(struct found *all, size_t n)
{
    for (size_t i = 0; all && i < n; i++)
        for (int k = 0; k < 3; k++)
            free(all[i].text[k]);
    free(all);
}

/* Reads a document; *good: it is one. */
static int read_found(struct found *f, bool *good, const wnw_store *store, const char *name)
{
    wnw_stored *st;
    int rc = wnw__document_open(&st, store, name);
    *good = rc == WNW_OK && wnw__document_of_file(&f->d, st, name) == WNW_OK;
    if (*good) {
        const char *const from[] = {f->d.form, f->d.fingerprint, f->d.policy};
        for (int i = 0; i < 3; i++)
            *good = (f->text[i] = strdup(from[i])) != NULL && *good;
        rc = *good ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the rows of documents");
        f->d.form = f->text[0];
        f->d.fingerprint = f->text[1];
        f->d.policy = f->text[2];
    }
    wnw_stored_free(st);
    return rc == WNW_E_NOMEM ? rc : WNW_OK;
}

/* The oldest first. */
static int by_age(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->d.used != y->d.used)
        return x->d.used < y->d.used ? -1 : 1;
    return strcmp(x->d.name, y->d.name);
}

bool wnw__store_has_file(const wnw_store *store, const char *name)
{
    struct stat st;
    char *path = wnw__store_path(store->folder, name);
    const bool is = path && stat(path, &st) == 0;
    free(path);
    return is;
}

/* Reads the documents that are whole. The caller frees *all in any case. */
static int read_all(struct found **all, size_t *n_found, const wnw_store *store, const struct names *names)
{
    bool good;
    if (names->n == 0)
        return WNW_OK;
    *all = calloc(names->n, sizeof **all);
    if (!*all)
        return wnw__fail(WNW_E_NOMEM, "no memory for the rows of documents");
    for (size_t i = 0; i < names->n; i++) {
        WNW_TRY(read_found(&(*all)[*n_found], &good, store, names->at[i]));
        *n_found += good;
    }
    return WNW_OK;
}

static int insert_all(wnw_store *store, const struct found *all, size_t n_found, int64_t *n)
{
    WNW_TRY(wnw__index_begin(store));
    for (size_t i = 0; i < n_found; i++)
        if (wnw__store_has_file(store, all[i].d.name)) {
            WNW_TRY(wnw__index_insert(store, &all[i].d, false));
            ++*n;
        }
    return WNW_OK;
}

int wnw__store_adopt(wnw_store *store, int64_t *n)
{
    struct names names = {0};
    struct found *all = NULL;
    size_t n_found = 0;
    *n = 0;
    int rc = find_names(&names, store, false);
    if (rc == WNW_OK)
        rc = read_all(&all, &n_found, store, &names);
    if (rc == WNW_OK && n_found > 0) {
        qsort(all, n_found, sizeof *all, by_age);
        rc = wnw__index_end(store, insert_all(store, all, n_found, n));
    }
    free_found(all, names.n);
    free(names.at);
    return rc;
}

/* ---- Setting aside ---- */

/* Moves a file to a place that nothing has; an error number, 0 for none. */
static int move_unless_there(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    /* File systems that cannot do that at once. */
    if (access(to, F_OK) == 0)
        return EEXIST;
    return rename(from, to) == 0 ? 0 : errno;
}

int wnw__store_set_aside(const char *folder, const char *name)
{
    char *from = wnw__store_path(folder, name), *to = wnw__store_path(folder, aside);
    int err = from && to ? EEXIST : ENOMEM;
    if (!err || (err == EEXIST && mkdir(to, 0777) != 0 && errno != EEXIST))
        err = errno;
    for (int i = 0; err == EEXIST && i < 10000; i++) {
        char place[sizeof aside + 300];
        snprintf(place, sizeof place, i == 0 ? "%s/%s" : "%s/%s.%d", aside, name, i);
        free(to);
        to = wnw__store_path(folder, place);
        err = to ? move_unless_there(from, to) : ENOMEM;
    }
    free(from);
    free(to);
    return err ? wnw__fail(WNW_E_IO, "cannot move '%.100s' of the store '%.200s' to '%s': %s", name, folder,
                           aside, strerror(err))
               : WNW_OK;
}

/* ---- Judging ---- */

struct checking {
    wnw_store *store;
    wnw_store_report report;
    void (*note)(const char *name, const char *what, void *user);
    void *user;
};

static void note(const struct checking *c, const char *name, const char *what)
{
    if (c->note)
        c->note(name, what, c->user);
}

/* Whether two looks at a path have seen the same file. */
static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Moves a file aside, and removes its row. *again: another process has put another file in its place since it was looked at. */
static int remove_bad(struct checking *c, const char *name, const char *path, const struct stat *seen,
                      bool *again)
{
    struct stat now;
    WNW_TRY(wnw__index_begin(c->store));
    *again = stat(path, &now) != 0 || !same_file(seen, &now);
    int rc = *again ? WNW_OK : wnw__store_set_aside(c->store->folder, name);
    if (rc == WNW_OK && !*again)
        rc = wnw__index_delete(c->store, name);
    return wnw__index_end(c->store, rc);
}

/* Removes the row of a document whose file is gone, unless it came back. */
static int remove_row(struct checking *c, const char *name, const char *path, bool *again)
{
    struct stat now;
    WNW_TRY(wnw__index_begin(c->store));
    *again = wnw__document_is_name(name) && stat(path, &now) == 0;
    return wnw__index_end(c->store, *again ? WNW_OK : wnw__index_delete(c->store, name));
}

static int add_row(struct checking *c, const struct wnw__document *d, const char *path,
                   const struct stat *seen, bool *again)
{
    struct stat now;
    WNW_TRY(wnw__index_begin(c->store));
    *again = stat(path, &now) != 0 || !same_file(seen, &now);
    return wnw__index_end(c->store, *again ? WNW_OK : wnw__index_insert(c->store, d, false));
}

/* Whether a file is a whole document. It is given a row if it has none. */
static int take_file(struct checking *c, const char *name, const char *path, const struct stat *seen,
                     bool has_row, bool *again)
{
    struct wnw__document d;
    wnw_stored *st;
    WNW_TRY(wnw__document_open(&st, c->store, name));
    int rc = wnw__document_of_file(&d, st, name);
    if (rc == WNW_OK && !has_row)
        rc = add_row(c, &d, path, seen, again);
    wnw_stored_free(st);
    return rc;
}

static int judge_file(struct checking *c, const char *name, const char *path, bool has_row, bool *again)
{
    struct stat seen;
    char why[500];
    if (!wnw__document_is_name(name) || (stat(path, &seen) != 0 && errno == ENOENT)) {
        WNW_TRY(remove_row(c, name, path, again));
        c->report.n_gone += !*again;
        if (!*again)
            note(c, name, "its file is gone, and its row was removed");
        return WNW_OK;
    }
    const int rc = take_file(c, name, path, &seen, has_row, again);
    if (rc == WNW_OK) {
        c->report.n_whole += !*again;
        c->report.n_added += !*again && !has_row;
        if (!*again && !has_row)
            note(c, name, "no row named it, and one was added");
        return WNW_OK;
    }
    if (rc == WNW_E_UNSUPPORTED || rc == WNW_E_MISMATCH) { /* it may be whole for another program */
        c->report.n_other++;
        return WNW_OK;
    }
    if (rc != WNW_E_FORMAT)
        return rc; /* why a file that is there could not be read is not known */
    snprintf(why, sizeof why, "moved to '%s': %.440s", aside, wnw_last_error());
    WNW_TRY(remove_bad(c, name, path, &seen, again));
    c->report.n_aside += !*again;
    if (!*again)
        note(c, name, why);
    return WNW_OK;
}

static int judge(struct checking *c, const char *name, bool has_row)
{
    enum { MOST_LOOKS = 5 };
    char *path = wnw__store_path(c->store->folder, name);
    bool again = true;
    int rc = path ? WNW_OK : WNW_E_NOMEM;
    for (int i = 0; rc == WNW_OK && again && i < MOST_LOOKS; i++) {
        again = false;
        rc = judge_file(c, name, path, has_row, &again);
    }
    free(path);
    return rc;
}

/* Removes what is left of documents that were being written when their process ended. Files of other names are somebody's own, who
 * has put them into the folder. */
static void drop_unfinished(const wnw_store *store)
{
    DIR *dir = opendir(store->folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char *path =
            wnw__document_is_unfinished(e->d_name) ? wnw__store_path(store->folder, e->d_name) : NULL;
        if (path && wnw__whole_file_is_abandoned(path))
            unlink(path);
        free(path);
    }
    if (dir)
        closedir(dir);
}

static int by_entry(const void *a, const void *b)
{
    const wnw_store_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* names: room for those of all documents. */
static int judge_all(struct checking *c, const wnw_store_entry *entries, int64_t n_rows, struct names *names)
{
    WNW_TRY(find_names(names, c->store, true));
    for (size_t i = 0; i < names->n; i++) {
        wnw_store_entry key = wnw_store_entry_default();
        memcpy(key.name, names->at[i], sizeof key.name);
        const bool has_row = n_rows > 0 && bsearch(&key, entries, (size_t)n_rows, sizeof *entries, by_entry);
        WNW_TRY(judge(c, names->at[i], has_row));
    }
    drop_unfinished(c->store);
    return WNW_OK;
}

static int check_all(struct checking *c)
{
    struct names names = {0};
    wnw_store_entry *entries;
    int64_t n_rows;
    WNW_TRY(wnw__index_list(c->store, &entries, &n_rows));
    if (n_rows > 0)
        qsort(entries, (size_t)n_rows, sizeof *entries, by_entry);
    const int rc = judge_all(c, entries, n_rows, &names);
    free(entries);
    free(names.at);
    return rc;
}

int wnw_store_check(wnw_store *store, wnw_store_report *report,
                    void (*note_)(const char *name, const char *what, void *user), void *user)
{
    struct checking c = {.store = store, .report = wnw_store_report_default(), .note = note_, .user = user};
    WNW_TRY(WNW_SIZED_CHECK(wnw_store_report, report));
    wnw__sized_give(report, &c.report);
    WNW_REQUIRE(store);
    if (store->read_only)
        return wnw__fail(WNW_E_IO, "the store '%.200s' cannot be written to", store->folder);
    WNW_TRY(wnw__index_check(store));
    const int rc = check_all(&c);
    wnw__sized_give(report, &c.report);
    return rc;
}
