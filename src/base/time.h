/* SPDX-License-Identifier: MIT */
#ifndef WNW_BASE_TIME_H
#define WNW_BASE_TIME_H

#include <time.h>

/* Milliseconds of a clock that never goes back. */
static inline double wnw__now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec * 1e-6;
}

#endif
