/* SPDX-License-Identifier: MIT */
/* A sequence under libllama: its entries, the records of it, and its view for a policy. */
#ifndef WNW_BRIDGE_SEQUENCE_H
#define WNW_BRIDGE_SEQUENCE_H

#include "base/memory.h"
#include "bridge/graph/graph.h"
#include "plan/compress.h"
#include "plan/source.h"

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

/* Its entries in those layers of a cache that have one shape: an observation has one. */
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

/* ---- What is noted of queries and attention while a graph runs (sequence/record.c) ---- */

/* Has the layers of the current graph keep with their entries the numbers that the policy wants. E_NOMEM. */
int wnw__bridge_record_begin(struct wnw__bridge_backend *b);
/* Keeps queries of an attention, whose node is about to run. One thread calls it. */
void wnw__bridge_record_queries(struct wnw__bridge_backend *b, const struct ggml_tensor *node,
                                const struct wnw__cells_op *op);
/* The query [n_head][d_k] of a cell that a reader of a layer has kept, in the type of the layer's queries. Cells count over all
 * streams. NULL: none. */
const void *wnw__bridge_query(const struct wnw__bridge_layer *l, int32_t cell, int32_t reader);
/* Bytes that the queries of one token take where those of all cells are kept; else 0. */
size_t wnw__bridge_query_bytes(const struct wnw__bridge_layer *l);
/* Has the query of row i of the graph that is about to run not kept where those of all cells are. */
void wnw__bridge_record_skip(struct wnw__bridge_backend *b, int32_t i);
/* Notes that the query of a cell of the first stream will not be asked for: it is not one that was lost. */
void wnw__bridge_record_unasked(const struct wnw__bridge_layer *l, int32_t cell);
/* Gives back what was kept of these cells of a stream where queries of all cells are: a policy has seen it, or none will. */
void wnw__bridge_record_seen(struct wnw__bridge_layer *l, int32_t stream, const int32_t *cell, int32_t n);
/* Forgets the queries of cells that no token is in any more, in a layer with one stream: dead[n_cell]. */
void wnw__bridge_record_dead(struct wnw__bridge_layer *l, const bool *dead);
/* Bytes of the queries that a layer has room for. */
uint64_t wnw__bridge_queries_held(const struct wnw__bridge_layer *l);

/* The most tensors that are added to a graph, 0: none ever is; and those that are added before a node, and after it. */
int wnw__bridge_record_tensors(const struct wnw__bridge_backend *b);
void wnw__bridge_record_before(struct wnw__bridge_backend *b, struct ggml_context *ctx,
                               struct ggml_cgraph *graph, struct ggml_tensor *node);
void wnw__bridge_record_after(struct wnw__bridge_backend *b, struct ggml_context *ctx,
                              struct ggml_cgraph *graph, struct ggml_tensor *node);

/* ---- Gates on hidden states (profile/input_gate.h), whose scores entries keep (sequence/gates.c) ---- */

/* The gates of the backend's profile; NULL: no policy wants them, or there are none. */
const struct wnw__input_gate *wnw__bridge_gates_of(const struct wnw__bridge_backend *b);
/* Whether they have numbers for the layer. */
bool wnw__bridge_gates_suit(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l);
/* Makes scratch for the current graph. E_NOMEM. */
int wnw__bridge_gates_reserve(struct wnw__bridge_backend *b);
/* The work of a node whose source is what the attention of the site `user` reads. */
void wnw__bridge_gates_take(struct ggml_tensor *node, int ith, int nth, void *user);
/* Why a layer's entries have no scores: returns the error, with its message. */
int wnw__bridge_gates_missing(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l);

/* ---- A sample of a sequence that was fed a second time (winnow_bridge.h, sequence/sample.c) ---- */

struct wnw__source;
struct wnw_bridge_sample_of;
/* Takes the sample of a sequence. *sequence_cells has the cells of the sequence and of what was fed after it.
 * E_ARG, E_NOT_OBSERVED, E_NOMEM: *out = NULL (sequence/sample_new.c). */
int wnw__bridge_sample_new(struct wnw_bridge_sample **out, struct wnw__bridge_backend *b,
                           const struct wnw__bridge_sequence_cells *sequence_cells,
                           const struct wnw_bridge_sample_of *of);
/* Takes it in the layer of *obs, whose entries are there. */
int wnw__bridge_sample_take(struct wnw__bridge_sequence *s, struct wnw__source *source,
                            struct wnw_observation *obs);
/* Shows what the sequence has of it. E_NOT_OBSERVED: it has none, or one of other tokens. */
int wnw__bridge_sample_show(struct wnw__bridge_sequence *s, struct wnw_observation *obs);

/* ---- From what a policy sees of a sequence to fewer entries ---- */

/* What is noted of token i of a sequence; NULL where nothing is, because the cache is gone. */
static inline struct wnw__bridge_note *
wnw__bridge_note_of(const struct wnw__bridge_sequence_cells *sequence_cells, int32_t i)
{
    const struct wnw__bridge_cache *c = sequence_cells->cache;
    return c->note ? &c->note[(int64_t)sequence_cells->stream * c->n_cell + sequence_cells->cell[i]] : NULL;
}
/* The threads of the context, for loops over layers and entries; NULL where there is one, or where they cannot be started
 * (sequence/sequence.c). */
struct wnw__pool *wnw__bridge_pool(struct wnw__bridge_backend *b);
/* Room for n numbers, until it is asked for again; NULL: no memory (sequence/sequence.c). */
float *wnw__bridge_room(struct wnw__bridge_sequence *s, enum wnw__bridge_room which, size_t n);
/* Makes a source of observations of the sequence, which is borrowed; the caller closes it (sequence/observe.c). E_NOMEM. */
int wnw__bridge_source(struct wnw__plan_source *src, struct wnw__bridge_sequence *s);
/* Checks that a plan can be applied (dry), or applies it, on all threads (sequence/apply.c). E_MISMATCH, E_UNSUPPORTED; where memory
 * runs out, some layers are left as they are. */
int wnw__bridge_apply(struct wnw__bridge_sequence *s, const wnw_plan *plan, bool dry);

#endif
