/* SPDX-License-Identifier: MIT */
/* Threads of the tests' own in the place of a team's. ThreadSanitizer sees all that they do, while its suppressions
 * for ggml hide what a team's threads do (decision 023). */
#ifndef WNW_TESTS_THREADS_H
#define WNW_TESTS_THREADS_H

#include "peek_arrays.h"

/* For the field of that name: starts pool->n_threads - 1 threads and joins them. */
void test_gather(struct wnw__pool *pool);

#endif
