/* SPDX-License-Identifier: MIT */
#include "plan/compress_impl.h"

#include <stdlib.h>

int wnw__draft_reserve(struct wnw__floats *f, size_t n)
{
    if (n <= f->cap && f->x)
        return WNW_OK;
    free(f->x);
    f->x = n < SIZE_MAX / sizeof *f->x ? malloc((n + 1) * sizeof *f->x) : NULL;
    f->cap = f->x ? n + 1 : 0;
    return f->x ? WNW_OK : wnw__fail(WNW_E_NOMEM, "out of memory for %zu scores", n);
}
