/* SPDX-License-Identifier: MIT */
/* Norms with weights in libllama's graphs, RMS_NORM and MUL, and the node of winnow's that computes both. */
#include "forward/norm.h"
#include "bridge/graph/fuse.h"
#include "bridge/graph/graph.h"

static bool are_rows(const struct ggml_tensor *t, const struct ggml_tensor *like)
{
    return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float) && ggml_are_same_shape(t, like);
}

static bool is_row(const struct ggml_tensor *w, int64_t n)
{
    return w->op == GGML_OP_NONE && w->type == GGML_TYPE_F32 && w->nb[0] == sizeof(float) && w->ne[0] == n &&
           ggml_nrows(w) == 1;
}

struct ggml_tensor *wnw__bridge_norm_of(const struct ggml_tensor *node, struct ggml_tensor **w)
{
    for (int i = 0; node->op == GGML_OP_MUL && i < 2; i++) {
        struct ggml_tensor *norm = node->src[i];
        *w = node->src[1 - i];
        if (norm->op == GGML_OP_RMS_NORM && is_row(*w, node->ne[0]) && are_rows(node, node) &&
            are_rows(norm, node) && are_rows(norm->src[0], node) && wnw__bridge_has_known_words(norm) &&
            wnw__bridge_has_known_words(node))
            return norm;
    }
    return NULL;
}

void wnw__bridge_norm_add(struct ggml_context *ctx, struct ggml_cgraph *graph, struct ggml_tensor *node)
{
    struct ggml_tensor *w, *norm = wnw__bridge_norm_of(node, &w);
    struct ggml_tensor *ours = wnw__norm_node(ctx, norm->src[0], w, norm->op_params + WNW_NORM_EPS);
    ours->flags = node->flags;
    ours->data = node->data;
    ggml_graph_add_node(graph, ours);
}
