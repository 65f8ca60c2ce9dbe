/* SPDX-License-Identifier: MIT */
#include "bridge/drive/drive.h"

#include "bridge/drive/drive_impl.h"

#include <stdlib.h>
#include <string.h>

enum { KEYS, VALUES, QUERIES, RESULTS, N_ROWS };

/* ---- Contexts to come ---- */

static _Thread_local bool expected;

void wnw__drive_expect(bool driven)
{
    expected = driven;
}

bool wnw__drive_expected(void)
{
    return expected;
}

/* ---- A graph of the engine's batch ---- */

static int need_records(struct wnw__drive *d)
{
    int32_t n = 0;
    for (int32_t i = 0; i < d->n_site; i++)
        for (int point = 0; point < WNW_N_POINTS; point++)
            n += d->e->stages[d->sites[i].il * WNW_N_POINTS + point];
    d->n_record = 0;
    if (n <= d->cap_record)
        return WNW_OK;
    struct wnw__record_op *more = malloc((size_t)n * sizeof *more);
    if (!more)
        return wnw__fail(WNW_E_NOMEM, "no memory for recorders of %d layers", (int)d->n_site);
    free(d->records);
    d->records = more;
    d->cap_record = n;
    return WNW_OK;
}

int wnw__drive_check(const struct wnw__drive *d)
{
    const struct wnw__hparams *hp = &d->e->m->hp;
    for (int32_t il = 0; il < d->n_layer; il++) {
        const bool shown = d->layers[il].queries && d->layers[il].d_k == hp->n_embd_head;
        const uint8_t *n = d->e->stages + (int64_t)il * WNW_N_POINTS;
        if (n[WNW_POINT_QUERIES] > 0 && (!shown || hp->rope_unknown))
            return wnw__fail(WNW_E_UNSUPPORTED,
                             "the policy needs queries before plain RoPE, which libllama's graph of this "
                             "model does not show "
                             "for layer %d",
                             (int)d->layers[il].il);
        if (n[WNW_POINT_INPUT] > 0 && d->layers[il].n_input != hp->n_embd)
            return wnw__fail(WNW_E_UNSUPPORTED,
                             "what the attention of layer %d reads is needed, and libllama's graph of this "
                             "model does not show "
                             "it: its keys are not made by one product with it",
                             (int)d->layers[il].il);
        if (n[WNW_POINT_STATE] > 0)
            return wnw__fail(WNW_E_UNSUPPORTED,
                             "hidden states after layers are not observed in libllama's graphs");
    }
    return WNW_OK;
}

static int begin(struct wnw__drive *d, struct ggml_cgraph *graph)
{
    if (!d->b->last.again || !d->found)
        WNW_TRY(wnw__drive_find(d, graph));
    if (!d->e)
        return wnw__drive_look(d, graph);
    int32_t n = 0;
    for (int32_t i = 0; i < d->n_site; i++)
        n += d->sites[i].reader == 0;
    if (n != d->n_layer)
        return wnw__fail(WNW_E_BACKEND, "libllama's graph has %d layers with a cache, and had %d", (int)n,
                         (int)d->n_layer);
    WNW_TRY(wnw__drive_check_masks(d));
    return need_records(d);
}

/* Whether a recorder of the engine reads what attentions read. */
static bool records_inputs(const struct wnw__drive *d)
{
    for (int32_t il = 0; d->e && il < d->n_layer; il++)
        if (d->e->stages[il * WNW_N_POINTS + WNW_POINT_INPUT] > 0)
            return true;
    return false;
}

int wnw__drive_begin(struct wnw__drive *d, struct ggml_cgraph *graph)
{
    d->b->drive_inputs = records_inputs(d);
    d->rc = begin(d, graph);
    return d->rc == WNW_OK && !d->e ? WNW_E_CANCELLED : d->rc;
}

int wnw__drive_tensors(const struct wnw__drive *d)
{
    enum { PER_LAYER = 24 };
    return d->n_site * PER_LAYER + d->n_record + d->cap_record;
}

/* Copies a tensor of three dimensions to one without gaps. Rows of the other may be longer, and end with zeros then, or
 * shorter. */
static void copy_node(struct ggml_tensor *dst, int ith, int nth, void *user)
{
    const struct ggml_tensor *src = dst->src[0];
    const int64_t n = src->ne[1] * src->ne[2];
    const size_t to = (size_t)dst->ne[0], both = (size_t)(src->ne[0] < dst->ne[0] ? src->ne[0] : dst->ne[0]);
    (void)user;
    for (int64_t i = n * ith / nth; i < n * (ith + 1) / nth; i++) {
        float *row = (float *)dst->data + (size_t)i * to;
        memcpy(row,
               (const char *)src->data + (size_t)(i % src->ne[1]) * src->nb[1] +
                   (size_t)(i / src->ne[1]) * src->nb[2],
               both * sizeof *row);
        memset(row + both, 0, (to - both) * sizeof *row);
    }
}

