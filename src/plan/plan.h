/* SPDX-License-Identifier: MIT */
/* Building a keep-plan head by head. */
#ifndef WNW_PLAN_H
#define WNW_PLAN_H

#include "base/err.h"

/* What is written into the kept entries of one head; positions, as everywhere in a plan. */
struct wnw__plan_contents {
    wnw_merge *merges; /* [n_merge] */
    int32_t *channels; /* [n_channel] */
    int32_t n_merge, n_channel, n_spared;
};

struct wnw_plan {
    int32_t n_layer, n_head_kv, n_tokens;
    int32_t *n_final; /* [n_layer] kept entries of every head that a recursive policy never looks at again */
    int32_t n_head_done;                 /* heads added so far, in order of layer, then head */
    int64_t *off;                        /* [n_layer * n_head_kv + 1] first entry of each head in pos */
    int32_t *pos;                        /* kept positions, one head behind the other */
    int64_t cap;                         /* entries pos has room for */
    struct wnw__plan_contents *contents; /* [n_layer * n_head_kv], or NULL: nothing is written */
    bool averages;                       /* see wnw_plan_averages */
};

/* An empty plan that wants n_layer * n_head_kv heads. */
int wnw__plan_begin(wnw_plan **out, int32_t n_layer, int32_t n_head_kv, int32_t n_tokens);
/* Room for the contents of all heads, nothing at first. */
int wnw__plan_begin_contents(wnw_plan *p, bool averages);
/* Copies what is written into the kept entries of head i = il * n_head_kv + ih. */
int wnw__plan_set_contents(wnw_plan *p, int64_t i, const wnw_merge *merges, int32_t n_merge,
                           const int32_t *channels, int32_t n_channel, int32_t n_spared);
/* Of layer il: [n_head_kv], or NULL. */
const struct wnw__plan_contents *wnw__plan_contents_of(const wnw_plan *p, int32_t il);
/* Room for the next head of n positions, to be filled at once; NULL without memory. */
int32_t *wnw__plan_add_head(wnw_plan *p, int32_t n);

#endif
