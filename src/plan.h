/* SPDX-License-Identifier: MIT */
/* Building a keep-plan head by head. */
#ifndef WNW_PLAN_H
#define WNW_PLAN_H

#include "base/err.h"

struct wnw_plan {
    int32_t n_layer, n_head_kv, n_tokens;
    int32_t *n_final; /* [n_layer] kept entries of every head that a recursive policy never looks at again */
    int32_t n_head_done; /* heads added so far, in order of layer, then head */
    int64_t *off;        /* [n_layer * n_head_kv + 1] first entry of each head in pos */
    int32_t *pos;        /* kept positions, one head behind the other */
    int64_t cap;         /* entries pos has room for */
};

/* An empty plan that wants n_layer * n_head_kv heads. */
int wnw__plan_begin(wnw_plan **out, int32_t n_layer, int32_t n_head_kv, int32_t n_tokens);
/* Room for the next head of n positions, to be filled at once; NULL without memory. */
int32_t *wnw__plan_add_head(wnw_plan *p, int32_t n);

#endif
