/* SPDX-License-Identifier: MIT */
/*
 * Structs of the public headers that begin with uint32_t struct_size, the size that the program was compiled
 * with (decision 025). The structs of a program that is older than the library end earlier.
 */
#ifndef WNW_BASE_SIZED_H
#define WNW_BASE_SIZED_H

#include "base/err.h"

/* E_ARG unless the struct_size of `theirs`, a struct of `type`, lies between the first field and the size
 * known here. */
int wnw__sized_check(const void *theirs, size_t size, size_t align, const char *type);
/* Copies the fields that `theirs` has over `own`, which holds the defaults and keeps its struct_size. Errors
 * as above. */
int wnw__sized_take(void *own, const void *theirs, size_t size, size_t align, const char *type);
/* Copies from `own` the fields that `theirs` has room for. `theirs` was checked or is NULL, and keeps its
 * struct_size. */
void wnw__sized_give(void *theirs, const void *own);

/* The same for a type by name. theirs may be NULL: then they succeed, and own stays as it is. */
#define WNW_SIZED_CHECK(type, theirs) wnw__sized_check((theirs), sizeof(type), _Alignof(type), #type)
#define WNW_SIZED_TAKE(type, own, theirs) \
    wnw__sized_take((own), (theirs), sizeof(type), _Alignof(type), #type)

#endif
