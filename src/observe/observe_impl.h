/* SPDX-License-Identifier: MIT */
/* The inside of a view: observe.c shows a layer, observe_proj.c computes projected norms. */
#ifndef WNW_OBSERVE_IMPL_H
#define WNW_OBSERVE_IMPL_H

#include "observe/observe.h"

struct wnw__view {
    struct wnw__viewed of;
    struct wnw__look look;                           /* of the present layer */
    int32_t *n_entry;                                /* [n_head_kv] */
    float *theta;                                    /* [n_rot / 2] */
    struct wnw__buffer pos;                          /* [n_head_kv][n] */
    struct wnw__buffer keys, values;                 /* [n][d] of one head */
    struct wnw__buffer norms[2 * WNW_N_PROJ_NORMS];  /* of each kind [n_head_kv][n], then [n_head][n] */
    struct wnw__buffer (*buffers)[WNW_LOOK_BUFFERS]; /* [n_type] of the types of recorders */
    int32_t n_type;
};

/* Norms of the present layer's values after the output projection: norm[n_head_kv][n] over the group, or
 * norm[n_head][n] of each query head after its own slice. They are 0 behind a head's entries, and the cache
 * keeps them with the entries. */
int wnw__view_proj_norm(struct wnw__view *v, wnw_proj_norm kind, bool of_query_heads, float *norm);

#endif
