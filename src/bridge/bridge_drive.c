/* SPDX-License-Identifier: MIT */
#include "bridge/bridge_drive.h"

#include "bridge/bridge_watch.h"
#include "forward/engine_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An attention of the graph at hand, and what was found above it. */
struct place {
    struct wnw__drive_layer layer;
    const struct wnw__bridge_layer *of;
    const struct ggml_tensor *node, *rope; /* rope: the node that turns queries; NULL = nothing turns them */
};

struct wnw__drive {
    struct wnw__bridge_backend *b;
    wnw_engine *e; /* NULL: graphs are looked at */
    int rc;
    struct wnw__drive_layer *layers; /* [n_layer] of the graph that was looked at */
    int32_t n_layer;
    struct place *places; /* [n_place] of the graph at hand, in its order */
    int32_t n_place, cap_place;
    float *rows[3]; /* keys, values and queries of the layer at hand, [n_row] */
    struct wnw__record_op *records;
    int32_t n_record, cap_record;
};

enum { KEYS, VALUES, QUERIES };

/* ---- What a graph shows ---- */

/* What a tensor is another shape of. */
static const struct ggml_tensor *behind_views(const struct ggml_tensor *t)
{
    while (t && !wnw__bridge_is_op(t, "NONE") && wnw__bridge_is_view(t) && t->src[0])
        t = t->src[0];
    return t;
}

/* Whether the rotation is that of ggml_rope_ext with one frequency per pair and no mixing of scales. */
static bool is_plain(const struct ggml_tensor *rope)
{
    const int32_t mode = rope->op_params[2];
    return wnw__bridge_param(rope, 7) == 0.0f && wnw__bridge_param(rope, 8) == 1.0f &&
           (mode == GGML_ROPE_TYPE_NORMAL || mode == GGML_ROPE_TYPE_NEOX);
}

/* Follows the queries of an attention up to what is turned: their producer, a factor and RoPE may stand there. */
static void look_at_queries(struct place *p)
{
    struct wnw__drive_layer *l = &p->layer;
    const struct ggml_tensor *q = behind_views(p->node->src[0]);
    l->q_scale = 1.0f;
    if (wnw__bridge_is_op(q, "SCALE") && wnw__bridge_param(q, 1) == 0.0f) {
        const struct ggml_tensor *before = behind_views(q->src[0]);
        if (wnw__bridge_is_op(before, "ROPE")) {
            l->q_scale = wnw__bridge_param(q, 0);
            q = before;
        }
    }
    if (!wnw__bridge_is_op(q, "ROPE"))
        return;
    p->rope = q;
    l->queries = l->rotates = true;
    l->plain = is_plain(q);
    l->n_rot = q->op_params[1];
    l->mode = q->op_params[2];
    l->base = wnw__bridge_param(q, 5);
    l->freq_scale = wnw__bridge_param(q, 6);
    if (q->src[2])
        memcpy(l->factors, q->src[2]->name, sizeof l->factors);
}

static int refuse(const struct wnw__bridge_layer *l, const char *why)
{
    return wnw__fail(WNW_E_UNSUPPORTED,
                     "layer %d of this model has %s: sessions cannot compute that yet; programs of "
                     "llama.cpp can run it on winnow's backend (docs/backend.md)",
                     (int)l->il, why);
}

/* Whether the engine's attention computes what the node does. */
static int check(const struct place *p, const struct wnw__bridge_node *what)
{
    const struct wnw__bridge_layer *l = p->of;
    if (l->v_in_keys)
        return refuse(l, "values that are part of the keys (MLA)");
    if (l->d_k != l->d_v || l->d_k % 8 != 0)
        return refuse(l, "keys and values of two sizes, or of no multiple of 8");
    if (what->what != WNW_BRIDGE_ATTEND || l->transposed)
        return refuse(l, "no flash attention");
    if (what->cap != 0.0f)
        return refuse(l, "a cap on scores");
    if (what->max_bias != 0.0f)
        return refuse(l, "ALiBi in place of RoPE");
    if (p->node->src[4])
        return refuse(l, "attention sinks");
    if (p->node->src[0]->ne[3] != 1 || !p->node->src[3])
        return refuse(l, "a part of the cache for each sequence");
    return WNW_OK;
}

