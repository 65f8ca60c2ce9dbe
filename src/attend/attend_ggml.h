/* SPDX-License-Identifier: MIT */
/* Attention with standard ggml operations, the oracle of our own attention. */
#ifndef WNW_ATTEND_GGML_H
#define WNW_ATTEND_GGML_H

#include "attend/attend.h"

/* The inputs of one graph: masks and the arena rows that receive new keys and values. Belongs to one thread
 * at a time. */
struct wnw__attend_ggml;

/* Makes the inputs of one graph over `batch`, which is borrowed. Slices and the caches' lengths must not
 * change until the graph has run. */
int wnw__attend_ggml_new(struct wnw__attend_ggml **out, const struct wnw__attend_batch *batch);
void wnw__attend_ggml_free(struct wnw__attend_ggml *ag);
/* Adds the attention of one layer, which stores k and v first. Only layer and scale of op are used. For
 * shapes see attend.h. */
struct ggml_tensor *wnw__attend_ggml_build(struct wnw__attend_ggml *ag, struct ggml_context *ctx,
                                           struct ggml_cgraph *gf, const struct wnw__attend_op *op,
                                           struct ggml_tensor *q, struct ggml_tensor *k,
                                           struct ggml_tensor *v);
/* Fills masks and row indices. The graph must have its memory. E_NOMEM. */
int wnw__attend_ggml_fill(struct wnw__attend_ggml *ag);
/* The largest number of nodes and leaves that one layer adds to the graph of such a batch. */
size_t wnw__attend_ggml_nodes(const struct wnw__attend_batch *batch);

#endif
