/* SPDX-License-Identifier: MIT */
/* Opening files whose paths users give. */
#ifndef WNW_BASE_FILE_H
#define WNW_BASE_FILE_H

#include "base/err.h"

/* Opens a regular file for reading and never waits: a FIFO or a device is refused before anything is read
 * from it. `what` names it in messages ("model"). E_IO: the file cannot be opened; E_FORMAT: it is no
 * regular file; E_NOMEM. *fd is -1 after a failure; otherwise the caller closes it, and *size is in bytes. */
int wnw__open_file(int *fd, int64_t *size, const char *what, const char *path);

#endif
