/* SPDX-License-Identifier: MIT */
/*
 * What products of a graph share. Where the patterns
 *
 *     RMS_NORM, MUL by a weight      GLU (SwiGLU of two tensors)
 *
 * are read by winnow's products alone, the products compute them while they convert rows to bytes, and the nodes are left out. For
 * a single token, products with the same operand become one node, because threads wait for each other between nodes. For the same
 * reason the first pattern is one node where others read it. And an attention with few queries writes the rows that the stores
 * before it have for its layer. Where it cannot, the stores of a layer's keys and values are one node.
 *
 * Patterns are looked for once, when libllama has built a graph, because then all readers of a tensor can be seen. What is found
 * is noted in a table (cells/notes.c). When a graph runs, the readers are counted again: a note of an earlier graph at the same
 * addresses is not used. A graph may run in parts. A pattern is used if all of it is in one part.
 */
#ifndef WNW_BRIDGE_FUSE_H
#define WNW_BRIDGE_FUSE_H

#include "forward/matmul.h"

#include <ggml-backend-impl.h>

struct wnw__bridge_backend;

/* What becomes of a node when it runs. */
struct wnw__bridge_step {
    enum {
        WNW_BRIDGE_AS_IT_IS,
        WNW_BRIDGE_LEFT_OUT, /* its readers compute it, or a product before it did */
        WNW_BRIDGE_PRODUCTS, /* the following */
        WNW_BRIDGE_NORM,     /* it computes the norm before it, too */
        WNW_BRIDGE_JOINED,   /* a store: the next store, or the attention, runs it */
    } kind;
    int32_t n_product;
    struct ggml_tensor *product[WNW_MATMUL_TOGETHER]; /* nodes with one operand, the first of them this one */
    struct wnw__operand operand;
};

/* Notes the patterns of a graph that libllama has built, before it is allocated, and keeps what they read allocated. */
void wnw__bridge_fuse_note(struct wnw__bridge_backend *b, struct ggml_cgraph *graph,
                           const struct ggml_backend_graph_optimize_params *params);
/* Counts the readers of noted nodes in a graph that is about to run and is not the last one. */
void wnw__bridge_fuse_recount(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* Whether wnw__bridge_fuse_plan would find what it found last. */
bool wnw__bridge_fuse_is_planned(const struct wnw__bridge_backend *b, int from, int to);
/* Makes scratch for the products among the nodes from .. to-1 and sets b->products.steps[to - from]. Returns the number of
 * products and norms that are ours; -1: no memory. It does nothing if this was made since readers were counted. */
int wnw__bridge_fuse_plan(struct wnw__bridge_backend *b, struct ggml_cgraph *graph, int from, int to);

#endif
