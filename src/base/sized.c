/* SPDX-License-Identifier: MIT */
#include "base/sized.h"

#include <string.h>

static uint32_t size_of(const void *theirs)
{
    uint32_t size;
    memcpy(&size, theirs, sizeof size);
    return size;
}

int wnw__sized_check(const void *theirs, size_t size, size_t align, const char *type)
{
    if (!theirs)
        return WNW_OK;
    const uint32_t given = size_of(theirs);
    if (given == 0)
        return wnw__fail(WNW_E_ARG,
                         "struct_size of %s is 0; begin it with WNW_INIT(%s), or with its default function",
                         type, type);
    if (given > size)
        return wnw__fail(WNW_E_ARG,
                         "struct_size of %s is %u and this library, %s, knows %zu bytes; set it with "
                         "WNW_INIT(%s), or use the library that the program was compiled for",
                         type, (unsigned)given, wnw_version(), size, type);
    if (given < sizeof given || given % align != 0)
        return wnw__fail(WNW_E_ARG, "struct_size of %s is %u, which no version had; set it with WNW_INIT(%s)",
                         type, (unsigned)given, type);
    return WNW_OK;
}

int wnw__sized_take(void *own, const void *theirs, size_t size, size_t align, const char *type)
{
    WNW_TRY(wnw__sized_check(theirs, size, align, type));
    if (theirs)
        memcpy((char *)own + sizeof(uint32_t), (const char *)theirs + sizeof(uint32_t),
               size_of(theirs) - sizeof(uint32_t));
    return WNW_OK;
}

void wnw__sized_give(void *theirs, const void *own)
{
    if (theirs)
        memcpy((char *)theirs + sizeof(uint32_t), (const char *)own + sizeof(uint32_t),
               size_of(theirs) - sizeof(uint32_t));
}
