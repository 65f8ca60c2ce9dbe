/* SPDX-License-Identifier: MIT */
/*
 * Memory that runs out where a test says. Programs that use it are linked with WNW_FAILING_ALLOC_OPTIONS
 * (tests/CMakeLists.txt), so that the calls of the library and of the test come here first; those inside
 * ggml, libllama and the C library do not. Threads that cannot be started count as allocations, too.
 */
#ifndef WNW_TESTS_FAILING_ALLOC_H
#define WNW_TESTS_FAILING_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

/* From now on the n-th allocation fails, n >= 1, and with for_good all that follow. n = 0: none. */
void alloc_arm(int64_t n, bool for_good);
/* Nothing fails any more. Returns how many allocations there were since. */
int64_t alloc_disarm(void);
/* Blocks and mappings that exist now. Only differences mean something. */
int64_t alloc_live(void);
/* Calls of qsort, which allocates, so far. */
int64_t alloc_sorts(void);

#endif
