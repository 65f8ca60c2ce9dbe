/* SPDX-License-Identifier: MIT */
#include "base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int32_t wnw_usable_cores(void)
{
#ifdef __linux__
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return CPU_COUNT(&set);
#endif
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 && n < INT32_MAX ? (int32_t)n : 1;
}

int wnw__open_file(int *fd, int64_t *size, const char *what, const char *path)
{
    struct stat st;
    *size = 0;
    /* Without O_NONBLOCK, open waits at a FIFO until another process writes to it; for regular files the flag
     * changes nothing. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0)
        return wnw__fail(errno == ENOMEM ? WNW_E_NOMEM : WNW_E_IO, "cannot open the %s '%.200s': %s", what,
                         path, strerror(errno));
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *size = st.st_size;
        return WNW_OK;
    }
    close(*fd);
    *fd = -1;
    return wnw__fail(WNW_E_FORMAT, "the %s '%.200s' is not a regular file", what, path);
}
