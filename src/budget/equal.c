/* SPDX-License-Identifier: MIT */
/* The same count for every KV head of a layer. A head with fewer entries keeps them all, and no other head
 * gets the rest. */
#include "policy/part.h"

static int allocate(const void *opts, const wnw_head_problem *p, int32_t *n_keep, int32_t *n_safe,
                    float *scratch)
{
    (void)opts;
    (void)n_safe;
    (void)scratch;
    for (int32_t ih = 0; ih < p->n_head_kv; ih++)
        n_keep[ih] = p->budget < p->n_entry[ih] ? p->budget : p->n_entry[ih];
    return WNW_OK;
}

const wnw_head_budget wnw__head_budget_equal = {
    .part = {WNW_HEAD_BUDGET_INIT, .name = "equal", .about = "The same count for every KV head of a layer.",
             .details = "A head that has fewer entries keeps all it has, and nobody gets the rest."},
    .allocate = allocate,
};