static int add_place(struct wnw__drive *d, const struct ggml_tensor *node,
                     const struct wnw__bridge_node *what)
{
    if (d->n_place == d->cap_place) {
        const int32_t cap = d->cap_place > 0 ? 2 * d->cap_place : 64;
        struct place *more = realloc(d->places, (size_t)cap * sizeof *more);
        if (!more)
            return wnw__fail(WNW_E_NOMEM, "no memory for the layers of a graph");
        d->places = more;
        d->cap_place = cap;
    }
    struct place *p = &d->places[d->n_place];
    const struct wnw__bridge_layer *l = wnw__bridge_tensor_of(node->src[1])->layer;
    *p = (struct place){.node = node, .of = l};
    p->layer = (struct wnw__drive_layer){.il = l->il,
                                         .n_head = (int32_t)node->src[0]->ne[2],
                                         .n_head_kv = l->n_head,
                                         .d = l->d_k,
                                         .scale = what->scale,
                                         .sliding = wnw__bridge_is_sliding(d->b, l)};
    for (int32_t i = 0; i < d->n_place; i++)
        if (d->places[i].of == l)
            return refuse(l, "a cache that other layers read as well");
    WNW_TRY(check(p, what));
    look_at_queries(p);
    d->n_place++;
    return WNW_OK;
}

static int find_places(struct wnw__drive *d, struct ggml_cgraph *graph)
{
    d->n_place = 0;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        const struct wnw__bridge_node what = wnw__bridge_node_get(node);
        if (what.what == WNW_BRIDGE_ATTEND || what.what == WNW_BRIDGE_ATTEND_CHAIN)
            WNW_TRY(add_place(d, node, &what));
    }
    for (int32_t c = 0; c < d->b->n_cache; c++)
        for (int32_t i = 0; i < d->b->caches[c]->n_layer; i++)
            if (d->b->caches[c]->layers[i]->kind == WNW_BRIDGE_PLAIN)
                return refuse(d->b->caches[c]->layers[i], "a cache with a reader that is not known");
    return WNW_OK;
}

static int look_at(struct wnw__drive *d)
{
    if (d->n_place == 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "this model has no layer with a cache of keys and values: nothing can be evicted");
    struct wnw__drive_layer *layers = malloc((size_t)d->n_place * sizeof *layers);
    if (!layers)
        return wnw__fail(WNW_E_NOMEM, "no memory for the layers of a graph");
    for (int32_t i = 0; i < d->n_place; i++)
        layers[i] = d->places[i].layer;
    free(d->layers);
    d->layers = layers;
    d->n_layer = d->n_place;
    return WNW_OK;
}

/* ---- Masks ---- */

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

/* Whether rows of the batch see of each other what they see in our attention: of a slice, those up to themselves and
 * within the window. Row i of the batch is in cell i, because nothing else is in libllama's cells. */
static bool sees_alike(const struct wnw__drive *d, const struct place *p, int32_t il)
{
    const struct ggml_tensor *m = input_of(p->node->src[3]);
    const int32_t n_row = d->e->attend.n_row;
    if (!m->data || (m->type != GGML_TYPE_F16 && m->type != GGML_TYPE_F32) || m->ne[0] < n_row ||
        m->ne[1] < n_row)
        return false;
    for (int32_t s = 0; s < d->e->attend.n_slice; s++) {
        const struct wnw__attend_slice *slice = &d->e->attend.slice[s];
        const int32_t n_swa = slice->cache->layers[il].n_swa;
        for (int32_t t = 0; t < slice->n_row; t++)
            for (int32_t j = 0; j < n_row; j++) {
                const int32_t k = j - slice->first_row;
                const bool sees = k >= 0 && k <= t && (n_swa == 0 || t - k < n_swa);
                if (is_open(m, slice->first_row + t, j) != sees)
                    return false;
            }
    }
    return true;
}

static int check_masks(const struct wnw__drive *d)
{
    const struct ggml_tensor *last[2] = {NULL, NULL};
    for (int32_t il = 0; il < d->n_place; il++) {
        const struct place *p = &d->places[il];
        const struct ggml_tensor *m = p->node->src[3];
        if (m == last[p->layer.sliding])
            continue; /* layers of one kind share it */
        last[p->layer.sliding] = m;
        if (!sees_alike(d, p, il))
            return refuse(p->of, "queries that see other tokens than those before them in a window");
    }
    return WNW_OK;
}

/* ---- A graph of the engine's batch ---- */

static int need_records(struct wnw__drive *d)
{
    int32_t n = 0;
    for (int32_t i = 0; i < d->n_place * WNW_N_POINTS; i++)
        n += d->e->stages[i];
    d->n_record = 0;
    if (n <= d->cap_record)
        return WNW_OK;
    struct wnw__record_op *more = malloc((size_t)n * sizeof *more);
    if (!more)
        return wnw__fail(WNW_E_NOMEM, "no memory for recorders of %d layers", (int)d->n_place);
    free(d->records);
    d->records = more;
    d->cap_record = n;
    return WNW_OK;
}

