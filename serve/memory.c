/* SPDX-License-Identifier: MIT */
#include "serve/memory.h"

#include <malloc.h>

enum { OWN_PAGES = 1 << 20, LARGE = 256 << 10 };

void serve_memory_begin(void)
{
    mallopt(M_MMAP_THRESHOLD, OWN_PAGES);
    mallopt(M_TRIM_THRESHOLD, 2 * OWN_PAGES);
}

void serve_memory_end(size_t n)
{
    if (n >= LARGE)
        malloc_trim(0);
}
