/* SPDX-License-Identifier: MIT */
/* The protected entries of a selection: a selector lists those before its choice, and those after it. */
#ifndef WNW_METHOD_PROTECTED_H
#define WNW_METHOD_PROTECTED_H

#include "winnow_method.h"

/* Lists the first protected entries in keep. Returns how many there are. */
static inline int32_t wnw__keep_first(const wnw_select_problem *p, int32_t *keep)
{
    for (int32_t i = 0; i < p->prot.n_first; i++)
        keep[i] = i;
    return p->prot.n_first;
}

/* Lists the last protected entries in keep, after its first m. Returns how many it lists then. */
static inline int32_t wnw__keep_last(const wnw_select_problem *p, int32_t *keep, int32_t m)
{
    for (int32_t i = p->n - p->prot.n_last; i < p->n; i++)
        keep[m++] = i;
    return m;
}

#endif
