/* SPDX-License-Identifier: MIT */
/* Arrays that grow by one element, and what is said where memory runs out or the library fails. */
#ifndef WNW_EVAL_GROW_H
#define WNW_EVAL_GROW_H

#include "app/console.h"
#include "app/stop.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for one more element of an array that was filled by this function alone; `list` is the address of its pointer, which
 * is NULL while n is 0. There is room for the next power of two, so that the array needs no note of it. Returns false if memory
 * runs out; the array then stays. */
static inline bool eval_grow(void *list, size_t n, size_t size)
{
    void *old, *grown;
    memcpy(&old, list, sizeof old);
    if (n > 0 && (n & (n - 1)) != 0)
        return true;
    const size_t room = n > 0 ? 2 * n : 1;
    grown = n < SIZE_MAX / 2 / size ? realloc(old, room * size) : NULL;
    if (grown)
        memcpy(list, &grown, sizeof grown);
    return grown != NULL;
}

/* Says that memory for something ran out and returns the exit code. */
static inline int eval_no_memory(const char *what)
{
    return app_fail(APP_FAILED, "out of memory for %s", what);
}

/* Functions that return exit codes use WNW_TRY too. */
_Static_assert((int)APP_OK == (int)WNW_OK, "one value says that all is well");

/* Converts a library status to an exit code, and prints a failure. Logits that are not numbers are not a failure here: the caller
 * checks for them. */
static inline int eval_status_code(int status)
{
    if (status == WNW_OK || status == WNW_E_NOT_FINITE)
        return APP_OK;
    return status == WNW_E_CANCELLED ? (int)APP_INTERRUPTED : app_fail_status(status);
}

#endif