/* A layer may have m times the engine's KV heads. Then m heads in a row are one head of the engine's, and an engine row has
 * their keys one after the other. A query is padded with zeros at the places of the other heads, so that only its own keys
 * count. Of the result it takes the part at its own head's values. dst: the longer or the shorter rows of query heads; user: the
 * place. */
static void copy_part(struct ggml_tensor *dst, int ith, int nth, void *user)
{
    const struct wnw__attention_site *p = user;
    const struct ggml_tensor *src = dst->src[0];
    const bool packs = dst->ne[0] > src->ne[0], by_row = !packs && p->chain;
    const size_t to = (size_t)dst->ne[0], d = (size_t)(packs ? src->ne[0] : dst->ne[0]);
    const int64_t n = src->ne[1] * src->ne[2], group = p->layer.n_head / p->layer.n_head_kv;
    for (int64_t i = n * ith / nth; i < n * (ith + 1) / nth; i++) {
        const int64_t a = i % src->ne[1], b = i / src->ne[1];
        const size_t at = (size_t)((by_row ? b : a) / group % p->n_packed) * d;
        float *row = (float *)dst->data + (size_t)i * to;
        const float *from =
            (const void *)((const char *)src->data + (size_t)a * src->nb[1] + (size_t)b * src->nb[2]);
        if (packs)
            memset(row, 0, to * sizeof *row);
        memcpy(packs ? row + at : row, packs ? from : from + at, d * sizeof *row);
    }
}

static void add(struct ggml_cgraph *graph, struct ggml_tensor *node, void *data)
{
    node->data = data;
    node->flags |= GGML_TENSOR_FLAG_COMPUTE;
    ggml_graph_add_node(graph, node);
}

/* Copies rows to rows of d elements; those of query heads where p is not NULL. */
static void add_copy(struct ggml_context *ctx, struct ggml_cgraph *graph, const struct wnw__attention_site *p,
                     struct ggml_tensor *src, int64_t d, void *to)
{
    const bool part = p && p->n_packed > 1;
    add(graph,
        ggml_custom_4d(ctx, GGML_TYPE_F32, d, src->ne[1], src->ne[2], 1, &src, 1,
                       part ? copy_part : copy_node, GGML_N_TASKS_MAX, (void *)(uintptr_t)p),
        to);
}

/* Memory as a tensor [d, n, n_row]. */
static struct ggml_tensor *rows_at(struct ggml_context *ctx, void *data, int64_t d, int64_t n, int64_t n_row)
{
    struct ggml_tensor *t = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, d, n, n_row);
    t->data = data;
    return t;
}

static void add_records(struct wnw__drive *d, struct ggml_context *ctx, struct ggml_cgraph *graph,
                        const struct wnw__attention_site *p, enum wnw__point point, struct ggml_tensor *q,
                        struct ggml_tensor *out)
{
    const int n = d->e->stages[p->il * WNW_N_POINTS + (int32_t)point];
    for (int stage = 0; stage < n; stage++) {
        struct wnw__record_op *op = &d->records[d->n_record++];
        *op = (struct wnw__record_op){
            .e = d->e, .point = point, .il = p->il, .stage = stage, .reader = p->reader};
        add(graph, wnw__graph_record(ctx, op, q, out ? out : q, q), d->rows[QUERIES]);
    }
}

static void add_attention(struct wnw__drive *d, struct ggml_context *ctx, struct ggml_cgraph *graph,
                          const struct wnw__attention_site *p, struct ggml_tensor *node)
{
    const struct wnw__hparams *hp = &d->e->m->hp;
    const int64_t size = hp->n_embd_head;
    struct wnw__attend_op *op = &d->e->ops[p->il];
    struct ggml_tensor *q = ggml_permute(ctx, node->src[0], 0, 2, 1, 3); /* [d, n_head, n_row] */
    const int64_t n_row = q->ne[2];
    const bool chain =
        wnw__bridge_node_get(d->b, node).what == WNW_BRIDGE_ATTEND_CHAIN; /* [d, n_row, n_head] */
    const bool direct = p->layer.d_v == size && p->n_packed == 1 && !chain;
    void *q_at = q->data, *out_at = direct ? node->data : d->rows[RESULTS];
    if (!ggml_is_contiguous(q) || q->ne[0] != size)
        add_copy(ctx, graph, p, q, size, q_at = d->rows[QUERIES]);
    q = rows_at(ctx, q_at, size, hp->n_head, n_row);
    struct ggml_tensor *k = rows_at(ctx, d->rows[KEYS], size, hp->n_head_kv, n_row);
    struct ggml_tensor *v = rows_at(ctx, d->rows[VALUES], size, hp->n_head_kv, n_row);
    struct ggml_tensor *out =
        p->reader > 0 ? wnw__attend_again(ctx, op, q) : wnw__attend_own(ctx, op, q, k, v);
    if (p->reader == 0 && wnw__bridge_is_op(out->src[1], "CUSTOM"))
        add(graph, out->src[1], out_at); /* stores rows; its own result is nothing */
    add(graph, out, out_at);
    if (d->e->masks) {
        out = wnw__attend_mask(ctx, op, out);
        add(graph, out, out_at);
    }
    add_records(d, ctx, graph, p, WNW_POINT_ATTENTION, q, out);
    if (out_at == node->data)
        return;
    out = rows_at(ctx, out_at, size, hp->n_head, n_row);
    add_copy(ctx, graph, p, chain ? ggml_permute(ctx, out, 0, 2, 1, 3) : out, p->layer.d_v, node->data);
}

