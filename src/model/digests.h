/* SPDX-License-Identifier: MIT */
/*
 * Digests of large files, kept from one process to the next. A digest is found again by what the file system says of the file: device,
 * inode, size, and the times of its last change to the nanosecond. The time of change (ctime) cannot be set by programs, so that a
 * file with another content is another file here, even with the same name, size and modification time.
 */
#ifndef WNW_DIGESTS_H
#define WNW_DIGESTS_H

#include "base/file_state.h"

/* Reads the digest of the file from the folder. False: none is there, or the state does not tell. */
bool wnw__digest_find(uint64_t digest[2], const char *folder, const struct wnw__file_state *state);

/* Keeps the digest of all bytes that the file at `path` had in this state. It is not kept if the file is in another state now, or
 * changed so recently that the next change may get the same time. The folder is made where it is missing. A failure is no error:
 * the next process reads the file. */
void wnw__digest_keep(const char *folder, const char *path, const struct wnw__file_state *state,
                      const uint64_t digest[2]);

#endif
