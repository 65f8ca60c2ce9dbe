/* SPDX-License-Identifier: MIT */
/*
 * Products with quantised weights by winnow's kernels. A graph that runs is a copy of libllama's list of nodes. Products
 * that the kernels compute faster are replaced by winnow's nodes, with the same memory for the result. Products of one
 * tensor share its activations in bytes, and may compute it (graph/fuse.h).
 */
#include "kernel/matmul.h"
#include "bridge/graph/fuse.h"
#include "bridge/graph/graph.h"

#include <stdlib.h>
#include <string.h>

bool wnw__bridge_products_off(void)
{
    return wnw__bridge_is_set("WINNOW_GGML_PRODUCTS");
}

bool wnw__bridge_keeps_weight(const struct ggml_tensor *w)
{
    return w->ne[2] == 1 && w->ne[3] == 1 && wnw__matmul_takes(w, 1, false);
}

/* Whether a tensor is a matrix of a model. */
static bool is_matrix(const struct ggml_tensor *w)
{
    return w->buffer && ggml_backend_buffer_get_usage(w->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS &&
           !w->view_src && w->ne[2] == 1 && w->ne[3] == 1 && ggml_is_contiguous(w);
}

/* Whether the file's bytes of a matrix can be read. ggml's own layouts are neither in winnow's buffers nor "host". */
static bool is_as_in_file(const struct ggml_tensor *w)
{
    return w->buffer->buft == wnw__bridge_buffer_type() || ggml_backend_buffer_is_host(w->buffer);
}

static bool is_by_eight(const struct wnw__bridge_products *p, const struct ggml_tensor *w)
{
    return p->by_eight && w->buffer->buft == p->by_eight;
}

bool wnw__bridge_takes_product(const struct wnw__bridge_products *p, const struct ggml_tensor *node)
{
    const struct ggml_tensor *w = node->src[0], *x = node->src[1];
    if (node->op != GGML_OP_MUL_MAT || !is_matrix(w) || x->type != GGML_TYPE_F32 || x->ne[2] != 1 ||
        x->ne[3] != 1 || x->nb[0] != sizeof(float) || !ggml_is_contiguous(node) ||
        node->type != GGML_TYPE_F32 || x->ne[1] > INT32_MAX)
        return false;
    return is_by_eight(p, w) ? wnw__matmul_takes_by_eight(w, x->ne[1])
                             : is_as_in_file(w) && wnw__matmul_takes(w, x->ne[1], false);
}

/* ---- Scratch ---- */

/* Bytes of a tensor's activations. */
static size_t act_bytes(const struct ggml_tensor *x)
{
    return x->ne[1] == 1
               ? 0
               : sizeof(struct wnw__act) * (size_t)wnw__n_chunks((int32_t)x->ne[0]) * (size_t)x->ne[1];
}

static int need_act(struct wnw__bridge_products *p, size_t bytes)
{
    void *act = NULL;
    if (bytes <= p->act_bytes)
        return WNW_OK;
    if (posix_memalign(&act, 64, bytes) != 0)
        return wnw__fail(WNW_E_NOMEM, "no memory for %zu bytes of activations", bytes);
    free(p->act);
    p->act = act;
    p->act_bytes = bytes;
    return WNW_OK;
}

int wnw__bridge_products_reserve(struct wnw__bridge_products *p, int32_t n_threads,
                                 const struct ggml_tensor *node)
{
    const struct ggml_tensor *x = node->src[1];
    WNW_TRY(need_act(p, act_bytes(x)));
    if (p->scratch && n_threads == p->n_threads && x->ne[0] <= p->max_k)
        return WNW_OK;
    const int64_t max_k = x->ne[0] > p->max_k ? x->ne[0] : p->max_k;
    struct wnw__matmul_scratch *scratch;
    WNW_TRY(wnw__matmul_new(&scratch, n_threads, max_k, p->rms_eps));
    wnw__matmul_free(p->scratch);
    p->scratch = scratch;
    p->n_threads = n_threads;
    p->max_k = max_k;
    return WNW_OK;
}

void wnw__bridge_products_free(struct wnw__bridge_products *p)
{
    wnw__matmul_free(p->scratch);
    free(p->act);
    free(p->steps);
    free(p->groups);
    *p = (struct wnw__bridge_products){0};
}

/* ---- Nodes ---- */

/* What ggml_build_forward_expand would note of a node; the list of a running graph is taken as it is. */
static void add(struct ggml_cgraph *graph, struct ggml_tensor *ours, const struct ggml_tensor *node,
                void *data)
{
    ours->flags = node->flags;
    ours->data = data;
    ggml_graph_add_node(graph, ours);
}

void wnw__bridge_products_add(struct wnw__bridge_products *p, struct ggml_context *ctx,
                              struct ggml_cgraph *graph, const struct wnw__bridge_step *step)
{
    struct ggml_tensor *const *y = step->product, *w[WNW_MATMUL_TOGETHER];
    const struct ggml_tensor *x = y[0]->src[1];
    for (int32_t i = 0; i < step->n_product; i++)
        w[i] = y[i]->src[0];
    if (x->ne[1] == 1 || x != p->converted) {
        p->input = wnw__matmul_input(p->scratch, ctx, &step->operand);
        p->converted = x;
        if (x->ne[1] > 1)
            add(graph, p->input.a, y[0], p->act);
    }
    struct ggml_tensor *ours =
        is_by_eight(p, w[0]) ? wnw__matmul_node_by_eight(p->scratch, ctx, w[0], y[0], &p->input)
                             : wnw__matmul_node_apart(p->scratch, ctx, w, y, step->n_product, &p->input);
    add(graph, ours, y[0], y[0]->data);
}