/* Rows that a store writes become those of the engine: heads of d_k, or d_v, elements. MLA's values are part of its keys. */
static void add_rows(struct wnw__drive *d, struct ggml_context *ctx, struct ggml_cgraph *graph,
                     const struct wnw__attention_site *p, const struct ggml_tensor *node)
{
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
    const struct ggml_tensor *src = node->src[0];
    const int64_t size = d->e->m->hp.n_embd_head;
    const int32_t width = (t->is_v ? p->layer.d_v : p->layer.d_k) * p->n_packed;
    const bool elements = src->ne[0] == 1 && t->n_embd > 1; /* transposed values are stored one by one */
    const int64_t n_row = wnw__bridge_store_rows(node);
    for (int what = t->is_v ? VALUES : KEYS; what == KEYS || what == VALUES; what++) {
        struct ggml_tensor *heads = rows_at(ctx, src->data, what == KEYS ? width : p->layer.d_v * p->n_packed,
                                            p->layer.n_head_kv / p->n_packed, n_row);
        heads->nb[1] = (size_t)width * sizeof(float);
        heads->nb[2] = elements ? (size_t)t->n_embd * sizeof(float) : src->nb[1];
        add_copy(ctx, graph, NULL, heads, size, d->rows[what]);
        if (!p->of->v_in_keys)
            return;
    }
}

/* The site of an attention, or the first that reads a layer. */
static const struct wnw__attention_site *place_of(const struct wnw__drive *d, const struct ggml_tensor *node,
                                                  const struct wnw__bridge_layer *l)
{
    for (int32_t i = 0; i < d->n_site; i++)
        if (d->sites[i].node == node || d->sites[i].of == l)
            return &d->sites[i];
    return NULL;
}

void wnw__drive_before(struct wnw__drive *d, struct ggml_context *ctx, struct ggml_cgraph *graph,
                       const struct ggml_tensor *node)
{
    const bool is_point = node->op == GGML_OP_ROPE || node->op == GGML_OP_MUL_MAT; /* most are not */
    for (int32_t i = 0; is_point && i < d->n_site; i++) {
        const struct wnw__attention_site *p = &d->sites[i];
        if (p->rope == node)
            add_records(d, ctx, graph, p, WNW_POINT_QUERIES, node->src[0], NULL);
        if (p->product == node) {
            struct ggml_tensor *x = node->src[1];
            add_records(d, ctx, graph, p, WNW_POINT_INPUT, rows_at(ctx, x->data, x->ne[0], 1, x->ne[1]),
                        NULL);
        }
    }
}

bool wnw__drive_add(struct wnw__drive *d, struct ggml_context *ctx, struct ggml_cgraph *graph,
                    struct ggml_tensor *node)
{
    const struct wnw__bridge_node what = wnw__bridge_node_get(d->b, node);
    if (what.what == WNW_BRIDGE_STORE) {
        const struct wnw__attention_site *p = place_of(d, NULL, wnw__bridge_tensor_of(node)->layer);
        if (p)
            add_rows(d, ctx, graph, p, node);
        return true;
    }
    if (what.what == WNW_BRIDGE_ATTEND || what.what == WNW_BRIDGE_ATTEND_CHAIN) {
        add_attention(d, ctx, graph, place_of(d, node, NULL), node);
        return true;
    }
    return false;
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
    for (int i = 0; i < N_ROWS; i++)
        free(d->rows[i]);
    free(d->layers);
    free(d->first_cell);
    free(d->sites);
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
    d->rows[RESULTS] = malloc(n_row * (size_t)hp->n_head * size);
    if (!d->rows[KEYS] || !d->rows[VALUES] || !d->rows[QUERIES] || !d->rows[RESULTS])
        return wnw__fail(WNW_E_NOMEM, "no memory for the rows of %zu tokens", n_row);
    d->e = e;
    d->found = false;
    return WNW_OK;
}

int wnw__drive_status(const struct wnw__drive *d)
{
    return d->rc;
}
