/* SPDX-License-Identifier: MIT */
/* What the system says: the time. Its cores are public, wnw_usable_cores(). */
#ifndef WNW_BASE_SYSTEM_H
#define WNW_BASE_SYSTEM_H

#include <time.h>

/* Milliseconds of a clock that never goes back. */
static inline double wnw__now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

#endif
