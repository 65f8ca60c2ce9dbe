/* SPDX-License-Identifier: MIT */
#include "base/memory.h"

#include "winnow.h"

#include <stdlib.h>
#include <sys/mman.h>

/* ---- Checking for memory ---- */

/* Up to this size, in bytes, the check may take memory that the heap has free. Larger blocks are asked of the
 * system directly: the C library adapts to the sizes of freed blocks, and would then keep more memory to
 * itself. */
enum { HEAP_MOST = 1 << 16 };

int wnw__memory_check(size_t bytes, const char *what)
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

/* ---- Memory that is reused ---- */

int wnw__buffer_need(struct wnw__buffer *b, size_t n, size_t size, const char *what)
{
    n = n > 0 ? n : 1;
    if (n <= b->cap / size)
        return WNW_OK;
    wnw__buffer_free(b);
    b->p = n <= SIZE_MAX / size ? malloc(n * size) : NULL;
    b->cap = b->p ? n * size : 0;
    return b->p ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for %zu bytes of %s", n * size, what);
}

void wnw__buffer_free(struct wnw__buffer *b)
{
    free(b->p);
    *b = (struct wnw__buffer){0};
}

/* ---- Memory of callers ---- */

/* Here, and not with any that returns memory, because the library that ggml loads takes of others what they need. */
void wnw_free(void *p)
{
    free(p);
}
