/* SPDX-License-Identifier: MIT */
/* The sizes of a model on which a plan, an observation and a recorder depend. */
#ifndef WNW_SHAPE_H
#define WNW_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a layer makes of x = scale q . k before the softmax. All 0: scores are x. */
struct wnw__score_form {
    float cap;      /* scores are cap tanh(x / cap) */
    float max_bias; /* ALiBi: heads add a slope, which follows from it, times minus the distance in tokens */
    /* [n_head] a score in each query's softmax that has no entry; NULL = none. Borrowed */
    const float *sinks;
};

struct wnw__shape {
    int32_t n_layer, n_head, n_head_kv; /* query heads; KV heads */
    int32_t d;                          /* elements of a head's query, key and value */
    const bool *left_alone; /* [n_layer] layers that no policy acts on; NULL = there are none. Borrowed */
    const struct wnw__score_form *forms; /* [n_layer]; NULL = all are 0. Borrowed */
    const int32_t *n_reader; /* [n_layer] attentions that read a layer's entries; NULL = one each. Borrowed */
};

/* The attentions that read the entries of layer il: its own, and those of layers without entries of their own. */
static inline int32_t wnw__shape_readers(const struct wnw__shape *shape, int32_t il)
{
    return shape->n_reader ? shape->n_reader[il] : 1;
}

/* The attentions that read the layers before il. */
static inline int32_t wnw__shape_readers_before(const struct wnw__shape *shape, int32_t il)
{
    int32_t n = 0;
    for (int32_t i = 0; i < il; i++)
        n += wnw__shape_readers(shape, i);
    return n;
}

/* The form of layer il's scores; NULL = they are scale q . k. */
static inline const struct wnw__score_form *wnw__shape_form(const struct wnw__shape *shape, int32_t il)
{
    return shape->forms ? &shape->forms[il] : NULL;
}

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
