/* SPDX-License-Identifier: MIT */
/* Nodes of libllama's graphs as winnow's operations. */
#include "base/vectors.h"
#include "bridge/graph/graph.h"

#include <stdlib.h>
#include <string.h>

static void run_node(struct ggml_tensor *node, int ith, int nth, void *user);

static bool set_custom(struct wnw__bridge_backend *b, struct ggml_tensor *node)
{
    struct ggml_init_params params = {.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    if (!ctx)
        return false;
    const struct ggml_tensor *like =
        ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, NULL, 0, run_node, GGML_N_TASKS_MAX, b);
    node->op = like->op;
    memcpy(node->op_params, like->op_params, sizeof node->op_params);
    ggml_free(ctx);
    return true;
}

void wnw__bridge_node_set(struct wnw__bridge_backend *b, struct ggml_tensor *node,
                          const struct wnw__bridge_node *what)
{
    struct wnw__bridge_node_note *note = wnw__bridge_notes_add(&b->notes, node);
    if (note && set_custom(b, node))
        note->ours = *what;
}

/* Whether a node was made winnow's. */
static bool is_taken(const struct ggml_tensor *node)
{
    return node->op == GGML_OP_CUSTOM && wnw__bridge_custom_function(node) == run_node;
}

/* A graph may come a second time, with nodes that are winnow's already. */
void wnw__bridge_nodes_begin(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        struct wnw__bridge_node_note *note = wnw__bridge_notes_find(&b->notes, node);
        if (note)
            *note = (struct wnw__bridge_node_note){
                .node = node, .ours = is_taken(node) ? note->ours : (struct wnw__bridge_node){0}};
    }
}

/* ---- Stores ---- */

/* A row that a store writes: the keys or values of all heads, and the place where they go. */
struct new_row {
    const struct wnw__bridge_tensor *t;
    const float *x;
    int32_t stream, cell;
};

static struct new_row row_of(const struct ggml_tensor *node, int64_t i)
{
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
    const struct ggml_tensor *src = node->src[0];
    const size_t stride = src->ne[0] == 1 ? (size_t)t->n_embd * sizeof(float) : src->nb[1];
    const int64_t cell = wnw__bridge_store_cell(node, i);
    return (struct new_row){.t = t,
                            .x = (const void *)((const char *)src->data + (size_t)i * stride),
                            .stream = (int32_t)(cell / t->n_cell),
                            .cell = (int32_t)(cell % t->n_cell)};
}

static void store_row(const struct new_row *r)
{
    wnw__bridge_layer_write(r->t->layer, r->t->is_v, r->stream, r->cell, r->x);
}

static void store(const struct ggml_tensor *node, int ith, int nth)
{
    const int64_t n = wnw__bridge_store_rows(node), from = n * ith / nth, to = n * (ith + 1) / nth;
    for (int64_t i = from; i < to; i++) {
        const struct new_row r = row_of(node, i);
        store_row(&r);
    }
}

static int need_index(struct wnw__bridge_backend *b, int64_t n)
{
    if (n <= b->cap_index)
        return WNW_OK;
    int32_t *index = n <= INT32_MAX ? malloc((size_t)n * sizeof *index) : NULL;
    if (!index)
        return wnw__fail(WNW_E_NOMEM, "no memory for the cells of %lld rows", (long long)n);
    free(b->index);
    b->index = index;
    b->cap_index = (int32_t)n;
    return WNW_OK;
}

/* Makes entries for the cells of each stream. */
static int prepare_store(struct wnw__bridge_backend *b, const struct ggml_tensor *node)
{
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
    const int64_t n = wnw__bridge_store_rows(node);
    if (t->layer->lost)
        return wnw__fail(WNW_E_NOMEM, "rows of layer %d are lost, because memory ran out", (int)t->layer->il);
    WNW_TRY(need_index(b, n));
    for (int64_t i = 0; i < n; i++)
        b->index[i] = (int32_t)wnw__bridge_store_cell(node, i);
    qsort(b->index, (size_t)n, sizeof *b->index, wnw__ascending_i32);
    for (int64_t i = 0; i < n;) {
        const int32_t stream = b->index[i] / t->n_cell;
        const int64_t first = i;
        int64_t end = i;
        for (; i < n && b->index[i] / t->n_cell == stream; i++)
            if (i == first || b->index[i] != b->index[i - 1])
                b->index[end++] = b->index[i];
        for (int64_t j = first; j < end; j++)
            b->index[j] %= t->n_cell;
        WNW_TRY(wnw__bridge_layer_place(t->layer, stream, b->index + first, (int32_t)(end - first)));
    }
    return WNW_OK;
}

/* ---- Attention ---- */

