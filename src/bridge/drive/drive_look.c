/* SPDX-License-Identifier: MIT */
/* What a graph shows of its layers with a cache, and whether the engine's attention does the same. */
#include "bridge/drive/drive_impl.h"
#include "bridge/graph/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a tensor is another shape of. */
static const struct ggml_tensor *behind_views(const struct ggml_tensor *t)
{
    while (t && !wnw__bridge_is_op(t, "NONE") && wnw__bridge_is_view(t) && t->src[0])
        t = t->src[0];
    return t;
}

/* Follows the queries of an attention up to what RoPE turns. Between are their producer, and maybe a factor and
 * RoPE. */
static void look_at_queries(struct wnw__attention_site *p)
{
    struct wnw__drive_layer *l = &p->layer;
    const struct ggml_tensor *q = behind_views(p->node->src[0]);
    l->q_scale = 1.0f;
    if (wnw__bridge_is_op(q, "SCALE") && wnw__bridge_param(q, WNW_SCALE_ADDEND) == 0.0f) {
        const struct ggml_tensor *before = behind_views(q->src[0]);
        if (wnw__bridge_is_op(before, "ROPE")) {
            l->q_scale = wnw__bridge_param(q, WNW_SCALE_FACTOR);
            q = before;
        }
    }
    if (!wnw__bridge_is_op(q, "ROPE"))
        return;
    p->rope = q;
    l->queries = l->rotates = true;
    l->plain = wnw__bridge_is_plain_rope(q);
    l->n_rot = q->op_params[WNW_ROPE_N_ROT];
    l->mode = wnw__bridge_rope_mode(q);
    l->base = wnw__bridge_param(q, WNW_ROPE_BASE);
    l->freq_scale = wnw__bridge_param(q, WNW_ROPE_FREQ_SCALE);
    if (q->src[2])
        memcpy(l->factors, q->src[2]->name, sizeof l->factors);
}

static int refuse(const struct wnw__bridge_layer *l, const char *why)
{
    return wnw__fail(WNW_E_UNSUPPORTED,
                     "layer %d of this model has %s: sessions cannot compute that yet; programs of "
                     "llama.cpp can run it on winnow's backend (docs/use/llama-cpp.md)",
                     (int)l->il, why);
}

/* Whether the engine's attention computes what the node does. */
static int check(const struct wnw__attention_site *p)
{
    const struct wnw__bridge_layer *l = p->of;
    if (p->node->src[0]->ne[3] != 1 || !p->node->src[3])
        return refuse(l, "a part of the cache for each sequence");
    return WNW_OK;
}

static int need_place(struct wnw__drive *d)
{
    if (d->n_site < d->cap_site)
        return WNW_OK;
    const int32_t cap = d->cap_site > 0 ? 2 * d->cap_site : 64;
    struct wnw__attention_site *more = realloc(d->sites, (size_t)cap * sizeof *more);
    if (!more)
        return wnw__fail(WNW_E_NOMEM, "no memory for the layers of a graph");
    d->sites = more;
    d->cap_site = cap;
    return WNW_OK;
}

/* Sets the engine's layer of a site, and which of its attentions it is. */
static void number(const struct wnw__drive *d, struct wnw__attention_site *p)
{
    for (int32_t i = 0; i < d->n_site; i++) {
        const struct wnw__attention_site *other = &d->sites[i];
        if (other->of == p->of) {
            p->il = other->il;
            p->reader = other->reader + 1;
        } else if (p->reader == 0 && other->reader == 0) {
            p->il++;
        }
    }
}

static int add_site(struct wnw__drive *d, const struct ggml_tensor *node, const struct wnw__bridge_node *what)
{
    WNW_TRY(need_place(d));
    struct wnw__attention_site *p = &d->sites[d->n_site];
    const struct wnw__bridge_layer *l = wnw__bridge_tensor_of(node->src[1])->layer;
    *p = (struct wnw__attention_site){.node = node, .of = l, .chain = what->what == WNW_BRIDGE_ATTEND_CHAIN};
    p->layer = (struct wnw__drive_layer){.il = l->il,
                                         .n_head = (int32_t)node->src[0]->ne[2],
                                         .n_head_kv = l->n_head,
                                         .d_k = l->d_k,
                                         .d_v = l->d_v,
                                         .scale = what->cap > 0.0f ? what->scale * what->cap : what->scale,
                                         .cap = what->cap,
                                         .max_bias = what->max_bias,
                                         .sliding = wnw__bridge_is_sliding(d->b, l)};
    if (node->src[4])
        memcpy(p->layer.sinks, node->src[4]->name, sizeof p->layer.sinks);
    WNW_TRY(check(p));
    number(d, p);
    p->n_packed = d->e ? p->layer.n_head_kv / d->e->m->hp.n_head_kv : 1;
    look_at_queries(p);
    d->n_site++;
    return WNW_OK;
}

