/* SPDX-License-Identifier: MIT */
/* What a graph does with the layers of a cache on a wrapped device, and what the layers become. */
#include "bridge/wrap/wrap.h"

#include <stdio.h>

/* Whether our graph can compute it: keys of all heads in one row each, values too, and no slopes by head. */
static bool suits(const struct wnw__bridge_flash *f)
{
    const struct wnw__bridge_layer *l = f->layer;
    return f->what.max_bias == 0.0f && f->mask && f->mask->type == GGML_TYPE_F16 && !f->shape.transposed &&
           (!l->v.base || f->shape.n_head * f->shape.d_v == l->v.n_embd);
}

static void sort_nodes(struct wnw__wrap_look *look)
{
    for (int i = 0; i < ggml_graph_n_nodes(look->graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(look->graph, i);
        struct wnw__bridge_tensor *t = wnw__bridge_touched(node);
        struct wnw__bridge_flash *f = &look->flash[look->n_flash];
        if (!t)
            continue;
        look->touched[look->n_touched++] = (struct wnw__wrap_store){.node = node, .t = t};
        if (wnw__bridge_flash_of(node, f) && suits(f) &&
            (f->layer->kind != WNW_BRIDGE_RAGGED || wnw__bridge_has_shape(f->layer, &f->shape)))
            look->n_flash++;
        else if (wnw__bridge_is_row_store(node, t))
            look->stores[look->n_store++] = (struct wnw__wrap_store){.node = node, .t = t};
        else
            wnw__bridge_mark_unknown(node);
    }
}

/* Leaves a layer as it is, and says so once. */
static void leave(struct wnw__bridge_backend *b, struct wnw__bridge_layer *l)
{
    l->kind = WNW_BRIDGE_PLAIN;
    if (strcmp(b->refused, wnw_last_error()) == 0)
        return;
    snprintf(b->refused, sizeof b->refused, "%s", wnw_last_error());
    wnw__log(WNW_LOG_WARN, "winnow: layer %d and others like it stay whole: %s", (int)l->il, b->refused);
}

/* Decides what layers become that no graph had before. */
static void decide(struct wnw__wrap_look *look, struct wnw__bridge_backend *b)
{
    for (int32_t i = 0; i < look->n_flash; i++) {
        const struct wnw__bridge_flash *f = &look->flash[i];
        struct wnw__bridge_layer *l = f->layer;
        if (l->kind != WNW_BRIDGE_UNSEEN || l->unknown)
            continue;
        if (wnw__wrap_can(b->wrap->w, f, wnw__wrap_wants_sums(b)) != WNW_OK) {
            leave(b, l);
            continue;
        }
        /* A policy that wants them may come later. */
        if (wnw__wrap_can(b->wrap->w, f, true) != WNW_OK)
            snprintf(b->wrap->no_sums, sizeof b->wrap->no_sums, "%s", wnw_last_error());
        l->n_head = f->shape.n_head;
        l->d_k = f->shape.d_k;
        l->d_v = f->shape.d_v;
        l->v_in_keys = f->shape.v_in_keys;
        l->kind = WNW_BRIDGE_RAGGED;
    }
    /* Readers of one layer that differ leave it as it is. */
    for (int32_t i = 0; i < look->n_flash; i++)
        if (!wnw__bridge_has_shape(look->flash[i].layer, &look->flash[i].shape))
            look->flash[i].layer->kind = WNW_BRIDGE_PLAIN;
}

/* Leaves a layer as it is that no attention of the graph has made ragged. Where nothing but stores is there, its attention is elsewhere. */
static void leave_unseen(struct wnw__bridge_backend *b, struct wnw__bridge_layer *l)
{
    l->kind = WNW_BRIDGE_PLAIN;
    if (l->unknown)
        return;
    wnw__fail(WNW_E_UNSUPPORTED, "%s does not compute their attention, and keys of %s are read elsewhere",
              wnw__wrap_x_name(b->wrap->w), ggml_type_name(l->k.type));
    leave(b, l);
}

/* Counts the layers that the graph decides about, and logs them once. */
static void log_layers(struct wnw__bridge_backend *b, struct wnw__wrap_look *look)
{
    int32_t n_ragged = 0, n_plain = 0;
    const struct ggml_tensor *unknown_node = NULL;
    for (int32_t i = 0; i < look->n_touched; i++) {
        const struct ggml_tensor *node = look->touched[i].node;
        struct wnw__bridge_layer *l = look->touched[i].t->layer;
        if (l->kind == WNW_BRIDGE_UNSEEN) {
            leave_unseen(b, l);
            unknown_node = node;
        }
        if (l->kind == WNW_BRIDGE_PLAIN)
            n_plain += !l->wrap->told;
        else
            n_ragged += !l->wrap->told;
        l->wrap->told = true;
    }
    if (unknown_node)
        b->unknown_node = ggml_op_name(unknown_node->op);
    if (n_ragged + n_plain > 0)
        wnw__log(WNW_LOG_INFO, "winnow: layers with a ragged cache: %d, left as they are: %d", (int)n_ragged,
                 (int)n_plain);
}

/* Layers that become ragged now: with rows whose parts a head had dropped, or all of them. */
static int begin_rows(const struct wnw__wrap_look *look, bool at_once)
{
    for (int32_t i = 0; i < look->n_flash; i++) {
        struct wnw__bridge_layer *l = look->flash[i].layer;
        if (l->kind == WNW_BRIDGE_RAGGED && (at_once || l->wrap->holes))
            WNW_TRY(wnw__wrap_rows_begin(l));
    }
    return WNW_OK;
}

/* A layer's node that is not known cannot be computed in one graph with our stores and attention over the layer. */
static int check_mixed(struct wnw__wrap_look *look)
{
    for (int32_t i = 0; i < look->n_flash + look->n_store; i++) {
        const struct wnw__bridge_layer *l =
            i < look->n_flash ? look->flash[i].layer : look->stores[i - look->n_flash].t->layer;
        look->ragged = look->ragged || l->wrap->ragged;
        if (l->unknown && l->wrap->ragged)
            return wnw__fail(WNW_E_UNSUPPORTED,
                             "a graph has a node on the ragged layer %d that we do not know", (int)l->il);
        if (l->lost)
            return wnw__fail(WNW_E_NOMEM, "rows of layer %d were lost", (int)l->il);
    }
    return WNW_OK;
}

/* Layers with such nodes are brought to libllama's layout. */
static int spread_unknown(struct wnw__wrap_look *look)
{
    for (int32_t i = 0; i < look->n_touched; i++) {
        struct wnw__bridge_layer *l = look->touched[i].t->layer;
        if (l->unknown && l->wrap->settled)
            WNW_TRY(wnw__wrap_rows_spread(l));
    }
    return WNW_OK;
}

static void forget_unknown(struct wnw__wrap_look *look)
{
    for (int32_t i = 0; i < look->n_touched; i++)
        look->touched[i].t->layer->unknown = false;
}

/* ---- The graph that was looked at last ---- */

/* Whether what was found holds for the graph when it comes again. Each time one comes, nodes that are not known mark the layers that are ragged
 * or may be. */
static bool is_simple(const struct wnw__wrap_look *look)
{
    bool simple = true;
    for (int32_t i = 0; i < look->n_touched && simple; i++) {
        const struct wnw__bridge_layer *l = look->touched[i].t->layer;
        simple = !l->unknown || l->kind == WNW_BRIDGE_PLAIN;
    }
    return simple;
}

/* Sorts the graph's nodes, and decides about layers. */
static int look_at(struct wnw__wrap_look *look, struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    struct wnw__wrap_found *f = &b->wrap->found;
    const size_t n = (size_t)ggml_graph_n_nodes(graph) + 1;
    *look = (struct wnw__wrap_look){.graph = graph, .number = f->look.number + 1};
    f->look.number = look->number;
    f->holds = false;
    look->flash = wnw__wrap_block_need(&f->flash, n * sizeof *look->flash);
    look->stores = wnw__wrap_block_need(&f->stores, n * sizeof *look->stores);
    look->touched = wnw__wrap_block_need(&f->touched, n * sizeof *look->touched);
    if (!look->flash || !look->stores || !look->touched)
        return wnw__fail(WNW_E_NOMEM, "no memory to look at a graph of %zu nodes", n);
    sort_nodes(look);
    for (int32_t i = 0; i < look->n_touched; i++)
        WNW_TRY(wnw__bridge_backend_see(b, look->touched[i].t->layer->cache));
    decide(look, b);
    log_layers(b, look);
    return WNW_OK;
}

static int look_and_begin(struct wnw__wrap_look *look, struct wnw__bridge_backend *b,
                          struct ggml_cgraph *graph)
{
    struct wnw__wrap_found *f = &b->wrap->found;
    if (b->last.again && f->holds) {
        *look = f->look;
        look->graph = graph;
    } else {
        const int rc = look_at(look, b, graph);
        f->look = *look;
        f->holds = rc == WNW_OK && is_simple(look);
        WNW_TRY(rc);
    }
    WNW_TRY(begin_rows(look, b->wrap->at_once || wnw__wrap_wants_sums(b)));
    WNW_TRY(check_mixed(look));
    return spread_unknown(look);
}

int wnw__wrap_look(struct wnw__wrap_look *look, struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    wnw__bridge_last_see(b, graph);
    const int rc = look_and_begin(look, b, graph);
    forget_unknown(look);
    return rc;
}

void wnw__wrap_decide(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    struct wnw__wrap_look look;
    if (look_at(&look, b, graph) != WNW_OK)
        wnw__log(WNW_LOG_WARN, "winnow: %s", wnw_last_error());
    forget_unknown(&look);
    wnw__bridge_last_shown(b);
}
