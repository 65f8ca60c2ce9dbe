/* SPDX-License-Identifier: MIT */
#include "base/file_state.h"

#include <string.h>
#ifdef __linux__
#include <linux/magic.h>
#include <sys/vfs.h>
#ifndef F2FS_SUPER_MAGIC
#define F2FS_SUPER_MAGIC 0xF2F52010
#endif
#endif

/* File systems whose times follow every write, also one through a mapping. Others, such as tmpfs, overlays and those of a network,
 * may hold a new content under the old times. */
static bool times_follow_writes(int fd)
{
#ifdef __linux__
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0)
        return false;
    const unsigned long type = (unsigned long)fs.f_type & 0xffffffffUL;
    return type == EXT4_SUPER_MAGIC || type == XFS_SUPER_MAGIC || type == BTRFS_SUPER_MAGIC ||
           type == F2FS_SUPER_MAGIC;
#else
    (void)fd;
    return false;
#endif
}

struct wnw__file_state wnw__file_state_from(const struct stat *st)
{
    return (struct wnw__file_state){.dev = st->st_dev,
                                    .ino = st->st_ino,
                                    .size = st->st_size,
                                    .modified = {st->st_mtim.tv_sec, st->st_mtim.tv_nsec},
                                    .changed = {st->st_ctim.tv_sec, st->st_ctim.tv_nsec}};
}

struct wnw__file_state wnw__file_state_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return (struct wnw__file_state){.tells = false};
    struct wnw__file_state state = wnw__file_state_from(&st);
    state.tells = times_follow_writes(fd);
    return state;
}

bool wnw__file_state_kept(int fd, const struct wnw__file_state *state)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return false;
    const struct wnw__file_state now = wnw__file_state_from(&st);
    return now.size == state->size && memcmp(now.modified, state->modified, sizeof now.modified) == 0;
}
