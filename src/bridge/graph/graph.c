/* SPDX-License-Identifier: MIT */
/*
 * What nodes of a graph do with a cache. Operations are recognised by their names, because their numbers differ
 * between versions of ggml. Known are
 *
 *     SET_ROWS                     new keys or values to cells
 *     FLASH_ATTN_EXT               attention
 *     MUL_MAT, [SCALE, TANH, SCALE,] SOFT_MAX, [CONT,] MUL_MAT
 *                                  the same where flash attention is off
 *
 * The nodes of such a chain but the last become views of the queries, so that they take neither time nor memory.
 */
#include "bridge/graph/graph.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PARTS = 6 };

/* An attention over one layer. */
struct attend {
    struct ggml_tensor *node; /* has the result */
    struct ggml_tensor *q, *k, *v, *mask, *sinks;
    struct ggml_tensor *part[MAX_PARTS]; /* the chain before the node */
    int32_t n_part;
    struct wnw__bridge_node what;
    struct wnw__bridge_shape shape;
    struct wnw__bridge_layer *layer;
};

struct look {
    struct wnw__bridge_backend *b;
    struct ggml_cgraph *graph;
    int n_node;
    struct attend *attend; /* [n_node] */
    int32_t n_attend;
    const struct ggml_tensor
        *unknown_node; /* the first node on a cache that we do not know; NULL if there is none */
};

/* ---- Views of keys and values ---- */

static size_t stream_bytes(const struct wnw__bridge_tensor *t)
{
    return ggml_row_size(t->type, t->n_embd) * (size_t)t->n_cell;
}

static bool is_whole_streams(const struct wnw__bridge_tensor *t, const struct ggml_tensor *view)
{
    return view->view_offs % stream_bytes(t) == 0 && (view->ne[3] == 1 || view->nb[3] == stream_bytes(t));
}

/* Whether the view is rows of heads: [d, cells, heads, streams]. `cells` and `d` say which dimension is which. */
static bool is_rows(const struct wnw__bridge_tensor *t, const struct ggml_tensor *view, int cells, int d)
{
    return view->nb[d] == ggml_type_size(view->type) &&
           view->nb[cells] == ggml_row_size(t->type, t->n_embd) &&
           (view->ne[2] == 1 || view->nb[2] == ggml_row_size(t->type, view->ne[d])) &&
           view->ne[2] * view->ne[d] <= t->n_embd && view->ne[cells] <= t->n_cell &&
           is_whole_streams(t, view);
}

/* Whether the view is transposed values: [cells, d, heads, streams]. */
static bool is_columns(const struct wnw__bridge_tensor *t, const struct ggml_tensor *view)
{
    const size_t size = ggml_type_size(view->type), column = size * (size_t)t->n_cell;
    return ggml_blck_size(view->type) == 1 && view->nb[0] == size && view->nb[1] == column &&
           (view->ne[2] == 1 || view->nb[2] == column * (size_t)view->ne[1]) &&
           view->ne[2] * view->ne[1] <= t->n_embd && view->ne[0] <= t->n_cell && is_whole_streams(t, view);
}

static bool takes_keys(struct attend *a)
{
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(a->k);
    if (!t || t->is_v || !is_rows(t, a->k, 1, 0) || !wnw__cells_takes(t->type))
        return false;
    a->layer = t->layer;
    a->shape.d_k = (int32_t)a->k->ne[0];
    a->shape.n_head = (int32_t)a->k->ne[2];
    return a->shape.d_k <= WNW_BRIDGE_MOST_D &&
           a->shape.n_head * a->shape.d_k == t->n_embd; /* other parts of a row would not be stored */
}

