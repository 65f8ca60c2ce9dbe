/* SPDX-License-Identifier: MIT */
/* What is noted of queries and attention while a graph runs, for the policy that a backend has. */
#ifndef WNW_BRIDGE_RECORD_H
#define WNW_BRIDGE_RECORD_H

#include "bridge/bridge.h"

/* Has the layers of the graph at hand keep with their entries the numbers that the policy wants. E_NOMEM. */
int wnw__bridge_record_begin(struct wnw__bridge_backend *b);
/* Keeps queries of an attention, whose node is about to run. One thread calls it. */
void wnw__bridge_record_queries(struct wnw__bridge_backend *b, const struct ggml_tensor *node,
                                const struct wnw__cells_op *op);
/* The query [n_head][d_k] that a reader of a layer has kept of a cell, counted over all streams; NULL: none. */
const float *wnw__bridge_query(const struct wnw__bridge_layer *l, int32_t cell, int32_t reader);
/* Gives back what was kept for entries of these cells of a stream, which a policy has seen. */
void wnw__bridge_record_seen(struct wnw__bridge_layer *l, int32_t stream, const int32_t *cell, int32_t n);
void wnw__bridge_queries_free(struct wnw__bridge_queries *q);

/* The most tensors that are added to a graph; and those that are added before a node, and after it. */
int wnw__bridge_record_tensors(const struct wnw__bridge_backend *b);
void wnw__bridge_record_before(struct wnw__bridge_backend *b, struct ggml_context *ctx,
                               struct ggml_cgraph *graph, struct ggml_tensor *node);
void wnw__bridge_record_after(struct wnw__bridge_backend *b, struct ggml_context *ctx,
                              struct ggml_cgraph *graph, struct ggml_tensor *node);

#endif
