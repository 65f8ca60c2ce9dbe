/* SPDX-License-Identifier: MIT */
/* Running independent pieces of work on a few threads. For work of milliseconds: threads are made for each
 * call. */
#ifndef WNW_BASE_PARALLEL_H
#define WNW_BASE_PARALLEL_H

#include <stdint.h>

/* Calls fn(i, user) once for every i in 0..n-1, on up to n_threads threads, the caller's included. */
void wnw__parallel(int32_t n_threads, int32_t n, void (*fn)(int32_t i, void *user), void *user);

#endif