/* The view's dimensions of cells and of elements: 1 and 0, or 0 and 1 where it was turned. */
static bool takes_values(struct attend *a, int cells, int d)
{
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(a->v);
    if (!t || t->layer != a->layer || a->v->ne[2] != a->shape.n_head || a->v->ne[cells] != a->k->ne[1] ||
        a->v->ne[3] != a->k->ne[3] || !wnw__cells_takes(t->type))
        return false;
    a->shape.d_v = (int32_t)a->v->ne[d];
    a->shape.v_in_keys = !t->is_v;
    if (a->shape.v_in_keys)
        return !a->layer->v.base && a->shape.n_head == 1 && is_rows(t, a->v, cells, d) &&
               a->v->view_offs == a->k->view_offs;
    if (t->n_cell != a->layer->k.n_cell || t->n_stream != a->layer->k.n_stream ||
        a->v->view_offs / stream_bytes(t) != a->k->view_offs / stream_bytes(&a->layer->k))
        return false;
    if (is_rows(t, a->v, cells, d))
        return true;
    a->shape.transposed = cells == 0 && is_columns(t, a->v);
    return a->shape.transposed;
}

static bool takes_queries(const struct attend *a)
{
    const struct ggml_tensor *q = a->q, *m = a->mask, *s = a->sinks;
    return q->type == GGML_TYPE_F32 && q->nb[0] == sizeof(float) && q->ne[0] == a->k->ne[0] &&
           q->ne[2] % a->shape.n_head == 0 && q->ne[3] == a->k->ne[3] &&
           (!m || ((m->type == GGML_TYPE_F16 || m->type == GGML_TYPE_F32) && m->ne[0] >= a->k->ne[1] &&
                   m->ne[1] >= q->ne[1] && m->ne[2] == 1 && (m->ne[3] == 1 || m->ne[3] == q->ne[3]) &&
                   m->nb[0] == ggml_type_size(m->type))) &&
           (!s || (s->type == GGML_TYPE_F32 && s->ne[0] == q->ne[2] && ggml_is_contiguous(s)));
}

/* ---- Attention ---- */

static bool is_flash(struct ggml_tensor *node, struct attend *a)
{
    const float cap = wnw__bridge_param(node, WNW_FLASH_CAP);
    *a = (struct attend){.node = node,
                         .q = node->src[0],
                         .k = node->src[1],
                         .v = node->src[2],
                         .mask = node->src[3],
                         .sinks = node->src[4],
                         .what = {.what = WNW_BRIDGE_ATTEND,
                                  .scale = cap != 0.0f ? wnw__bridge_param(node, WNW_FLASH_SCALE) / cap
                                                       : wnw__bridge_param(node, WNW_FLASH_SCALE),
                                  .cap = cap,
                                  .max_bias = wnw__bridge_param(node, WNW_FLASH_MAX_BIAS)}};
    return wnw__bridge_has_known_words(node) && takes_keys(a) && takes_values(a, 1, 0) && takes_queries(a) &&
           node->type == GGML_TYPE_F32;
}

bool wnw__bridge_flash_of(struct ggml_tensor *node, struct wnw__bridge_flash *out)
{
    struct attend a;
    if (!wnw__bridge_is_op(node, "FLASH_ATTN_EXT") || !is_flash(node, &a))
        return false;
    *out = (struct wnw__bridge_flash){.node = node,
                                      .q = a.q,
                                      .k = a.k,
                                      .v = a.v,
                                      .mask = a.mask,
                                      .sinks = a.sinks,
                                      .layer = a.layer,
                                      .shape = a.shape,
                                      .what = a.what};
    return true;
}

static bool reads(const struct ggml_tensor *node, const struct ggml_tensor *src)
{
    for (int i = 0; i < GGML_MAX_SRC; i++)
        if (node->src[i] == src)
            return true;
    return false;
}

/* The only node that reads src, if it is after node i and its first source is src; else NULL. *i becomes its index. */
static struct ggml_tensor *only_reader(const struct look *look, const struct ggml_tensor *src, int *i)
{
    struct ggml_tensor *found = NULL;
    for (int j = *i + 1; j < look->n_node; j++) {
        struct ggml_tensor *node = ggml_graph_node(look->graph, j);
        const bool is_view = node->view_src == src;
        if (is_view || (reads(node, src) && found))
            return NULL;
        if (reads(node, src)) {
            found = node;
            *i = j;
        }
    }
    return found && !(src->flags & GGML_TENSOR_FLAG_OUTPUT) ? found : NULL;
}

