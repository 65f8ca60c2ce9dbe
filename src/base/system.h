/* SPDX-License-Identifier: MIT */
/* What the system gives: files whose paths users name, and the time. Its cores are public, wnw_usable_cores(). */
#ifndef WNW_BASE_SYSTEM_H
#define WNW_BASE_SYSTEM_H

#include "base/err.h"

#include <time.h>

/* Opens a regular file for reading and never waits: a FIFO or a device is refused before anything is read
 * from it. `what` names it in messages ("model"). E_IO: the file cannot be opened; E_FORMAT: it is no
 * regular file; E_NOMEM. *fd is -1 after a failure; otherwise the caller closes it, and *size is in bytes. */
int wnw__open_file(int *fd, int64_t *size, const char *what, const char *path);

/* Milliseconds of a clock that never goes back. */
static inline double wnw__now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

#endif
