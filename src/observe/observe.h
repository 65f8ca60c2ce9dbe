/* SPDX-License-Identifier: MIT */
/*
 * Observations show policies a layer, in float32, from the cache and from what was recorded. A view shows one
 * layer at a time and uses its buffers again for the next. It belongs to one thread at a time, as its
 * sequence does.
 */
#ifndef WNW_OBSERVE_H
#define WNW_OBSERVE_H

#include "base/memory.h"
#include "forward/recorder.h"
#include "model/model.h"
#include "observe/projnorm.h"

/* The sequence that a view shows, borrowed. A view may change it: projected norms are computed when a policy
 * asks for them, and then kept in the cache with the entries. */
struct wnw__viewed {
    const struct wnw_model *m;
    struct wnw__cache *cache;
    const struct wnw__recorders *recorders;
    struct wnw__proj **proj; /* [2] of KV heads, of query heads; the view makes, the sequence frees them */
    const int32_t *n_past;   /* tokens read; it may grow between looks, with the cache */
    int32_t n_question, n_ctx;
    struct wnw__pool *pool; /* for its loops; NULL = the caller's thread alone */
};

struct wnw__view;
int wnw__view_new(struct wnw__view **out, const struct wnw__viewed *of);
void wnw__view_free(struct wnw__view *v);

/* Fills *obs for layer il with what `needs` asks for; its arrays are borrowed until the next call. heads
 * [n_head]: query heads whose window attention is wanted, NULL = all. E_NOT_OBSERVED: something was not
 * recorded. */
int wnw__view_layer(struct wnw__view *v, int32_t il, const wnw_needs *needs, const bool *heads,
                    wnw_observation *obs);

/* ---- For recorders ---- */

/* The number of buffers that a type of recorder may use to show a layer. */
#define WNW_LOOK_BUFFERS 4

/* One look at a layer, as recorders see it. */
struct wnw__look {
    int32_t il, n;          /* the layer; the number of entries of its longest head */
    const int32_t *n_entry; /* [n_head_kv] entries of each head */
    const int32_t *pos;     /* [n_head_kv][n] positions, -1 behind a head's entries */
    const struct wnw__cache *cache;
    const wnw_needs *needs;
    const bool *heads; /* as in wnw__view_layer */
    int32_t n_head, n_past, n_ctx;
    struct wnw__pool *pool;
    float scale;                /* factor of q . k */
    struct wnw__buffer *buffer; /* [WNW_LOOK_BUFFERS], this type's own */
};

/* Sets *out to buffer i with room for at least n floats. The view owns it. E_NOMEM. */
int wnw__look_need(const struct wnw__look *look, int i, size_t n, float **out);

#endif