/* Sets the node that writes the keys of every site that reads them. */
static void find_stores(struct wnw__drive *d, struct ggml_cgraph *graph)
{
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        const struct wnw__bridge_tensor *t =
            wnw__bridge_node_get(d->b, node).what == WNW_BRIDGE_STORE ? wnw__bridge_tensor_of(node) : NULL;
        for (int32_t k = 0; t && !t->is_v && k < d->n_site; k++)
            if (d->sites[k].of == t->layer)
                d->sites[k].store = node;
    }
    for (int32_t k = 0; k < d->n_site; k++) {
        struct wnw__attention_site *p = &d->sites[k];
        p->product = p->store && p->reader == 0 ? wnw__bridge_keys_product(p->store) : NULL;
        p->layer.n_input = p->product ? (int32_t)p->product->src[1]->ne[0] : 0;
    }
}

int wnw__drive_find(struct wnw__drive *d, struct ggml_cgraph *graph)
{
    d->n_site = 0;
    d->found = false;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        const struct wnw__bridge_node what = wnw__bridge_node_get(d->b, node);
        if (what.what == WNW_BRIDGE_ATTEND || what.what == WNW_BRIDGE_ATTEND_CHAIN)
            WNW_TRY(add_site(d, node, &what));
    }
    for (int32_t c = 0; c < d->b->n_cache; c++)
        for (int32_t i = 0; i < d->b->caches[c]->n_layer; i++)
            if (d->b->caches[c]->layers[i]->kind == WNW_BRIDGE_PLAIN)
                return refuse(d->b->caches[c]->layers[i], "a cache with a reader that is not known");
    find_stores(d, graph);
    for (int32_t i = 0; i < d->n_site; i++)
        if (!d->sites[i].store)
            return refuse(d->sites[i].of, "a cache that no operation of the graph writes");
    d->found = true;
    return WNW_OK;
}

/* Whether the attention of a later layer computes as the one whose cache it reads. */
static bool reads_alike(const struct wnw__drive_layer *a, const struct wnw__drive_layer *b)
{
    return a->n_head == b->n_head && a->scale == b->scale && a->q_scale == b->q_scale && a->cap == b->cap &&
           a->max_bias == b->max_bias && strcmp(a->sinks, b->sinks) == 0;
}

static const struct ggml_tensor *input_of(const struct ggml_tensor *mask)
{
    while (!wnw__bridge_is_op(mask, "NONE") && mask->src[0])
        mask = mask->src[0];
    return mask;
}

static bool is_open(const struct ggml_tensor *m, int32_t row, int32_t cell)
{
    const char *at = (const char *)m->data + (size_t)row * m->nb[1];
    return m->type == GGML_TYPE_F16 ? ((const uint16_t *)(const void *)at)[cell] != 0xfc00
                                    : ((const float *)(const void *)at)[cell] != -INFINITY;
}

/* Whether the last row of a graph sees a cell. */
static bool last_sees(const struct wnw__attention_site *p, int64_t cell)
{
    const struct ggml_tensor *m = input_of(p->node->src[3]);
    const int64_t last = wnw__bridge_store_rows(p->store) - 1;
    const bool is_mask = m->type == GGML_TYPE_F16 || m->type == GGML_TYPE_F32;
    return !is_mask || !m->data || cell >= m->ne[0] || last >= m->ne[1] ||
           is_open(m, (int32_t)last, (int32_t)cell);
}

/* Rows of an empty context are in cells that follow each other. A row that does not see the first one has a window; it sees
 * the one half-way between them unless the window is a chunk that has just begun. */
