/* SPDX-License-Identifier: MIT */
#include "bridge/graph/graph.h"

#include "model/rope.h"

#include <stdlib.h>
#include <string.h>

/* ---- Going up from a node ---- */

static const struct ggml_tensor *behind_views(const struct ggml_tensor *t)
{
    while (t && (wnw__bridge_is_view(t) || wnw__bridge_is_op(t, "CONT")) && !wnw__bridge_is_op(t, "NONE") &&
           t->src[0])
        t = t->src[0];
    return t;
}

/* Block size if the node is a Hadamard rotation: MUL_MAT by a square input of the graph; else 0. */
static int32_t blocks_of(const struct ggml_tensor *t)
{
    const struct ggml_tensor *m = t && wnw__bridge_is_op(t, "MUL_MAT") ? t->src[0] : NULL;
    return m && wnw__bridge_is_op(m, "NONE") && (m->flags & GGML_TENSOR_FLAG_INPUT) && m->ne[0] == m->ne[1] &&
                   m->ne[2] == 1 && m->ne[3] == 1 && m->ne[0] <= INT32_MAX
               ? (int32_t)m->ne[0]
               : 0;
}

/* What a tensor is but for views and blocks that were turned; *n is the size of these, 0 = none. */
static const struct ggml_tensor *behind_blocks(const struct ggml_tensor *t, int32_t *n)
{
    t = behind_views(t);
    *n = blocks_of(t);
    return *n > 0 ? behind_views(t->src[1]) : t;
}

int32_t wnw__bridge_rope_mode(const struct ggml_tensor *rope)
{
    const int32_t mode = rope->op_params[WNW_ROPE_MODE];
    return mode == GGML_ROPE_TYPE_MROPE || mode == GGML_ROPE_TYPE_IMROPE ? GGML_ROPE_TYPE_NEOX : mode;
}

bool wnw__bridge_is_plain_rope(const struct ggml_tensor *rope)
{
    const int32_t mode = wnw__bridge_rope_mode(rope);
    return wnw__bridge_param(rope, WNW_ROPE_MIX) == 0.0f &&
           wnw__bridge_param(rope, WNW_ROPE_FACTOR) == 1.0f && wnw__bridge_has_known_words(rope) &&
           (mode == GGML_ROPE_TYPE_NORMAL || mode == GGML_ROPE_TYPE_NEOX);
}

/* The node that turns the queries of an attention, NULL if there is none. A factor may be between the two. */
static struct ggml_tensor *rope_of(const struct ggml_tensor *attend, float *q_scale)
{
    int32_t n_blocks;
    const struct ggml_tensor *q = behind_blocks(attend->src[0], &n_blocks);
    *q_scale = 1.0f;
    if (q && wnw__bridge_is_op(q, "SCALE") && wnw__bridge_param(q, WNW_SCALE_ADDEND) == 0.0f) {
        *q_scale = wnw__bridge_param(q, WNW_SCALE_FACTOR);
        q = behind_views(q->src[0]);
    }
    return q && wnw__bridge_is_op(q, "ROPE") ? (struct ggml_tensor *)(uintptr_t)q : NULL;
}

static void learn_rope(struct wnw__bridge_layer_info *f, const struct ggml_tensor *rope, float q_scale)
{
    f->q_scale = q_scale;
    f->n_rot = rope->op_params[WNW_ROPE_N_ROT];
    f->neox = wnw__bridge_rope_mode(rope) == GGML_ROPE_TYPE_NEOX;
    f->n_ctx_train = rope->op_params[WNW_ROPE_N_CTX];
    f->base = wnw__bridge_param(rope, WNW_ROPE_BASE);
    f->freq_scale = wnw__bridge_param(rope, WNW_ROPE_FREQ_SCALE);
    f->factors = rope->src[2];
    f->turns = wnw__bridge_is_plain_rope(rope) && rope->type == GGML_TYPE_F32 && f->n_rot > 0 &&
               (!f->factors || (f->factors->type == GGML_TYPE_F32 && f->factors->data));
}

/* ---- Going down ---- */

/* Whether the bytes of a weight can be read as the file has them. */
static bool is_readable(const struct wnw__bridge_backend *b, const struct ggml_tensor *w)
{
    return w->buffer && ggml_is_contiguous(w) && w->ne[2] == 1 && w->ne[3] == 1 &&
           (b->wrap || w->buffer->buft == wnw__bridge_buffer_type() ||
            ggml_backend_buffer_is_host(w->buffer));
}

/* The weight of the product that reads what an attention gives. */
static const struct ggml_tensor *projection_of(const struct wnw__bridge_backend *b, struct ggml_cgraph *graph,
                                               int i)
{
    enum { NEAR = 24 }; /* nodes of other branches may be between the two */
    const struct ggml_tensor *attend = ggml_graph_node(graph, i);
    int32_t n_blocks;
    for (int j = i + 1; j < ggml_graph_n_nodes(graph) && j <= i + NEAR; j++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, j);
        if (wnw__bridge_is_op(node, "MUL_MAT") && blocks_of(node) == 0 &&
            behind_blocks(node->src[1], &n_blocks) == attend && is_readable(b, node->src[0]))
            return node->src[0];
    }
    return NULL;
}

/* ---- Layers ---- */

static const float *sinks_of(struct wnw__bridge_layer *l, const struct ggml_tensor *sinks)
{
    if (!sinks)
        return NULL;
    return l->far ? l->far->sinks(l, sinks) : sinks->data;
}

