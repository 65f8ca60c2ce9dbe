/* SPDX-License-Identifier: MIT */
/* Parts that programs register. */
#ifndef WNW_REGISTRY_H
#define WNW_REGISTRY_H

#include "winnow_method.h"

struct wnw_registry {
    const wnw_part **parts; /* borrowed descriptors */
    int32_t n, cap;
};

/* The part of this name; NULL if there is none or r is NULL. */
const wnw_part *wnw__registry_find(const wnw_registry *r, const char *name, size_t len);

#endif
