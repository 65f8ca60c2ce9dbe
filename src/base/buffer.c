/* SPDX-License-Identifier: MIT */
#include "base/buffer.h"

#include <stdlib.h>

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
