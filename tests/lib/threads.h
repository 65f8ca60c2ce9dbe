/* SPDX-License-Identifier: MIT */
/* Threads of the tests' own in the place of a team's. ThreadSanitizer sees all that they do, while its suppressions
 * for ggml hide what a team's threads do (decision 023). */
#ifndef WNW_TESTS_THREADS_H
#define WNW_TESTS_THREADS_H

#include "peek_arrays.h"

/* Calls work(user, ith, nth) on nth threads, at most 16, and waits for all of them. */
void test_on_threads(int nth, void (*work)(void *user, int ith, int nth), void *user);

/* For the field of that name: starts pool->n_threads - 1 threads and joins them. */
void test_gather(struct wnw__pool *pool);

#endif
