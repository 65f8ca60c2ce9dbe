/* SPDX-License-Identifier: MIT */
#include "base/memory.h"

#include "base/err.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Up to this size, in bytes, the look may take memory that the heap has free. Larger blocks are asked of the
 * system directly: the C library adapts to the sizes of freed blocks, and would then keep more memory to
 * itself. */
enum { HEAP_MOST = 1 << 16 };

int wnw__memory_look(size_t bytes, const char *what)
{
    bool there;
    if (bytes <= HEAP_MOST) {
        void *volatile p = malloc(bytes + 1); /* volatile: a pair of malloc and free may be left out */
        there = p != NULL;
        free(p);
    } else {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        there = p != MAP_FAILED;
        if (there)
            munmap(p, bytes);
    }
    return there ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for %s: up to %zu bytes", what, bytes);
}
