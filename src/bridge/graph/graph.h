/* SPDX-License-Identifier: MIT */
/* Graphs of libllama: the part that a node has in a cache, winnow's nodes, and products by winnow's kernels. */
#ifndef WNW_BRIDGE_GRAPH_H
#define WNW_BRIDGE_GRAPH_H

#include "bridge/bridge.h"

/* ---- Products (graph/matmul.c) ---- */

/* Whether products are left to ggml: WINNOW_GGML_PRODUCTS. */
bool wnw__bridge_products_off(void);
/* Whether a product of a weight w, whose buffer is not looked at, is always ours: of one token, too. */
bool wnw__bridge_keeps_weight(const struct ggml_tensor *w);
/* ggml's layout of weights that our kernels read, too; NULL: there is none, or no memory to see that (graph/by_eight.c). */
ggml_backend_buffer_type_t wnw__bridge_by_eight(void);
/* Whether a node is a product that our kernels compute. */
bool wnw__bridge_takes_product(const struct wnw__bridge_products *p, const struct ggml_tensor *node);
/* Makes scratch for such a node. To be called for all of a graph before the first is added. */
int wnw__bridge_products_reserve(struct wnw__bridge_products *p, int32_t n_threads,
                                 const struct ggml_tensor *node);
void wnw__bridge_products_free(struct wnw__bridge_products *p);
/* Adds winnow's nodes in place of some products to a graph. They take memory for two tensors of ctx at most. */
void wnw__bridge_products_add(struct wnw__bridge_products *p, struct ggml_context *ctx,
                              struct ggml_cgraph *graph, const struct wnw__bridge_step *step);

/* ---- Norms (graph/norm.c) ---- */

/* The norm that a node multiplies with a weight, one for each element of a row; NULL: it is another node. The weight is *w. */
struct ggml_tensor *wnw__bridge_norm_of(const struct ggml_tensor *node, struct ggml_tensor **w);
/* Adds winnow's node in place of such a node and its norm to a graph. It takes memory for one tensor of ctx. */
void wnw__bridge_norm_add(struct ggml_context *ctx, struct ggml_cgraph *graph, struct ggml_tensor *node);

/* ---- Nodes on a cache (graph/graph.c) ---- */

/* A flash attention over a layer of a cache. */
struct wnw__bridge_flash {
    struct ggml_tensor *node, *q, *k, *v, *mask, *sinks;
    struct wnw__bridge_layer *layer;
    struct wnw__bridge_shape shape;
    struct wnw__bridge_node what; /* as an operation of winnow's */
};
/* Whether a node is one. */
bool wnw__bridge_flash_of(struct ggml_tensor *node, struct wnw__bridge_flash *out);
/* Whether a node writes rows of all heads to the tensor. */
bool wnw__bridge_is_row_store(const struct ggml_tensor *node, const struct wnw__bridge_tensor *t);
/* The first cache tensor that a node reads or writes; NULL: none, or it is only a view. */
struct wnw__bridge_tensor *wnw__bridge_touched(const struct ggml_tensor *node);
/* Marks every layer that a node reads or writes as one with a node that is not known. */
void wnw__bridge_mark_unknown(const struct ggml_tensor *node);
/* Whether a layer was taken with this shape. */
bool wnw__bridge_has_shape(const struct wnw__bridge_layer *l, const struct wnw__bridge_shape *shape);

/* Decides what is ragged and makes nodes on ragged layers ours. */
void wnw__bridge_graph_take(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* Whether that was done: where memory ran out, the graph would read and write other memory than its cache. */
bool wnw__bridge_graph_is_taken(const struct wnw__bridge_backend *b, struct ggml_cgraph *graph);

/* ---- The graph that ran last (graph/again.c) ---- */

/* A graph is about to run: sets last.again where it is the last one. */
void wnw__bridge_last_see(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* A scheduler shows a graph that it allocates next: the last one is not recognised any more. */
void wnw__bridge_last_shown(struct wnw__bridge_backend *b);
/* The same after something changed that is found in graphs. */
void wnw__bridge_last_forget(struct wnw__bridge_backend *b);
void wnw__bridge_last_free(struct wnw__bridge_last *last);

/* ---- Nodes of winnow's (graph/nodes.c) ---- */

/* Takes away what was noted of earlier nodes at the addresses of a graph's. */
void wnw__bridge_nodes_begin(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* Makes a node an operation of winnow's. */
void wnw__bridge_node_set(struct wnw__bridge_backend *b, struct ggml_tensor *node,
                          const struct wnw__bridge_node *what);
/* What a node that is an attention computes. */
struct wnw__cells_op wnw__bridge_attention(const struct wnw__bridge_backend *b,
                                           const struct ggml_tensor *node);
/* Before the graph runs: makes entries for the cells that a store writes, or scratch for an attention. */
int wnw__bridge_node_prepare(struct wnw__bridge_backend *b, const struct ggml_tensor *node);

/* ---- What a graph shows of the attentions over layers that policies act on (graph/layer_info.c) ---- */

/* Lists the attentions of a graph over layers that policies act on, and learns of each such layer what the graph shows.
 * E_NOMEM. */
int wnw__bridge_sites_find(struct wnw__bridge_backend *b, struct ggml_cgraph *graph);
/* Whether a layer has a sliding window, as far as it can be told: policies leave it alone. */
bool wnw__bridge_is_sliding(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l);
/* The site of an attention's node; NULL if policies do not act on its layer. */
const struct wnw__bridge_site *wnw__bridge_site_of(const struct wnw__bridge_backend *b,
                                                   const struct ggml_tensor *node);
/* The rotation's mode for a text. Where a token has several positions, for images, those of a text are equal, and pairs are
 * turned as with one. */
int32_t wnw__bridge_rope_mode(const struct ggml_tensor *rope);
/* Whether the rotation is that of ggml_rope_ext with one frequency per pair and no mixing of scales. */
bool wnw__bridge_is_plain_rope(const struct ggml_tensor *rope);
/* Writes the angle of each pair in radians per position to theta[n_rot / 2]; the layer's queries turn by plain RoPE. */
void wnw__bridge_theta(const struct wnw__bridge_layer_info *f, float *theta);

/* The product of a weight with hidden states that makes the keys which a store writes; the states, [n_embd, n_row] without
 * gaps, are its second source until it has run: what the layer's attention reads. NULL: the graph does not show it, as where
 * keys are made of a latent (MLA) (graph/input.c). */
const struct ggml_tensor *wnw__bridge_keys_product(const struct ggml_tensor *store);

#endif