static void learn(const struct wnw__bridge_backend *b, struct wnw__bridge_site *p, struct ggml_cgraph *graph,
                  int i)
{
    const struct wnw__bridge_node what = wnw__bridge_node_get(b, p->node);
    struct wnw__bridge_layer_info *f = &p->layer->info;
    float q_scale;
    p->rope = rope_of(p->node, &q_scale);
    if (p->reader < f->n_reader)
        return; /* an earlier graph has shown it */
    f->n_reader = p->reader + 1;
    if (p->reader > 0)
        return;
    const struct ggml_tensor *sinks = p->node->src[4];
    f->n_head = (int32_t)p->node->src[0]->ne[2];
    f->scale = what.cap > 0.0f ? what.scale * what.cap : what.scale;
    f->form = (struct wnw__score_form){
        .cap = what.cap, .max_bias = what.max_bias, .sinks = sinks_of(p->layer, sinks)};
    f->turns = false;
    if (p->rope)
        learn_rope(f, p->rope, q_scale);
    f->wo = projection_of(b, graph, i);
}

static int add_site(struct wnw__bridge_backend *b, const struct wnw__bridge_site *p)
{
    struct wnw__bridge_watch *w = &b->watch;
    if (w->n_site == w->cap_site) {
        const int32_t cap = w->cap_site > 0 ? 2 * w->cap_site : 64;
        struct wnw__bridge_site *more = realloc(w->sites, (size_t)cap * sizeof *more);
        if (!more)
            return wnw__fail(WNW_E_NOMEM, "no memory to list the layers of a graph");
        w->sites = more;
        w->cap_site = cap;
    }
    w->sites[w->n_site++] = *p;
    return WNW_OK;
}

/* Learns from a store in which form libllama keeps a layer's keys or values. */
static void learn_store(const struct ggml_tensor *node)
{
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
    int32_t n_blocks;
    (void)behind_blocks(node->src[0], &n_blocks);
    if (t->is_v)
        t->layer->info.v_block = n_blocks;
    else
        t->layer->info.k_block = n_blocks;
}

/* Sets what makes the keys of the site that has them as its own. */
static void find_product(struct wnw__bridge_backend *b, const struct ggml_tensor *store)
{
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(store);
    for (int32_t i = 0; !t->is_v && i < b->watch.n_site; i++) {
        struct wnw__bridge_site *p = &b->watch.sites[i];
        if (p->layer != t->layer || p->reader > 0)
            continue;
        p->store = store;
        p->product = wnw__bridge_keys_product(store);
        p->layer->info.n_input = p->product ? (int32_t)p->product->src[1]->ne[0] : 0;
    }
}

/* libllama makes two caches for a model whose layers have windows and others not: first that of the others, which has at
 * least as many cells. */
static bool comes_before(const struct wnw__bridge_layer *a, const struct wnw__bridge_layer *l)
{
    return a->kind == WNW_BRIDGE_RAGGED && a->cache != l->cache &&
           (a->k.n_cell > l->k.n_cell || (a->k.n_cell == l->k.n_cell && a->cache->made < l->cache->made));
}

bool wnw__bridge_is_sliding(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l)
{
    for (int32_t c = 0; c < b->n_cache; c++)
        for (int32_t i = 0; i < b->caches[c]->n_layer; i++)
            if (comes_before(b->caches[c]->layers[i], l))
                return true;
    for (const struct wnw__bridge_backend *of = b->first; of; of = of->other)
        for (int32_t c = 0; of != b && c < of->n_cache; c++)
            for (int32_t i = 0; i < of->caches[c]->n_layer; i++)
                if (of->caches[c]->layers[i]->k.n_cell > l->k.n_cell)
                    return true;
    return false;
}

int wnw__bridge_sites_find(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    b->watch.n_site = 0;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        struct wnw__bridge_site p = {.b = b, .node = ggml_graph_node(graph, i)};
        const int32_t what = wnw__bridge_node_get(b, p.node).what;
        if (what == WNW_BRIDGE_STORE)
            learn_store(p.node);
        if (what != WNW_BRIDGE_ATTEND && what != WNW_BRIDGE_ATTEND_CHAIN)
            continue;
        p.layer = wnw__bridge_tensor_of(p.node->src[1])->layer;
        if (wnw__bridge_is_sliding(b, p.layer))
            continue;
        for (int32_t k = 0; k < b->watch.n_site; k++)
            p.reader += b->watch.sites[k].layer == p.layer;
        learn(b, &p, graph, i);
        WNW_TRY(add_site(b, &p));
    }
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++)
        if (wnw__bridge_node_get(b, ggml_graph_node(graph, i)).what == WNW_BRIDGE_STORE)
            find_product(b, ggml_graph_node(graph, i));
    return WNW_OK;
}

const struct wnw__bridge_site *wnw__bridge_site_of(const struct wnw__bridge_backend *b,
                                                   const struct ggml_tensor *node)
{
    for (int32_t i = 0; i < b->watch.n_site; i++)
        if (b->watch.sites[i].node == node)
            return &b->watch.sites[i];
    return NULL;
}

/* ---- Turning ---- */

void wnw__bridge_theta(const struct wnw__bridge_layer_info *f, float *theta)
{
    const float *factors = f->factors ? f->factors->data : NULL;
    wnw__rope_angles(&(struct wnw__rope){.base = f->base, .scale = f->freq_scale}, f->n_rot, factors, theta);
}