struct wnw__cells_op wnw__bridge_attention(const struct wnw__bridge_backend *b,
                                           const struct ggml_tensor *node)
{
    const struct wnw__bridge_node what = wnw__bridge_node_get(b, node);
    const struct wnw__bridge_site *site = b->watch.policy ? wnw__bridge_site_of(b, node) : NULL;
    const struct ggml_tensor *q = node->src[0], *k = node->src[1], *mask = node->src[3],
                             *sinks = node->src[4];
    const struct wnw__bridge_layer *l = wnw__bridge_tensor_of(k)->layer;
    const bool chain = what.what == WNW_BRIDGE_ATTEND_CHAIN;
    struct wnw__cells_op op = {
        .n_head = (int32_t)q->ne[2],
        .n_head_kv = l->n_head,
        .d_k = l->d_k,
        .d_v = l->d_v,
        .n_row = (int32_t)q->ne[1],
        .n_stream = (int32_t)k->ne[3],
        .n_cell = (int32_t)k->ne[1],
        .scale = what.scale,
        .cap = what.cap,
        .max_bias = what.max_bias,
        .sinks = sinks ? sinks->data : NULL,
        .cache = &l->rows,
        .first_stream = wnw__bridge_first_stream(k),
        .k_type = l->k.type,
        .v_type = l->v_in_keys ? l->k.type : l->v.type,
        .v_in_keys = l->v_in_keys,
        .q = q->data,
        .q_row = q->nb[1],
        .q_head = q->nb[2],
        .q_stream = q->nb[3],
        .out = node->data,
        .out_row = node->nb[chain ? 1 : 2],
        .out_head = node->nb[chain ? 2 : 1],
        .out_stream = node->nb[3],
    };
    if (site) {
        op.columns = op.n_head == l->info.n_head &&
                     (l->rows.aux_planes[WNW_AUX_ATTN_SUM] > 0 || l->rows.aux_planes[WNW_AUX_ATTN_MAX] > 0);
    }
    if (mask) {
        op.mask = mask->data;
        op.mask_f16 = mask->type == GGML_TYPE_F16;
        op.mask_row = mask->nb[1];
        op.mask_stream = mask->ne[3] > 1 ? mask->nb[3] : 0;
    }
    return op;
}

/* Writes what the stores of an attention have for entries that it is about to read. */
static void store_read(const struct wnw__cells_op *op, int32_t head, int32_t from, int32_t to)
{
    const struct ggml_tensor *const *stores = op->written_from;
    for (int k = 0; k < 2 && stores[k]; k++)
        for (int64_t i = 0; i < wnw__bridge_store_rows(stores[k]); i++) {
            const struct new_row r = row_of(stores[k], i);
            const int32_t n_head = r.t->layer->n_head, ih = head % n_head, d = r.t->is_v ? op->d_v : op->d_k;
            if (r.stream == head / n_head)
                wnw__bridge_head_write(r.t->layer, r.t->is_v, head, r.cell, from, to, r.x + (int64_t)ih * d);
        }
}

/* Writes the rows that no head of the attention reads: those of other streams, and those that its mask leaves out. */
static void store_unread(const struct wnw__cells_op *op)
{
    const struct ggml_tensor *const *stores = op->written_from;
    for (int k = 0; k < 2 && stores[k]; k++)
        for (int64_t i = 0; i < wnw__bridge_store_rows(stores[k]); i++) {
            const struct new_row r = row_of(stores[k], i);
            if (r.stream < op->first_stream || r.stream >= op->first_stream + op->n_stream ||
                r.cell >= op->n_cell)
                store_row(&r);
        }
}

int wnw__bridge_node_prepare(struct wnw__bridge_backend *b, const struct ggml_tensor *node)
{
    const struct wnw__bridge_node what = wnw__bridge_node_get(b, node);
    if (what.what == WNW_BRIDGE_STORE)
        return prepare_store(b, node);
    if (what.what == WNW_BRIDGE_NOT_OURS)
        return is_taken(node) ? wnw__fail(WNW_E_BACKEND, "what node %s computes is not known", node->name)
                              : WNW_OK;
    const struct wnw__cells_op op = wnw__bridge_attention(b, node);
    return wnw__cells_reserve(b->cells, &op);
}

static void run_node(struct ggml_tensor *node, int ith, int nth, void *user)
{
    struct wnw__bridge_backend *b = user;
    const struct wnw__bridge_node what = wnw__bridge_node_get(b, node);
    if (what.what == WNW_BRIDGE_STORE) {
        if (what.with[0])
            store(what.with[0], nth - 1 - ith, nth); /* another thread's where there is one row */
        store(node, ith, nth);
        return;
    }
    struct wnw__cells_op op = wnw__bridge_attention(b, node);
    if (what.with[0]) {
        op.write = store_read;
        op.written_from = what.with;
    }
    if (ith == 0 && what.with[0])
        store_unread(&op);
    if (ith == 0 && b->watch.policy && b->watch.on_attention)
        b->watch.on_attention(b, node, &op);
    wnw__cells_run(b->cells, &op, ith, nth);
}
