/* SPDX-License-Identifier: MIT */
/* Inside of a view: observe.c shows a layer, observe_proj.c works out projected norms. */
#ifndef WNW_OBSERVE_IMPL_H
#define WNW_OBSERVE_IMPL_H

#include "observe/observe.h"

struct wnw__view {
    struct wnw__viewed of;
    struct wnw__look look;                           /* of the layer at hand */
    int32_t *n_entry;                                /* [n_head_kv] */
    float *theta;                                    /* [n_rot / 2] */
    struct wnw__buffer pos;                          /* [n_head_kv][n] */
    struct wnw__buffer keys, values;                 /* [n][d] of one head */
    struct wnw__buffer norms[2 * WNW_N_PROJ_NORMS];  /* of each kind [n_head_kv][n], then [n_head][n] */
    struct wnw__buffer (*buffers)[WNW_LOOK_BUFFERS]; /* [n_type] of the types of recorders */
    int32_t n_type;
};

/* Norms of the values of the layer at hand behind the output projection, norm[n_head_kv][n], or of each query
 * head behind its slice, norm[n_head][n]; 0 behind a head's entries. Kept with the entries. */
int wnw__view_proj_norm(struct wnw__view *v, wnw_proj_norm kind, bool of_query_heads, float *norm);

#endif
