/* SPDX-License-Identifier: MIT */
/* The sizes of a model on which a plan, an observation and a recorder depend. */
#ifndef WNW_SHAPE_H
#define WNW_SHAPE_H

#include <stdbool.h>
#include <stdint.h>

struct wnw__shape {
    int32_t n_layer, n_head, n_head_kv; /* query heads; KV heads */
    int32_t d;                          /* elements of a head's query, key and value */
    const bool *left_alone; /* [n_layer] layers that no policy acts on; NULL = there are none. Borrowed */
};

/* Whether policies act on layer il. They leave a layer with a sliding window alone: its window bounds it. */
static inline bool wnw__layer_takes_part(const struct wnw__shape *shape, int32_t il)
{
    return !shape->left_alone || !shape->left_alone[il];
}

/* The number of query heads that read one KV head. */
static inline int32_t wnw__shape_group(const struct wnw__shape *shape)
{
    return shape->n_head / shape->n_head_kv;
}

#endif
