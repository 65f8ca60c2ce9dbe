/* SPDX-License-Identifier: MIT */
/* The row of a dropped entry, which stays in a cache: all of its bits are set. */
#ifndef WNW_BASE_DROPPED_H
#define WNW_BASE_DROPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether some bytes may have (a part of) such a row: rows and parts have at least 16 bytes. */
static inline bool wnw__may_have_dropped(const uint8_t *bytes, size_t n)
{
    enum { LEAST = 16 };
    size_t run = 0;
    for (size_t i = 0; i < n && run < LEAST; i++)
        run = bytes[i] == 0xff ? run + 1 : 0;
    return run == LEAST;
}

#endif
