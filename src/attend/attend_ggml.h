/* SPDX-License-Identifier: MIT */
/* Attention with standard ggml operations: the oracle of our own. */
#ifndef WNW_ATTEND_GGML_H
#define WNW_ATTEND_GGML_H

#include "attend/attend.h"

/* Inputs of one graph: masks and the rows where new keys and values go. Belongs to one thread at a time. */
struct wnw__attend_ggml;

/* For one graph over `batch`, which is borrowed: slices and lengths must stay as they are from here until the
 * graph has run. */
int wnw__attend_ggml_new(struct wnw__attend_ggml **out, const struct wnw__attend_batch *batch);
void wnw__attend_ggml_free(struct wnw__attend_ggml *ag);
/* Attention of one layer; stores k and v first. Of op it takes layer and scale. Shapes: attend.h. */
struct ggml_tensor *wnw__attend_ggml_build(struct wnw__attend_ggml *ag, struct ggml_context *ctx,
                                           struct ggml_cgraph *gf, const struct wnw__attend_op *op,
                                           struct ggml_tensor *q, struct ggml_tensor *k,
                                           struct ggml_tensor *v);
/* Fills masks and row indices after the graph got its memory. */
int wnw__attend_ggml_fill(struct wnw__attend_ggml *ag);
/* Most nodes and leaves that one layer of such a batch adds to a graph. */
size_t wnw__attend_ggml_nodes(const struct wnw__attend_batch *batch);

#endif
