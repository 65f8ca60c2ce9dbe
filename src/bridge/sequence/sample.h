/* SPDX-License-Identifier: MIT */
/* A sample of a sequence, which was fed a second time: what is kept of it until the next compression. */
#ifndef WNW_BRIDGE_SAMPLE_H
#define WNW_BRIDGE_SAMPLE_H

#include "bridge/bridge.h"
#include "method/sample_places.h"
#include "winnow_bridge.h"

struct wnw_bridge_sample {
    const struct wnw__bridge_cache *cache; /* compared, never followed */
    int32_t n, n_fed, n_layer;
    wnw_sample_place place[WNW_SAMPLE_PLACES]; /* [n_places] among the tokens of the sequence */
    int32_t n_places;
    int32_t *cell,
        *write_order;   /* [n] of the sampled tokens; when each was written, which tells whose it is */
    float **sum, **max; /* [n_layer], each [n_head][n]; NULL in layers that policies leave alone */
    struct wnw_bridge_sample *next; /* of the layers on another device of the context; NULL: no other */
};

/* Which of the sampled tokens one is of the sequence; -1: none. */
static inline int32_t wnw__bridge_sampled(const struct wnw_bridge_sample *s, int32_t token)
{
    return wnw__sample_number(s->place, s->n_places, token);
}

#endif