static void look_at_window(const struct wnw__drive *d, const struct wnw__attention_site *p)
{
    struct wnw__drive_layer *l = &d->layers[p->il];
    const int64_t first = d->first_cell[p->il], n = wnw__bridge_store_rows(p->store);
    const int64_t last = d->n_looked + n - 1;
    if (wnw__bridge_store_cell(p->store, n - 1) != first + last || last_sees(p, first))
        return;
    l->sliding = true;
    l->chunked = !last_sees(p, first + last / 2);
}

bool wnw__drive_gives_all(const struct wnw__drive *d, int32_t n_vocab)
{
    return d->n_logits == n_vocab;
}

/* Keeps the layers of the first graph. */
static int keep_layers(struct wnw__drive *d)
{
    const size_t n = (size_t)d->n_site;
    d->layers = malloc(n * sizeof *d->layers);
    d->first_cell = malloc(n * sizeof *d->first_cell);
    if (!d->layers || !d->first_cell)
        return wnw__fail(WNW_E_NOMEM, "no memory for the layers of a graph");
    for (int32_t i = 0; i < d->n_site; i++) {
        const struct wnw__attention_site *p = &d->sites[i];
        if (p->reader == 0) {
            d->first_cell[d->n_layer] = wnw__bridge_store_cell(p->store, 0);
            d->layers[d->n_layer++] = p->layer;
        } else if (!reads_alike(&d->layers[p->il], &p->layer)) {
            return refuse(p->of, "a cache that another layer reads in another way");
        }
        d->layers[p->il].n_reader = p->reader + 1;
    }
    return WNW_OK;
}

int wnw__drive_look(struct wnw__drive *d, struct ggml_cgraph *graph)
{
    const struct ggml_tensor *last = ggml_graph_node(graph, -1);
    if (d->n_site == 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "this model has no layer with a cache of keys and values: nothing can be evicted");
    const int64_t n = wnw__bridge_store_rows(d->sites[0].store);
    if (!d->layers)
        WNW_TRY(keep_layers(d));
    for (int32_t i = 0; i < d->n_site; i++)
        if (d->sites[i].il < d->n_layer)
            look_at_window(d, &d->sites[i]);
    if (n > 1 && last->ne[1] == n)
        d->n_logits = last->ne[0];
    d->n_looked += (int32_t)n;
    return WNW_OK;
}

/* ---- Masks of a batch ---- */

/* Whether rows of the batch see of each other what they see in our attention: of a slice, those up to themselves and
 * within the window. */
static bool sees_alike(const struct wnw__drive *d, const struct wnw__attention_site *p)
{
    const struct ggml_tensor *m = input_of(p->node->src[3]);
    const int32_t n_row = d->e->attend.n_row;
    if (!m->data || (m->type != GGML_TYPE_F16 && m->type != GGML_TYPE_F32) || m->ne[1] < n_row)
        return false;
    for (int32_t j = 0; j < n_row; j++) {
        const int64_t cell = wnw__bridge_store_cell(p->store, j);
        if (cell < 0 || cell >= m->ne[0])
            return false;
        for (int32_t s = 0; s < d->e->attend.n_slice; s++) {
            const struct wnw__attend_slice *slice = &d->e->attend.slice[s];
            const struct wnw__kv_layer *l = &slice->cache->layers[p->il];
            const int32_t k = j - slice->first_row, n_past = slice->n_past;
            for (int32_t t = 0; t < slice->n_row; t++) {
                const bool sees =
                    k >= 0 && k <= t && n_past + k >= wnw__cache_first_seen(slice->cache, l, n_past + t);
                if (is_open(m, slice->first_row + t, (int32_t)cell) != sees)
                    return false;
            }
        }
    }
    return true;
}

int wnw__drive_check_masks(const struct wnw__drive *d)
{
    const struct ggml_tensor *last[2] = {NULL, NULL};
    for (int32_t i = 0; i < d->n_site; i++) {
        const struct wnw__attention_site *p = &d->sites[i];
        const struct ggml_tensor *m = p->node->src[3];
        const bool sliding = d->e->m->hp.swa[p->il];
        if (m == last[sliding])
            continue; /* layers of one kind share it */
        last[sliding] = m;
        if (wnw__bridge_store_rows(p->store) != d->e->attend.n_row)
            return wnw__fail(WNW_E_BACKEND, "libllama cut a batch of %d rows", (int)d->e->attend.n_row);
        if (!sees_alike(d, p))
            return refuse(p->of, "queries that see other tokens than those before them in a window");
    }
    return WNW_OK;
}