static int check_points(const struct wnw__drive *d)
{
    for (int32_t il = 0; il < d->n_place; il++) {
        const uint8_t *n = d->e->stages + (int64_t)il * WNW_N_POINTS;
        if (n[WNW_POINT_QUERIES] > 0 && (!d->places[il].layer.queries || d->e->m->hp.rope_unknown))
            return wnw__fail(WNW_E_UNSUPPORTED,
                             "the policy needs queries before plain RoPE, which libllama's graph of this "
                             "model does not show "
                             "for layer %d",
                             (int)d->places[il].layer.il);
        if (n[WNW_POINT_STATE] > 0)
            return wnw__fail(WNW_E_UNSUPPORTED,
                             "the policy needs hidden states, which are not observed in libllama's graphs");
    }
    return WNW_OK;
}

static int begin(struct wnw__drive *d, struct ggml_cgraph *graph)
{
    WNW_TRY(find_places(d, graph));
    if (!d->e)
        return look_at(d);
    if (d->n_place != d->n_layer)
        return wnw__fail(WNW_E_BACKEND, "libllama's graph has %d layers with a cache, and had %d",
                         (int)d->n_place, (int)d->n_layer);
    WNW_TRY(check_points(d));
    WNW_TRY(check_masks(d));
    return need_records(d);
}

int wnw__drive_begin(struct wnw__drive *d, struct ggml_cgraph *graph)
{
    d->rc = begin(d, graph);
    return d->rc == WNW_OK && !d->e ? WNW_E_CANCELLED : d->rc;
}

int wnw__drive_tensors(const struct wnw__drive *d)
{
    enum { PER_LAYER = 16 };
    return d->n_place * PER_LAYER + d->n_record + d->cap_record;
}

/* Copies a tensor of three dimensions to one without gaps. */
static void copy_node(struct ggml_tensor *dst, int ith, int nth, void *user)
{
    const struct ggml_tensor *src = dst->src[0];
    const int64_t n = src->ne[1] * src->ne[2];
    (void)user;
    for (int64_t i = n * ith / nth; i < n * (ith + 1) / nth; i++)
        memcpy((char *)dst->data + (size_t)i * (size_t)src->ne[0] * sizeof(float),
               (const char *)src->data + (size_t)(i % src->ne[1]) * src->nb[1] +
                   (size_t)(i / src->ne[1]) * src->nb[2],
               (size_t)src->ne[0] * sizeof(float));
}

static void add(struct ggml_cgraph *graph, struct ggml_tensor *node, void *data)
{
    node->data = data;
    node->flags |= GGML_TENSOR_FLAG_COMPUTE;
    ggml_graph_add_node(graph, node);
}

static void add_copy(struct ggml_context *ctx, struct ggml_cgraph *graph, struct ggml_tensor *src, float *to)
{
    add(graph,
        ggml_custom_4d(ctx, GGML_TYPE_F32, src->ne[0], src->ne[1], src->ne[2], 1, &src, 1, copy_node,
                       GGML_N_TASKS_MAX, NULL),
        to);
}

/* Memory as a tensor [d, n, n_row]. */
static struct ggml_tensor *rows_at(struct ggml_context *ctx, void *data, int64_t d, int64_t n, int64_t n_row)
{
    struct ggml_tensor *t = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, d, n, n_row);
    t->data = data;
    return t;
}

static void add_records(struct wnw__drive *d, struct ggml_context *ctx, struct ggml_cgraph *graph, int32_t il,
                        enum wnw__point point, struct ggml_tensor *q, struct ggml_tensor *out)
{
    const int n = d->e->stages[il * WNW_N_POINTS + (int32_t)point];
    for (int stage = 0; stage < n; stage++) {
        struct wnw__record_op *op = &d->records[d->n_record++];
        *op = (struct wnw__record_op){.e = d->e, .point = point, .il = il, .stage = stage};
        add(graph, wnw__graph_record(ctx, op, q, out ? out : q, q), d->rows[QUERIES]);
    }
}