static bool is_scale(const struct ggml_tensor *node)
{
    return wnw__bridge_is_op(node, "SCALE") && wnw__bridge_param(node, WNW_SCALE_ADDEND) == 0.0f &&
           wnw__bridge_has_known_words(node);
}

static bool is_tanh(const struct ggml_tensor *node)
{
    return wnw__bridge_is_op(node, "UNARY") &&
           strcmp(ggml_unary_op_name(ggml_get_unary_op(node)), "TANH") == 0;
}

static void add_part(struct attend *a, struct ggml_tensor *node)
{
    a->part[a->n_part++] = node;
}

/* Values of a chain are a view, or copied to be one. */
static bool chain_values(struct attend *a, struct ggml_tensor *v)
{
    if (wnw__bridge_is_op(v, "CONT")) {
        add_part(a, v);
        v = v->src[0];
    }
    a->v = v;
    return takes_values(a, 0, 1);
}

/* Follows the products q . k of node i to the attention's result. */
static bool is_chain(const struct look *look, int i, struct attend *a)
{
    struct ggml_tensor *node = ggml_graph_node(look->graph, i), *next;
    float before = 1.0f, after = 1.0f;
    *a = (struct attend){.k = node->src[0], .q = node->src[1], .what = {.what = WNW_BRIDGE_ATTEND_CHAIN}};
    if (!takes_keys(a))
        return false;
    add_part(a, node);
    next = only_reader(look, node, &i);
    if (next && is_scale(next)) {
        before = wnw__bridge_param(next, WNW_SCALE_FACTOR);
        add_part(a, node = next);
        next = only_reader(look, node, &i);
    }
    if (next && is_tanh(next)) {
        add_part(a, node = next);
        a->what.cap = 1.0f;
        next = only_reader(look, node, &i);
        if (next && is_scale(next)) {
            after = wnw__bridge_param(next, WNW_SCALE_FACTOR);
            add_part(a, node = next);
            next = only_reader(look, node, &i);
        }
    }
    if (!next || !wnw__bridge_is_op(next, "SOFT_MAX") || next->src[0] != node ||
        !wnw__bridge_has_known_words(next))
        return false;
    after *= wnw__bridge_param(next, WNW_SOFT_MAX_SCALE);
    a->what.max_bias = wnw__bridge_param(next, WNW_SOFT_MAX_MAX_BIAS);
    a->mask = next->src[1];
    a->sinks = next->src[2];
    add_part(a, node = next);
    next = only_reader(look, node, &i);
    if (!next || !wnw__bridge_is_op(next, "MUL_MAT") || next->src[1] != node ||
        !chain_values(a, next->src[0]))
        return false;
    a->node = next;
    a->what.scale = a->what.cap > 0.0f ? before : before * after;
    a->what.cap *= after;
    return takes_queries(a) && a->what.cap >= 0.0f;
}

/* ---- Stores ---- */

static bool is_store(const struct ggml_tensor *node, const struct wnw__bridge_tensor *t)
{
    const struct ggml_tensor *src = node->src[0], *index = node->src[1];
    if (!wnw__bridge_is_op(node, "SET_ROWS"))
        return false;
    const bool is_input =
        wnw__bridge_is_op(index, "NONE") && (index->type == GGML_TYPE_I64 || index->type == GGML_TYPE_I32);
    if (!is_input || !ggml_is_contiguous(index) || src->type != GGML_TYPE_F32 || node->view_offs != 0 ||
        src->ne[2] != 1 || src->ne[3] != 1 || wnw__bridge_tensor_of(src))
        return false;
    if (src->ne[0] == t->n_embd)
        return node->nb[1] == ggml_row_size(t->type, t->n_embd) && index->ne[0] == src->ne[1];
    return t->is_v && src->ne[0] == 1 && ggml_is_contiguous(src) && src->ne[1] % t->n_embd == 0 &&
           index->ne[0] == src->ne[1];
}

