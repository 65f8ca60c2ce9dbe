/* SPDX-License-Identifier: MIT */
/* What the system gives: files whose paths users name, the time, and stacks. Its cores are public, wnw_usable_cores(). */
#ifndef WNW_BASE_SYSTEM_H
#define WNW_BASE_SYSTEM_H

#include "base/err.h"

#include <stdio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a regular file for reading and never waits: a FIFO or a device is refused before anything is read
 * from it. `what` names it in messages ("model"). E_IO: the file cannot be opened; E_FORMAT: it is no
 * regular file; E_NOMEM. *fd is -1 after a failure; otherwise the caller closes it, and *size is in bytes. */
int wnw__open_file(int *fd, int64_t *size, const char *what, const char *path);
/* The same as a stream, which the caller closes; *f is NULL after a failure. */
int wnw__open_stream(FILE **f, int64_t *size, const char *what, const char *path);
/* Reads n bytes of an open file from byte `at` on. E_IO: they cannot be read; E_FORMAT: it ends before. */
int wnw__read_at(int fd, void *to, size_t n, uint64_t at);

/* Milliseconds of a clock that never goes back. */
static inline double wnw__now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

/* A time as seconds since 1970 whose date and hour in UTC are those of `at` in local time. */
int64_t wnw__local_seconds(time_t at);

/* Runs call(arg) on a thread whose stack has at least `bytes`, waits for it and returns its status; its
 * sentence becomes the calling thread's. Only what is used of the stack takes memory. Signals are left to the
 * program's own threads. Errors: the call's, and E_NOMEM (no stack, no thread). */
int wnw__on_stack(size_t bytes, int (*call)(void *), void *arg);

#ifdef __cplusplus
}
#endif

#endif
