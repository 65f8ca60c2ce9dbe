/* SPDX-License-Identifier: MIT */
#include "base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int cannot(const char *path, int err)
{
    return wnw__fail(err == ENOMEM ? WNW_E_NOMEM : WNW_E_IO, "cannot write '%.200s': %s", path,
                     strerror(err));
}

/* `path` and an ending, which the caller frees; NULL with errno set. Of the longest names that files can have, as much is taken
 * as leaves room for it. */
static char *beside(const char *path, const char *ending)
{
    const char *slash = strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash - path) + 1 : 0, all = strlen(path),
                 most = folder + NAME_MAX - strlen(ending);
    size_t n = all < most ? all : most;
    while (n < all && n > folder && ((unsigned char)path[n] & 0xc0) == 0x80) /* no part of a character */
        n--;
    const size_t size = n + strlen(ending) + 1;
    char *name = malloc(size);
    if (name)
        snprintf(name, size, "%.*s%s", (int)n, path, ending);
    return name;
}

/* The target of a symbolic link as a path from the working folder, which the caller frees; NULL with errno
 * set. */
static char *link_target(const char *path)
{
    char text[PATH_MAX];
    const ssize_t n = readlink(path, text, sizeof text - 1);
    if (n < 0)
        return NULL;
    text[n] = '\0';
    const char *slash = strrchr(path, '/');
    const int folder = text[0] == '/' || !slash ? 0 : (int)(slash - path) + 1;
    const size_t size = (size_t)folder + (size_t)n + 1;
    char *out = malloc(size);
    if (out)
        snprintf(out, size, "%.*s%s", folder, path, text);
    return out;
}

char *wnw__behind_links(const char *path)
{
    char real[PATH_MAX];
    if (realpath(path, real))
        return strdup(real);
    if (errno != ENOENT)
        return NULL;
    char *at = strdup(path);
    for (int depth = 0; at; depth++) {
        char *next = depth < 40 ? link_target(at) : NULL;
        const int err = depth < 40 ? errno : ELOOP;
        /* The path is no link, or nothing exists there: this is the name that the file will have. */
        if (!next && (err == EINVAL || err == ENOENT))
            return at;
        free(at);
        at = next;
        if (!next)
            errno = err;
    }
    return NULL;
}

char *wnw__folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t n = slash && slash > path ? (size_t)(slash - path) : 1;
    return slash ? strndup(path, n) : strdup(".");
}

/* Makes an empty file of this name, with the permissions that the process gives new files. Returns 0 or errno. */
static int create(struct wnw__whole_file *f)
{
    f->fd = open(f->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return f->fd >= 0 ? 0 : errno;
}

/* The path by which a file without a name is found. */
static void self_path(char self[64], const struct wnw__whole_file *f)
{
    snprintf(self, 64, "/proc/self/fd/%d", f->fd);
}

/* Gives a file without a name this one. Returns 0 or errno. */
static int link_it(struct wnw__whole_file *f)
{
    char self[64];
    self_path(self, f);
    return linkat(AT_FDCWD, self, AT_FDCWD, f->temporary, AT_SYMLINK_FOLLOW) == 0 ? 0 : errno;
}

/* Finds a free name in the folder of the final file. Names are tried, because neither way replaces a file. Returns 0 or
 * errno. */
static int name_it(struct wnw__whole_file *f, int (*make)(struct wnw__whole_file *f))
{
    char ending[48];
    int err = EEXIST;
    for (int i = 0; err == EEXIST && i < 1000; i++) {
        snprintf(ending, sizeof ending, ".%d-%d.tmp", (int)getpid(), i);
        f->temporary = beside(f->path, ending);
        if (!f->temporary)
            return ENOMEM;
        err = make(f);
        if (err) {
            free(f->temporary);
            f->temporary = NULL;
        }
    }
    return err;
}

/* A file without a name, or with a temporary name in the same folder. Returns 0 or errno. */
static int make_file(struct wnw__whole_file *f)
{
    char *folder = wnw__folder_of(f->path);
    if (!folder)
        return ENOMEM;
    f->fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    const int err = f->fd >= 0 ? 0 : errno;
    free(folder);
    char self[64];
    self_path(self, f);
    /* Without /proc it could not be given a name at the end. */
    const bool lost = !err && access(self, F_OK) != 0;
    if (lost)
        close(f->fd);
    const bool named = lost || err == EOPNOTSUPP || err == EISDIR || err == EINVAL || err == ENOENT;
    return named ? name_it(f, create) : err;
}

/* The lock shows others who find the file that its process is alive. Where files cannot be locked, nothing can
 * be done about it. */
static void hold(const struct wnw__whole_file *f)
{
    (void)flock(f->fd, LOCK_EX | LOCK_NB);
}

int wnw__whole_file_open(struct wnw__whole_file *f, const char *path)
{
    struct stat st;
    *f = (struct wnw__whole_file){.fd = -1};
    const bool present = stat(path, &st) == 0;
    if (present && !S_ISREG(st.st_mode))
        return wnw__fail(WNW_E_ARG, "'%.200s' is not a regular file; name a file to write", path);
    if (present && access(path, W_OK) != 0)
        return cannot(path, errno);
    f->path = wnw__behind_links(path);
    if (!f->path)
        return cannot(path, errno);
    int err = make_file(f);
    if (!err && present && fchmod(f->fd, st.st_mode & 0777) != 0)
        err = errno;
    if (!err) {
        hold(f);
        return WNW_OK;
    }
    wnw__whole_file_abort(f);
    return cannot(path, err);
}

bool wnw__whole_file_is_abandoned(const char *path)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    const bool is = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

/* Writes all of it, at a place or (at < 0) at the end. */
static int write_all(struct wnw__whole_file *f, const void *bytes, size_t n, off_t at)
{
    const char *from = bytes;
    while (n > 0) {
        const ssize_t done = at < 0 ? write(f->fd, from, n) : pwrite(f->fd, from, n, at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return cannot(f->path, done == 0 ? ENOSPC : errno);
        from += done;
        n -= (size_t)done;
        at += at < 0 ? 0 : done;
    }
    return WNW_OK;
}

int wnw__whole_file_write(struct wnw__whole_file *f, const void *bytes, size_t n)
{
    return write_all(f, bytes, n, -1);
}

int wnw__whole_file_rewrite(struct wnw__whole_file *f, const void *bytes, size_t n, off_t at)
{
    return write_all(f, bytes, n, at);
}

/* The name is on the disk too; where folders cannot be synced, nothing can be done about it. */
static void sync_folder(const char *path)
{
    char *folder = wnw__folder_of(path);
    const int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(folder);
}

int wnw__whole_file_sync(struct wnw__whole_file *f)
{
    return fsync(f->fd) == 0 ? WNW_OK : cannot(f->path, errno);
}

int wnw__whole_file_commit(struct wnw__whole_file *f)
{
    int err = fsync(f->fd) == 0 ? 0 : errno;
    if (!err && !f->temporary)
        err = name_it(f, link_it);
    if (!err && rename(f->temporary, f->path) != 0)
        err = errno;
    if (err) {
        const int rc = cannot(f->path, err);
        wnw__whole_file_abort(f);
        return rc;
    }
    free(f->temporary);
    f->temporary = NULL;
    sync_folder(f->path);
    wnw__whole_file_abort(f);
    return WNW_OK;
}

void wnw__whole_file_abort(struct wnw__whole_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    if (f->temporary)
        unlink(f->temporary);
    free(f->temporary);
    free(f->path);
    *f = (struct wnw__whole_file){.fd = -1};
}
