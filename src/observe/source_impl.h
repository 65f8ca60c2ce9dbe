/* SPDX-License-Identifier: MIT */
/* The inside of a source, for what fills observations: source.c describes a layer and offers its keys and values,
 * source_norms.c projected norms, and recorders what they noted. */
#ifndef WNW_SOURCE_IMPL_H
#define WNW_SOURCE_IMPL_H

#include "base/memory.h"
#include "model/model.h"
#include "observe/source.h"

/* The number of buffers that a type of recorder, or the owner of the entries, may use to show a layer. */
#define WNW_SOURCE_BUFFERS 5

struct wnw__source {
    struct wnw__source_of of;
    struct wnw__shape shape;
    float *theta;                                     /* [n_rot / 2], or NULL */
    struct wnw__buffer n_entry, pos;                  /* [n_head_kv], [n_head_kv][n] */
    struct wnw__buffer bias, note;                    /* [n_head_kv][n] */
    struct wnw__buffer keys, values;                  /* [n][d] of one head */
    struct wnw__buffer all_keys, all_values;          /* [n_head_kv][n][d], where a part asks for them */
    struct wnw__buffer norms[2 * WNW_AUX_PROJ_KINDS]; /* of each kind [n_head_kv][n], then [n_head][n] */
    struct wnw__buffer (
        *buffers)[WNW_SOURCE_BUFFERS]; /* [n_filler] of the types of recorders, then the owner's */
    int32_t n_filler, filling;         /* which of them fills the observation */
};

/* Sets *out to buffer i of what is filling, with room for at least n floats. The source owns it. E_NOMEM. */
int wnw__source_need(struct wnw__source *s, int i, size_t n, float **out);

/* Sets the functions of *obs that give projected norms of its layer. They are 0 after a head's entries, and the cache
 * keeps them with the entries. */
void wnw__source_offer_norms(struct wnw_observation *obs);

#endif
