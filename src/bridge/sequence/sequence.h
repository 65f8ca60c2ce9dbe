/* SPDX-License-Identifier: MIT */
/* The entries that a sequence under libllama has in those layers of a cache that have one shape: an observation has one. */
#ifndef WNW_BRIDGE_SEQUENCE_H
#define WNW_BRIDGE_SEQUENCE_H

#include "base/memory.h"
#include "bridge/bridge.h"
#include "plan/compress.h"

/* What the observation of a layer borrows (sequence/observe.c, sequence/sample.c). */
enum wnw__bridge_room {
    WNW_ROOM_MEAN,
    WNW_ROOM_COV,
    WNW_ROOM_QUERIES,
    WNW_ROOM_SUM,
    WNW_ROOM_MAX,
    WNW_ROOM_THETA,
    WNW_ROOM_ATTN,
    WNW_ROOM_GATE,
    WNW_ROOM_PASS_SUM,
    WNW_ROOM_PASS_MAX,
    WNW_N_ROOM
};

struct wnw__bridge_sequence {
    struct wnw__bridge_backend *b;
    const struct wnw__bridge_sequence_cells *sequence_cells;
    struct wnw__shape shape;
    bool *left_alone;              /* [n_layer] of shape */
    struct wnw__score_form *forms; /* [n_layer] of shape */
    size_t entry_bytes;
    struct wnw__bridge_layer **layer; /* [n_layer] by number; NULL: no policy acts on it */
    /* Entries that belong to the sequence, those of each head in the order of their tokens. */
    int32_t *n_entry; /* [n_layer][n_head_kv] */
    int64_t *off;     /* [n_layer][n_head_kv] first entry of each head in its layer's arrays */
    struct wnw__bridge_list {
        int32_t *pos, *row; /* place among the sequence's tokens; row of the store within its head */
        int32_t *scratch;   /* [sequence_cells->n] */
        int32_t n_settled;  /* first entries of every head that a recursive policy has settled */
    } * list;               /* [n_layer] */
    int32_t *rank;          /* [n_rank] place of a cell's token, -1 = of another sequence */
    int32_t n_rank;
    struct wnw__buffer room[WNW_N_ROOM];
    const struct wnw_bridge_sample *taking; /* a sample that is being taken of it; NULL: a policy looks */
    wnw_sample_place sampled[WNW_SAMPLE_PLACES]; /* what an observation lends */
};

/* The number of a layer among the layers that have a cache, which is its number in a session and in profiles; the model
 * counts others, too. */
int32_t wnw__bridge_number(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l);
/* How many there are. */
int32_t wnw__bridge_n_numbers(const struct wnw__bridge_backend *b);
/* Whether policies act on a layer. */
bool wnw__bridge_acts_on(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l);
/* One of them that the whole text is in; NULL: the device has none. */
const struct wnw__bridge_layer *wnw__bridge_some_layer(const struct wnw__bridge_backend *b);
/* Lists the entries in the layers with the shape of `like`. The caller releases *s, after a failure too. E_NOMEM,
 * E_UNSUPPORTED: policies do not work on that shape. */
int wnw__bridge_sequence_list(struct wnw__bridge_sequence *s, struct wnw__bridge_backend *b,
                              const struct wnw__bridge_sequence_cells *sequence_cells,
                              const struct wnw__bridge_layer *like);
void wnw__bridge_sequence_release(struct wnw__bridge_sequence *s);

static inline int64_t wnw__bridge_head(const struct wnw__bridge_sequence *s, int32_t il, int32_t ih)
{
    return (int64_t)il * s->shape.n_head_kv + ih;
}
/* The number of a head among those of all streams of its layer. */
static inline int32_t wnw__bridge_head_of_all(const struct wnw__bridge_sequence *s, int32_t ih)
{
    return s->sequence_cells->stream * s->shape.n_head_kv + ih;
}

/* Converts the key or value of the entry in a row of the store to x[d] of the shape, and back. x is as it was before
 * libllama turned its blocks, and is filled up with zeros. */
void wnw__bridge_row_read(const struct wnw__bridge_sequence *s, int32_t il, enum wnw__stored what, int32_t ih,
                          int32_t row, float *x);
void wnw__bridge_row_write(const struct wnw__bridge_sequence *s, int32_t il, enum wnw__stored what,
                           int32_t ih, int32_t row, const float *x);

#endif
