/* SPDX-License-Identifier: MIT */
/*
 * A file that appears under its name when all of it is on the disk, and then replaces an older one. Until then it has no
 * name, if the file system can do that. So nothing is left of it however the process ends. On other file systems it is
 * NAME.PROCESS-NUMBER.tmp in the same folder.
 */
#ifndef WNW_BASE_WHOLE_FILE_H
#define WNW_BASE_WHOLE_FILE_H

#include "base/err.h"

#include <sys/types.h>

/* Starts as {.fd = -1}. */
struct wnw__whole_file {
    int fd;          /* to be written to; -1 = not open */
    char *path;      /* where it will be, symbolic links resolved; owned */
    char *temporary; /* the name that it has until then, owned; NULL = none */
};

/* The path that symbolic links lead to, whether a file is there or not: a file that is written there does not take the place of a link. The caller
 * frees it; NULL with errno set. */
char *wnw__behind_links(const char *path);

/* The folder that a path is in, which the caller frees; NULL without memory. */
char *wnw__folder_of(const char *path);

/* Makes an empty file for `path`, with the permissions of the file that is there. E_ARG: something else than a file is
 * there. E_IO: no file can be made there. E_NOMEM. */
int wnw__whole_file_open(struct wnw__whole_file *f, const char *path);
/* Writes at the end. E_IO. */
int wnw__whole_file_write(struct wnw__whole_file *f, const void *bytes, size_t n);
/* Writes at byte `at`, which was written before. E_IO. */
int wnw__whole_file_rewrite(struct wnw__whole_file *f, const void *bytes, size_t n, off_t at);
/* Puts what was written on the disk: what takes long of wnw__whole_file_commit, for callers that hold a lock while they commit. E_IO. */
int wnw__whole_file_sync(struct wnw__whole_file *f);
/* Puts the file on the disk and gives it its name; it is closed in any case, and gone after a failure. E_IO, E_NOMEM. */
int wnw__whole_file_commit(struct wnw__whole_file *f);
/* Whether a file NAME.PROCESS-NUMBER.tmp is left of a process that has ended, and not one that is being written. */
bool wnw__whole_file_is_abandoned(const char *path);
/* Closes it and takes it away. Does nothing where none is open. */
void wnw__whole_file_abort(struct wnw__whole_file *f);

#endif
