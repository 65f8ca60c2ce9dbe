/* SPDX-License-Identifier: MIT */
#include "winnow.h"

#include <sched.h>
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
