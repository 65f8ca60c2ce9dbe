/* SPDX-License-Identifier: MIT */
/* A call on a stack as large as it needs. */
#ifndef WNW_STACK_H
#define WNW_STACK_H

#include "base/err.h"

/* Runs call(arg) on a thread whose stack has at least `bytes`, waits for it and returns its status; its
 * sentence becomes the calling thread's. Only what is used of the stack takes memory. Signals are left to the
 * program's own threads. Errors besides the call's: E_NOMEM (no stack, no thread). */
int wnw__on_stack(size_t bytes, int (*call)(void *), void *arg);

#endif