static void add_attention(struct wnw__drive *d, struct ggml_context *ctx, struct ggml_cgraph *graph,
                          int32_t il, struct ggml_tensor *node)
{
    const struct wnw__drive_layer *l = &d->places[il].layer;
    struct ggml_tensor *q = ggml_permute(ctx, node->src[0], 0, 2, 1, 3); /* [d, n_head, n_row] */
    const int64_t n_row = q->ne[2];
    if (ggml_is_contiguous(q)) {
        q = rows_at(ctx, q->data, l->d, l->n_head, n_row);
    } else {
        add_copy(ctx, graph, q, d->rows[QUERIES]);
        q = rows_at(ctx, d->rows[QUERIES], l->d, l->n_head, n_row);
    }
    struct ggml_tensor *k = rows_at(ctx, d->rows[KEYS], l->d, l->n_head_kv, n_row);
    struct ggml_tensor *v = rows_at(ctx, d->rows[VALUES], l->d, l->n_head_kv, n_row);
    struct ggml_tensor *out = wnw__attend_own(ctx, &d->e->ops[il], q, k, v);
    if (wnw__bridge_is_op(out->src[1], "CUSTOM"))
        add(graph, out->src[1], node->data); /* stores rows; its own result is nothing */
    add(graph, out, node->data);
    if (d->e->masks) {
        out = wnw__attend_mask(ctx, &d->e->ops[il], out);
        add(graph, out, node->data);
    }
    add_records(d, ctx, graph, il, WNW_POINT_ATTENTION, q, out);
}

/* The place whose cache a store writes. */
static int32_t place_of(const struct wnw__drive *d, const struct wnw__bridge_layer *l)
{
    int32_t i = 0;
    while (i < d->n_place && d->places[i].of != l)
        i++;
    return i;
}

bool wnw__drive_add(struct wnw__drive *d, struct ggml_context *ctx, struct ggml_cgraph *graph,
                    struct ggml_tensor *node)
{
    const struct wnw__bridge_node what = wnw__bridge_node_get(node);
    if (what.what == WNW_BRIDGE_STORE) {
        const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
        if (place_of(d, t->layer) < d->n_place)
            add_copy(ctx, graph, node->src[0], d->rows[t->is_v ? VALUES : KEYS]);
        return true;
    }
    if (what.what == WNW_BRIDGE_ATTEND) {
        add_attention(d, ctx, graph, place_of(d, wnw__bridge_tensor_of(node->src[1])->layer), node);
        return true;
    }
    for (int32_t il = 0; il < d->n_place && wnw__bridge_is_op(node, "ROPE"); il++)
        if (d->places[il].rope == node)
            add_records(d, ctx, graph, il, WNW_POINT_QUERIES, node->src[0], NULL);
    return false; /* RoPE itself runs behind them */
}

/* ---- A driven context ---- */

int wnw__drive_new(struct wnw__drive **out, wnw_bridge *of)
{
    struct wnw__drive *d = *out = calloc(1, sizeof *d);
    if (!d)
        return wnw__fail(WNW_E_NOMEM, "no memory to drive a context of libllama");
    d->b = (struct wnw__bridge_backend *)(void *)of;
    d->b->drive = d;
    return WNW_OK;
}

void wnw__drive_free(struct wnw__drive *d)
{
    if (!d)
        return;
    for (int i = 0; i < 3; i++)
        free(d->rows[i]);
    free(d->layers);
    free(d->places);
    free(d->records);
    free(d);
}

int wnw__drive_layers(const struct wnw__drive *d, const struct wnw__drive_layer **layers, int32_t *n)
{
    *layers = d->layers;
    *n = d->n_layer;
    return d->n_layer > 0 ? WNW_OK : wnw__fail(WNW_E_BACKEND, "libllama ran no graph to look at");
}

int wnw__drive_set_engine(struct wnw__drive *d, wnw_engine *e)
{
    const struct wnw__hparams *hp = &e->m->hp;
    const size_t n_row = (size_t)e->params.n_ubatch, size = (size_t)hp->n_embd_head * sizeof(float);
    d->rows[KEYS] = malloc(n_row * (size_t)hp->n_head_kv * size);
    d->rows[VALUES] = malloc(n_row * (size_t)hp->n_head_kv * size);
    d->rows[QUERIES] = malloc(n_row * (size_t)hp->n_head * size);
    if (!d->rows[KEYS] || !d->rows[VALUES] || !d->rows[QUERIES])
        return wnw__fail(WNW_E_NOMEM, "no memory for the rows of %zu tokens", n_row);
    d->e = e;
    return WNW_OK;
}

int wnw__drive_status(const struct wnw__drive *d)
{
    return d->rc;
}

void wnw__drive_set_n_threads(wnw_bridge *of, int32_t n)
{
    struct ggml_backend backend = {.context = of};
    wnw__bridge_set_n_threads(&backend, n);
}
