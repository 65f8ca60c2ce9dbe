/* SPDX-License-Identifier: MIT */
/* What the file system says of a file, by which a change of its content is noticed. */
#ifndef WNW_BASE_FILE_STATE_H
#define WNW_BASE_FILE_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#ifdef __cplusplus
extern "C" {
#endif

struct wnw__file_state {
    uint64_t dev, ino;
    int64_t size, modified[2], changed[2]; /* times: seconds since 1970, nanoseconds */
    bool tells;                            /* a change of the content would show in the times */
};

/* Without `tells`, which needs an open file. */
struct wnw__file_state wnw__file_state_from(const struct stat *st);
/* Of an open file. .tells is false where the file system may write without a new time, and where nothing is known. */
struct wnw__file_state wnw__file_state_of(int fd);

/* Whether an open file still has the content of that state, by its size and the time of its last write. A new name, or none, changes
 * nothing of it. */
bool wnw__file_state_kept(int fd, const struct wnw__file_state *state);

#ifdef __cplusplus
}
#endif

#endif
