/* SPDX-License-Identifier: MIT */
/* Memory of a cache in whole pages. */
#include "cache/cache_impl.h"

#include <sys/mman.h>
#include <unistd.h>

size_t wnw__cache_page_round(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

uint8_t *wnw__cache_map_pages(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}