bool wnw__bridge_is_row_store(const struct ggml_tensor *node, const struct wnw__bridge_tensor *t)
{
    return is_store(node, t) && node->src[0]->ne[0] == t->n_embd;
}

/* Whether a store writes the layer's values one element after the other, as they must be where they are transposed. */
static bool suits(const struct ggml_tensor *node, const struct wnw__bridge_tensor *t)
{
    return !t->is_v || t->n_embd == 1 || (node->src[0]->ne[0] == 1) == t->layer->transposed;
}

/* ---- The whole graph ---- */

struct wnw__bridge_tensor *wnw__bridge_touched(const struct ggml_tensor *node)
{
    struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
    for (int i = 0; i < GGML_MAX_SRC && !t; i++)
        t = node->src[i] ? wnw__bridge_tensor_of(node->src[i]) : NULL;
    return wnw__bridge_is_view(node) ? NULL : t;
}

void wnw__bridge_mark_unknown(const struct ggml_tensor *node)
{
    struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
    if (t)
        t->layer->unknown = true;
    for (int s = 0; s < GGML_MAX_SRC; s++) {
        t = node->src[s] ? wnw__bridge_tensor_of(node->src[s]) : NULL;
        if (t)
            t->layer->unknown = true;
    }
}

/* The same as wnw__bridge_touched of a node that is not our operation. */
static struct wnw__bridge_tensor *touched(const struct wnw__bridge_backend *b, const struct ggml_tensor *node)
{
    struct wnw__bridge_tensor *t = wnw__bridge_touched(node);
    return t && wnw__bridge_node_get(b, node).what != WNW_BRIDGE_NOT_OURS ? NULL : t;
}

static void find_attention(struct look *look)
{
    for (int i = 0; i < look->n_node; i++) {
        struct ggml_tensor *node = ggml_graph_node(look->graph, i);
        struct attend *a = &look->attend[look->n_attend];
        if (!touched(look->b, node))
            continue;
        if (wnw__bridge_is_op(node, "FLASH_ATTN_EXT")
                ? is_flash(node, a)
                : wnw__bridge_is_op(node, "MUL_MAT") && is_chain(look, i, a))
            look->n_attend++;
    }
}

static bool is_found(const struct look *look, const struct ggml_tensor *node)
{
    for (int32_t i = 0; i < look->n_attend; i++) {
        const struct attend *a = &look->attend[i];
        bool found = a->node == node;
        for (int32_t p = 0; p < a->n_part; p++)
            found = found || a->part[p] == node;
        if (found)
            return true;
    }
    return false;
}

/* Marks layers whose cache a node touches that is neither a store nor part of an attention. */
static void find_unknown(struct look *look)
{
    for (int i = 0; i < look->n_node; i++) {
        struct ggml_tensor *node = ggml_graph_node(look->graph, i);
        const struct wnw__bridge_tensor *t = touched(look->b, node);
        if (!t || is_found(look, node) || is_store(node, t))
            continue;
        look->unknown_node = look->unknown_node ? look->unknown_node : node;
        wnw__bridge_mark_unknown(node);
    }
}

bool wnw__bridge_has_shape(const struct wnw__bridge_layer *l, const struct wnw__bridge_shape *shape)
{
    return l->n_head == shape->n_head && l->d_k == shape->d_k && l->d_v == shape->d_v &&
           l->transposed == shape->transposed && l->v_in_keys == shape->v_in_keys;
}

/* A layer for which there is no memory stays plain. */
static bool take(struct wnw__bridge_layer *l, const struct wnw__bridge_shape *shape)
{
    if (wnw__bridge_layer_take(l, shape) == WNW_OK)
        return true;
    wnw__log(WNW_LOG_WARN, "winnow: layer %d stays as libllama has it, and whole: %s", (int)l->il,
             wnw_last_error());
    return false;
}

