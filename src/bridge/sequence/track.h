/* SPDX-License-Identifier: MIT */
/*
 * Statistics of queries before RoPE, one for each timeline of tokens. A timeline is known by its newest cell: a row that
 * sees this cell and nothing newer continues it. So a prefix that is shared or used again begins a new one, which knows
 * nothing of the queries before it.
 */
#ifndef WNW_BRIDGE_TRACK_H
#define WNW_BRIDGE_TRACK_H

#include "bridge/bridge.h"
#include "observe/qstats.h"

/* Where a row belongs. */
struct wnw__bridge_row {
    int32_t stream, cell; /* its own */
    int32_t before;       /* the newest other cell that it sees; -1 = none */
    int32_t n_before;     /* how many it sees */
};

/* Sets *t for the statistics of the backend's policy, of layers of c that have the shape of the first that turns its queries.
 * The sites of the current graph are known. E_NOMEM. */
int wnw__bridge_tracks_new(struct wnw__bridge_tracks **t, const struct wnw__bridge_backend *b,
                           const struct wnw__bridge_cache *c);
void wnw__bridge_tracks_free(struct wnw__bridge_tracks *t);
/* Before the rows of a graph are added. */
void wnw__bridge_tracks_begin(struct wnw__bridge_tracks *t);
/* Adds row number i of the graph, whose note is written. Rows come in ascending order. E_NOMEM. */
int wnw__bridge_tracks_row(struct wnw__bridge_tracks *t, const struct wnw__bridge_cache *c, int64_t i,
                           const struct wnw__bridge_row *row);
/* Takes queries [n_token][n_head][d] of all rows, which rope turns, in layer il. All threads call it. */
void wnw__bridge_tracks_take(struct wnw__bridge_tracks *t, int32_t il, const struct ggml_tensor *q, int ith,
                             int nth);
/* After a graph that failed. */
void wnw__bridge_tracks_fail(struct wnw__bridge_tracks *t);
/* The statistics of the timeline that ends with a cell; NULL if there are none. */
const struct wnw__qstats *wnw__bridge_tracks_of(const struct wnw__bridge_tracks *t,
                                                const struct wnw__bridge_cache *c, int32_t stream,
                                                int32_t cell);

#endif