/* Decides what layers become that no graph had before. */
static void decide(struct wnw__bridge_backend *b, const struct look *look)
{
    int32_t n_ragged = 0, n_plain = 0;
    for (int32_t i = 0; i < look->n_attend; i++) {
        struct wnw__bridge_layer *l = look->attend[i].layer;
        if (l->kind == WNW_BRIDGE_UNSEEN && !l->unknown && !b->plain)
            n_ragged += take(l, &look->attend[i].shape);
    }
    for (int i = 0; i < look->n_node; i++) {
        const struct wnw__bridge_tensor *t = touched(b, ggml_graph_node(look->graph, i));
        if (t && t->layer->kind == WNW_BRIDGE_UNSEEN) {
            t->layer->kind = WNW_BRIDGE_PLAIN;
            n_plain++;
        }
        if (t)
            t->layer->unknown = false;
        if (t && wnw__bridge_backend_see(b, t->layer->cache) != WNW_OK)
            wnw__log(WNW_LOG_WARN, "winnow: %s", wnw_last_error());
    }
    if (n_plain > 0 && look->unknown_node)
        b->unknown_node = ggml_op_name(look->unknown_node->op);
    if (n_ragged + n_plain > 0)
        wnw__log(WNW_LOG_INFO, "winnow: layers with a ragged cache: %d, left as they are: %d%s%s",
                 (int)n_ragged, (int)n_plain, look->unknown_node ? ", because of operation " : "",
                 look->unknown_node ? ggml_op_name(look->unknown_node->op) : "");
}

/* Makes a part of a chain a view of what it reads first. */
static void set_view(struct ggml_tensor *node, struct ggml_tensor *src)
{
    node->op = GGML_OP_VIEW;
    memset(node->op_params, 0, sizeof node->op_params);
    memset(node->src, 0, sizeof node->src);
    node->src[0] = src;
    node->view_src = src->view_src ? src->view_src : src;
    node->view_offs = 0;
}

static void take_attention(struct wnw__bridge_backend *b, struct attend *a)
{
    struct ggml_tensor *before = a->q;
    for (int32_t p = 0; p < a->n_part; p++) {
        const bool is_values = wnw__bridge_is_op(a->part[p], "CONT");
        set_view(a->part[p], is_values ? a->part[p]->src[0] : before);
        before = is_values ? before : a->part[p];
    }
    struct ggml_tensor *const src[] = {a->q, a->k, a->v, a->mask, a->sinks, a->n_part > 0 ? before : NULL};
    memset(a->node->src, 0, sizeof a->node->src);
    memcpy(a->node->src, src, sizeof src);
    for (int32_t p = 0; p < a->n_part; p++)
        if (a->part[p]->src[0] == a->v)
            a->node->src[sizeof src / sizeof *src] = a->part[p];
    wnw__bridge_node_set(b, a->node, &a->what);
}

/* Whether a node is a store that becomes ours. */
static bool is_ours(const struct wnw__bridge_backend *b, const struct ggml_tensor *node)
{
    const struct wnw__bridge_tensor *t = touched(b, node);
    return t && t->layer->kind == WNW_BRIDGE_RAGGED && is_store(node, t) && suits(node, t);
}

bool wnw__bridge_graph_is_taken(const struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++)
        if (is_ours(b, ggml_graph_node(graph, i)))
            return false;
    return true;
}

void wnw__bridge_graph_take(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    struct look look = {.b = b, .graph = graph, .n_node = ggml_graph_n_nodes(graph)};
    look.attend = calloc((size_t)look.n_node + 1, sizeof *look.attend);
    if (!look.attend)
        return; /* it is not run, unless no layer in it is ragged yet */
    find_attention(&look);
    find_unknown(&look);
    decide(b, &look);
    for (int i = 0; i < look.n_node; i++) {
        struct ggml_tensor *node = ggml_graph_node(graph, i);
        if (is_ours(b, node))
            wnw__bridge_node_set(b, node, &(struct wnw__bridge_node){.what = WNW_BRIDGE_STORE});
    }
    for (int32_t i = 0; i < look.n_attend; i++)
        if (look.attend[i].layer->kind == WNW_BRIDGE_RAGGED &&
            wnw__bridge_has_shape(look.attend[i].layer, &look.attend[i].shape))
            take_attention(b, &look.attend[i]);
    free(look.attend);
}
