/* SPDX-License-Identifier: MIT */
/*
 * Our graph on X: libllama's nodes, with other ones in place of stores to ragged layers and of attentions over them.
 *
 * A store becomes SET_ROWS to the rows of its cells in every head, for keys, values and the rows' numbers. The mask of an
 * attention is [n_kv, T]; turned around once per graph and with a row 0 that hides everything it is M [T, n_kv + 1]. So the
 * mask of a head is the rows of M that its rows' numbers name. Neighbouring heads of one capacity are one attention of X, with
 * the heads in dimension 3.
 *
 * X's attention does not say what each entry receives. Where a policy wants to know, X computes it once more, head by head and for some
 * queries at a time: products, softmax, sums.
 *
 * Numbers that change with every graph are uploaded in one piece (`packed`).
 */
#include "base/random.h"
#include "bridge/wrap/wrap.h"

#include <math.h>
#include <stdlib.h>

enum where { KEPT, SCRATCH, PACKED, SUMS, N_WHERE };

/* A tensor that has no memory yet. */
struct tensor_at {
    struct ggml_tensor *t; /* a view, where where is N_WHERE */
    enum where where;
    size_t at;
};

/* A ragged layer in this graph. */
struct on_x {
    struct wnw__bridge_layer *l;
    struct ggml_tensor *k, *v, *number; /* of all rows; NULL: none yet */
    struct ggml_tensor *rows, *cells;   /* what is stored: [n * n_head] rows, and their numbers */
    int32_t *host_rows;
    int64_t n; /* tokens that are stored */
};

/* A mask that was turned. */
struct turned {
    const struct ggml_tensor *mask;
    int64_t stream, n_kv, n_row;
    struct ggml_tensor *m;
};

/* Sums over some queries of the attention that rows of a head receive. */
struct summed {
    struct wnw__bridge_layer *l;
    int32_t head; /* of all streams */
    int64_t off, cap;
    const struct ggml_tensor *t; /* [cap] of each query head */
};

/* The graph that was made last. libllama computes one for many tokens, and as long as no rows move ours is the same: only what is uploaded is
 * another one. */
struct wnw__wrap_made {
    struct ggml_cgraph *graph;
    struct ggml_tensor *hidden;
    struct on_x *layers; /* [n_layer] with the tensors of what is stored */
    size_t packed;       /* bytes that are uploaded */
};

struct build {
    struct wnw__wrap_run *r;
    struct wnw__wrap_look *look;
    uint64_t key;
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct tensor_at *tensors;
    int32_t n_tensor;
    size_t used[N_WHERE], most[N_WHERE];
    struct on_x *layers;
    int32_t n_layer;
    struct turned *turned;
    int32_t n_turned;
    struct summed *summed;
    int32_t n_summed;
    struct ggml_tensor *hidden;      /* [n_row] -inf */
    int64_t most_rows;               /* of a graph's masks */
    uint8_t *packed;                 /* what is uploaded */
    const struct ggml_tensor *index; /* whose numbers `cells` are */
    int64_t *cells;
};

/* ---- Before a graph is made: entries for the cells that it writes ---- */

static struct on_x *layer_on_x(struct build *b, struct wnw__bridge_layer *l)
{
    for (int32_t i = 0; i < b->n_layer; i++)
        if (b->layers[i].l == l)
            return &b->layers[i];
    b->layers[b->n_layer] = (struct on_x){.l = l};
    return &b->layers[b->n_layer++];
}

static int read_cells(struct build *b, const struct ggml_tensor *index)
{
    if (index == b->index)
        return WNW_OK;
    free(b->cells);
    b->cells = NULL;
    b->index = NULL;
    WNW_TRY(wnw__wrap_cells(&b->cells, b->r->w, index));
    b->index = index;
    return WNW_OK;
}

/* Makes entries for a store of keys. */
static int place_store(struct build *b, const struct wnw__wrap_store *store)
{
    struct wnw__bridge_layer *l = store->t->layer;
    const int64_t n = store->node->src[0]->ne[1], all = (int64_t)l->k.n_stream * l->k.n_cell;
    struct on_x *on = layer_on_x(b, l);
    int32_t from = l->k.n_stream, to = 0;
    if (on->host_rows)
        return wnw__fail(WNW_E_UNSUPPORTED, "a graph writes keys of layer %d twice", (int)l->il);
    WNW_TRY(read_cells(b, store->node->src[1]));
    for (int64_t i = 0; i < n; i++) {
        if (b->cells[i] < 0 || b->cells[i] >= all)
            return wnw__fail(WNW_E_RANGE, "a graph writes cell %lld of %lld", (long long)b->cells[i],
                             (long long)all);
        const int32_t stream = (int32_t)(b->cells[i] / l->k.n_cell);
        from = stream < from ? stream : from;
        to = stream >= to ? stream + 1 : to;
    }
    WNW_TRY(wnw__wrap_rows_settle(l, from, to, (int32_t)n));
    on->host_rows = malloc(((size_t)n * (size_t)l->n_head + 1) * sizeof *on->host_rows);
    if (!on->host_rows)
        return wnw__fail(WNW_E_NOMEM, "no memory for the rows of %lld tokens", (long long)n);
    for (int64_t i = 0; i < n; i++)
        WNW_TRY(wnw__wrap_rows_place(l, (int32_t)(b->cells[i] / l->k.n_cell),
                                     (int32_t)(b->cells[i] % l->k.n_cell), on->host_rows + i * l->n_head));
    on->n = n;
    return WNW_OK;
}

static int prepare(struct build *b)
{
    struct wnw__wrap_look *look = b->look;
    for (int32_t i = 0; i < look->n_flash; i++) {
        const struct wnw__bridge_flash *f = &look->flash[i];
        if (!f->layer->wrap->ragged)
            continue;
        for (int32_t s = 0; s < f->k->ne[3]; s++)
            wnw__wrap_rows_cut(f->layer, wnw__bridge_first_stream(f->k) + s, (int32_t)f->k->ne[1]);
        b->most_rows = f->q->ne[1] > b->most_rows ? f->q->ne[1] : b->most_rows;
    }
    for (int32_t i = 0; i < look->n_store; i++)
        if (look->stores[i].t->layer->wrap->ragged && !look->stores[i].t->is_v)
            WNW_TRY(place_store(b, &look->stores[i]));
    for (int32_t i = 0; i < look->n_flash; i++) {
        struct wnw__bridge_layer *l = look->flash[i].layer;
        if (l->wrap->ragged && !layer_on_x(b, l)->host_rows)
            WNW_TRY(wnw__wrap_rows_settle(l, 0, 0, 0));
    }
    return WNW_OK;
}

/* ---- Tensors ---- */

static void keep(struct build *b, struct ggml_tensor *t, enum where where, size_t at)
{
    b->tensors[b->n_tensor++] = (struct tensor_at){.t = t, .where = where, .at = at};
}

static struct ggml_tensor *view(struct build *b, struct ggml_tensor *t)
{
    keep(b, t, N_WHERE, 0);
    return t;
}

/* Memory for a tensor. */
static struct ggml_tensor *put(struct build *b, enum where where, struct ggml_tensor *t)
{
    keep(b, t, where, b->used[where]);
    b->used[where] += wnw__wrap_align(b->r->w, wnw__wrap_result_bytes(b->r->w, t));
    if (b->used[where] > b->most[where])
        b->most[where] = b->used[where];
    return t;
}

/* A tensor that has its memory already. ggml would send a message for each quantised one to a server, which writes zeros after it; those
 * are there. */
static struct ggml_tensor *fix(const struct build *b, struct ggml_tensor *t, ggml_backend_buffer_t buffer,
                               size_t at)
{
    uint8_t *data = (uint8_t *)ggml_backend_buffer_get_base(buffer) + at;
    if (!b->r->w->remote) {
        ggml_backend_tensor_alloc(buffer, t, data);
        return t;
    }
    t->buffer = buffer;
    t->data = data;
    return t;
}

static struct ggml_tensor *add(struct build *b, struct ggml_tensor *t)
{
    t->flags |= GGML_TENSOR_FLAG_COMPUTE;
    ggml_graph_add_node(b->graph, t);
    return t;
}

/* Copies a to the tensor or view `to`, with conversion. */
static struct ggml_tensor *copy_to(struct build *b, struct ggml_tensor *a, struct ggml_tensor *to)
{
    return add(b, view(b, ggml_cpy(b->ctx, a, to)));
}

static void layer_tensors(struct build *b, struct on_x *on)
{
    const struct wnw__bridge_layer *l = on->l;
    struct wnw__wrap_layer *w = l->wrap;
    on->k = fix(b, ggml_new_tensor_2d(b->ctx, l->k.type, l->d_k, w->rows), w->buffer, 0);
    if (l->v.base)
        on->v = fix(b, ggml_new_tensor_2d(b->ctx, l->v.type, l->d_v, w->rows), w->buffer, w->v_at);
    on->number = fix(b, ggml_new_tensor_2d(b->ctx, GGML_TYPE_F32, 1, w->rows), w->buffer, w->c_at);
    w->user = b->r->x;
    if (!on->host_rows)
        return;
    on->rows = put(b, PACKED, ggml_new_tensor_1d(b->ctx, GGML_TYPE_I32, on->n * l->n_head));
    on->cells = put(b, PACKED, ggml_new_tensor_2d(b->ctx, GGML_TYPE_F32, 1, on->n * l->n_head));
}

/* ---- Nodes ---- */

static void add_store(struct build *b, const struct wnw__wrap_store *store)
{
    const struct wnw__bridge_layer *l = store->t->layer;
    struct on_x *on = layer_on_x(b, store->t->layer);
    struct ggml_tensor *src = store->node->src[0];
    const size_t scratch = b->used[SCRATCH];
    if (!ggml_is_contiguous(src))
        src = add(b, put(b, SCRATCH, ggml_cont(b->ctx, src)));
    src = view(b, ggml_reshape_2d(b->ctx, src, store->t->is_v ? l->d_v : l->d_k, on->n * l->n_head));
    add(b, view(b, ggml_set_rows(b->ctx, store->t->is_v ? on->v : on->k, src, on->rows)));
    if (!store->t->is_v)
        add(b, view(b, ggml_set_rows(b->ctx, on->number, on->cells, on->rows)));
    b->used[SCRATCH] = scratch;
}

static struct ggml_tensor *turn(struct build *b, const struct wnw__bridge_flash *f, int64_t stream)
{
    const int64_t n_row = f->q->ne[1], n_kv = f->k->ne[1];
    struct ggml_tensor *mask = f->mask;
    stream = mask->ne[3] > 1 ? stream : 0;
    for (int32_t i = 0; i < b->n_turned; i++) {
        const struct turned *t = &b->turned[i];
        if (t->mask == mask && t->stream == stream && t->n_kv == n_kv && t->n_row == n_row)
            return t->m;
    }
    struct ggml_tensor *m = put(b, KEPT, ggml_new_tensor_2d(b->ctx, GGML_TYPE_F32, n_row, n_kv + 1));
    struct ggml_tensor *part =
        view(b, ggml_view_2d(b->ctx, mask, n_kv, n_row, mask->nb[1], (size_t)stream * mask->nb[3]));
    copy_to(b, view(b, ggml_transpose(b->ctx, part)),
            view(b, ggml_view_2d(b->ctx, m, n_row, n_kv, m->nb[1], m->nb[1])));
    copy_to(b, view(b, ggml_view_1d(b->ctx, b->hidden, n_row, 0)),
            view(b, ggml_view_1d(b->ctx, m, n_row, 0)));
    b->turned[b->n_turned++] =
        (struct turned){.mask = mask, .stream = stream, .n_kv = n_kv, .n_row = n_row, .m = m};
    return m;
}

/* Some heads of one stream whose rows are neighbours and whose capacities are the same. */
struct heads {
    int64_t stream;    /* of the queries */
    int64_t first, n;  /* KV heads */
    int64_t off, cap;  /* rows */
    int64_t first_off; /* of the stream */
};

/* The mask [cap, n_row, 1, n] of heads. seen: at one row the mask of the whole stream, else its rows' numbers. */
static struct ggml_tensor *mask_of(struct build *b, const struct heads *h, struct ggml_tensor *m,
                                   struct ggml_tensor *seen)
{
    const int64_t n_row = m->ne[0], rows = h->cap * h->n;
    const size_t at = (size_t)(h->off - h->first_off);
    if (n_row == 1) {
        const size_t bytes = (size_t)h->cap * sizeof(ggml_fp16_t);
        return view(
            b, ggml_view_4d(b->ctx, seen, h->cap, 1, 1, h->n, bytes, bytes, bytes, at * sizeof(ggml_fp16_t)));
    }
    struct ggml_tensor *index = view(b, ggml_view_1d(b->ctx, seen, rows, at * sizeof(int32_t)));
    struct ggml_tensor *found = add(b, put(b, SCRATCH, ggml_get_rows(b->ctx, m, index)));
    const size_t head = (size_t)h->cap * found->nb[1];
    found = view(b, ggml_view_4d(b->ctx, found, n_row, h->cap, 1, h->n, found->nb[1], head, head, 0));
    found = view(b, ggml_permute(b->ctx, found, 1, 0, 2, 3));
    return copy_to(b, found,
                   put(b, SCRATCH, ggml_new_tensor_4d(b->ctx, GGML_TYPE_F16, h->cap, n_row, 1, h->n)));
}

/* Rows [d, cap, 1, n] of heads. */
static struct ggml_tensor *rows_of(struct build *b, const struct heads *h, struct ggml_tensor *t, int64_t d)
{
    const size_t head = (size_t)h->cap * t->nb[1];
    return view(b,
                ggml_view_4d(b->ctx, t, d, h->cap, 1, h->n, t->nb[1], head, head, (size_t)h->off * t->nb[1]));
}

/* Whether X computes the result r where libllama wants it. */
static bool fits_there(const struct build *b, const struct ggml_tensor *r, const struct ggml_tensor *node,
                       size_t at)
{
    const uint8_t *base = ggml_backend_buffer_get_base(node->buffer);
    const size_t a = ggml_backend_buft_get_alignment(b->r->w->xt);
    return r->ne[2] == 1 && ((size_t)((const uint8_t *)node->data - base) + at) % a == 0 &&
           wnw__wrap_result_bytes(b->r->w, r) == ggml_nbytes(r);
}

/* X may compute only on what begins where its tensors do: Vulkan aborts else. What does not is copied. */
static struct ggml_tensor *aligned(struct build *b, struct ggml_tensor *t)
{
    const struct ggml_tensor *root = t->view_src ? t->view_src : t;
    const uint8_t *base = ggml_backend_buffer_get_base(root->buffer);
    const size_t a = ggml_backend_buft_get_alignment(b->r->w->xt);
    if ((size_t)((const uint8_t *)t->data - base) % a == 0)
        return t;
    return copy_to(b, t, put(b, SCRATCH, ggml_new_tensor(b->ctx, t->type, GGML_MAX_DIMS, t->ne)));
}

/* The sinks of a head's `group` queries. */
static struct ggml_tensor *sinks_of(struct build *b, const struct wnw__bridge_flash *f, int64_t head,
                                    int64_t group)
{
    const size_t at = (size_t)(head * group) * sizeof(float);
    return aligned(b, view(b, ggml_view_1d(b->ctx, f->sinks, group, at)));
}

/* Whether a policy wants to know what entries receive of this attention. */
static bool is_summed(const struct build *b, const struct wnw__bridge_flash *f)
{
    const struct wnw__bridge_layer *l = f->layer;
    return b->look->sums_for && wnw__bridge_site_of(b->look->sums_for, f->node) &&
           f->q->ne[2] == l->info.n_head;
}

/* Queries whose scores are computed together, so that these have about this many numbers. */
static int64_t rows_at_once(int64_t cap, int64_t group)
{
    enum { NUMBERS = 1 << 21 };
    const int64_t n = NUMBERS / (cap * group);
    return n > 0 ? n : 1;
}

/* The softmax [cap, n, group] of scores; its memory is in `where`. */
static struct ggml_tensor *softmax(struct build *b, const struct wnw__bridge_flash *f, struct ggml_tensor *s,
                                   struct ggml_tensor *mask, int32_t ih, enum where where)
{
    float scale = f->what.scale;
    if (f->what.cap != 0.0f) {
        s = add(b, put(b, SCRATCH, ggml_scale(b->ctx, s, scale)));
        s = add(b, put(b, SCRATCH, ggml_tanh(b->ctx, s)));
        scale = f->what.cap;
    }
    s = ggml_soft_max_ext(b->ctx, s, mask, scale, 0.0f);
    if (f->sinks)
        ggml_soft_max_add_sinks(s, sinks_of(b, f, ih, s->ne[2]));
    return add(b, put(b, where, s));
}

/* Sums of what queries q [d, n_row, group, n] give to the rows of heads. */
static void add_sums(struct build *b, const struct wnw__bridge_flash *f, const struct heads *h,
                     struct ggml_tensor *q, struct ggml_tensor *k, struct ggml_tensor *mask)
{
    const int64_t group = q->ne[2], n_row = q->ne[1], most = rows_at_once(h->cap, group);
    const int32_t stream = wnw__bridge_first_stream(f->k) + (int32_t)h->stream;
    for (int32_t i = 0; i < h->n; i++) {
        const size_t scratch = b->used[SCRATCH], at = (size_t)i;
        struct ggml_tensor *keys =
            copy_to(b, view(b, ggml_view_2d(b->ctx, k, k->ne[0], h->cap, k->nb[1], at * k->nb[3])),
                    put(b, SCRATCH, ggml_new_tensor_2d(b->ctx, GGML_TYPE_F32, k->ne[0], h->cap)));
        for (int64_t row = 0; row < n_row; row += most) {
            const size_t before = b->used[SCRATCH];
            const int64_t n = n_row - row < most ? n_row - row : most;
            const int32_t ih = (int32_t)h->first + i;
            struct ggml_tensor *part = view(b, ggml_view_3d(b->ctx, q, q->ne[0], n, group, q->nb[1], q->nb[2],
                                                            at * q->nb[3] + (size_t)row * q->nb[1]));
            struct ggml_tensor *seen = view(b, ggml_view_2d(b->ctx, mask, h->cap, n, mask->nb[1],
                                                            at * mask->nb[3] + (size_t)row * mask->nb[1]));
            struct ggml_tensor *s = add(b, put(b, SCRATCH, ggml_mul_mat(b->ctx, keys, part)));
            s = softmax(b, f, s, seen, ih, n == 1 ? SUMS : SCRATCH);
            if (n > 1) {
                s = view(b, ggml_permute(b->ctx, s, 1, 0, 2, 3));
                s = add(b, put(b, SCRATCH, ggml_cont(b->ctx, s)));
                s = add(b, put(b, SUMS, ggml_sum_rows(b->ctx, s)));
            }
            b->summed[b->n_summed++] = (struct summed){.l = f->layer,
                                                       .head = stream * f->layer->n_head + ih,
                                                       .off = h->off + i * h->cap,
                                                       .cap = h->cap,
                                                       .t = s};
            b->used[SCRATCH] = before;
        }
        b->used[SCRATCH] = scratch;
    }
}

static void add_heads(struct build *b, const struct wnw__bridge_flash *f, const struct heads *h,
                      struct ggml_tensor *mask)
{
    const struct on_x *on = layer_on_x(b, f->layer);
    const int64_t group = f->q->ne[2] / f->layer->n_head;
    struct ggml_tensor *q = f->q, *node = f->node;
    q = view(b, ggml_view_4d(b->ctx, q, q->ne[0], q->ne[1], group, h->n, q->nb[1], q->nb[2],
                             q->nb[2] * (size_t)group,
                             (size_t)h->stream * q->nb[3] + (size_t)(h->first * group) * q->nb[2]));
    q = aligned(b, q);
    struct ggml_tensor *k = rows_of(b, h, on->k, f->layer->d_k);
    struct ggml_tensor *v = rows_of(b, h, on->v ? on->v : on->k, f->layer->d_v);
    struct ggml_tensor *r = ggml_flash_attn_ext(b->ctx, q, k, v, mask, 1.0f, 0.0f, 0.0f);
    memcpy(r->op_params, node->op_params, sizeof r->op_params);
    if (f->sinks)
        ggml_flash_attn_ext_add_sinks(r, sinks_of(b, f, h->first, group));
    const size_t at = (size_t)h->stream * node->nb[3] + (size_t)(h->first * group) * node->nb[1];
    if (is_summed(b, f))
        add_sums(b, f, h, q, k, mask);
    if (fits_there(b, r, node, at)) {
        ggml_backend_tensor_alloc(node->buffer, r, (uint8_t *)node->data + at);
        add(b, r);
        return;
    }
    add(b, put(b, SCRATCH, r));
    copy_to(b, r,
            view(b, ggml_view_4d(b->ctx, node, node->ne[0], group, node->ne[2], h->n, node->nb[1],
                                 node->nb[2], node->nb[1] * (size_t)group, at)));
}

/* How many heads are computed together. A mask of several queries is made for each head, which takes 6 bytes for each number. */
static int64_t heads_at_once(int64_t cap, int64_t n_row)
{
    enum { NUMBERS = 1 << 25 };
    return n_row == 1 ? INT32_MAX : NUMBERS / (cap * n_row);
}

/* An attention over one stream. */
static void add_stream(struct build *b, const struct wnw__bridge_flash *f, int64_t stream)
{
    const struct wnw__bridge_layer *l = f->layer;
    const struct on_x *on = layer_on_x(b, f->layer);
    const struct wnw__wrap_head *head =
        l->wrap->heads + (wnw__bridge_first_stream(f->k) + stream) * l->n_head;
    const int64_t rows = head[l->n_head - 1].off + head[l->n_head - 1].cap - head[0].off;
    struct ggml_tensor *m = turn(b, f, stream);
    struct ggml_tensor *seen =
        copy_to(b, view(b, ggml_view_1d(b->ctx, on->number, rows, (size_t)head[0].off * sizeof(float))),
                put(b, SCRATCH, ggml_new_tensor_1d(b->ctx, GGML_TYPE_I32, rows)));
    if (m->ne[0] == 1) {
        seen = add(b, put(b, SCRATCH, ggml_get_rows(b->ctx, m, seen)));
        seen = copy_to(b, view(b, ggml_reshape_1d(b->ctx, seen, rows)),
                       put(b, SCRATCH, ggml_new_tensor_1d(b->ctx, GGML_TYPE_F16, rows)));
    }
    for (int32_t ih = 0; ih < l->n_head;) {
        struct heads h = {.stream = stream,
                          .first = ih,
                          .off = head[ih].off,
                          .cap = head[ih].cap,
                          .first_off = head[0].off};
        const size_t scratch = b->used[SCRATCH];
        const int64_t most = heads_at_once(h.cap, m->ne[0]);
        while (ih < l->n_head && head[ih].cap == h.cap &&
               (h.n == 0 || (!f->sinks && h.n < most))) { /* sinks are by query head */
            ih++;
            h.n++;
        }
        add_heads(b, f, &h, mask_of(b, &h, m, seen));
        b->used[SCRATCH] = scratch;
    }
}

static void add_attention(struct build *b, const struct wnw__bridge_flash *f)
{
    const size_t scratch = b->used[SCRATCH];
    for (int64_t s = 0; s < f->q->ne[3]; s++)
        add_stream(b, f, s);
    b->used[SCRATCH] = scratch;
}

/* ---- The graph ---- */

static bool is_ragged(const struct ggml_tensor *t)
{
    const struct wnw__bridge_tensor *mine = wnw__bridge_tensor_of(t);
    return mine && mine->layer->wrap && mine->layer->wrap->settled;
}

static void add_nodes(struct build *b)
{
    const struct wnw__wrap_look *look = b->look;
    int32_t flash = 0, store = 0;
    b->hidden =
        put(b, PACKED, ggml_new_tensor_1d(b->ctx, GGML_TYPE_F32, b->most_rows > 0 ? b->most_rows : 1));
    for (int32_t i = 0; i < b->n_layer; i++)
        layer_tensors(b, &b->layers[i]);
    for (int i = 0; i < ggml_graph_n_nodes(look->graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(look->graph, i);
        const bool is_flash = flash < look->n_flash && look->flash[flash].node == node;
        wnw__wrap_taps_add(look->taps, b->graph, node);
        const bool is_store = store < look->n_store && look->stores[store].node == node;
        if (is_flash && look->flash[flash].layer->wrap->ragged)
            add_attention(b, &look->flash[flash]);
        else if (is_store && look->stores[store].t->layer->wrap->ragged)
            add_store(b, &look->stores[store]);
        else if (!is_ragged(node))
            ggml_graph_add_node(b->graph, node);
        flash += is_flash;
        store += is_store;
    }
}

/* Gives tensors their memory. */
static int place_tensors(struct build *b)
{
    struct wnw__wrap_run *r = b->r;
    struct wnw__wrap_memory *const memory[N_WHERE] = {&r->kept, &r->scratch, &r->packed, &r->sums};
    for (int i = 0; i < N_WHERE; i++)
        if (b->most[i] > 0)
            WNW_TRY(wnw__wrap_memory_need(r, memory[i], b->most[i]));
    for (int32_t i = 0; i < b->n_tensor; i++) {
        const struct tensor_at *t = &b->tensors[i];
        if (t->where == N_WHERE)
            ggml_backend_view_init(t->t);
        else
            fix(b, t->t, memory[t->where]->buffer, t->at);
    }
    return WNW_OK;
}

/* Where a tensor lies in what is uploaded. */
static void *in_packed(const struct build *b, const struct ggml_tensor *t)
{
    return b->packed +
           ((const uint8_t *)t->data - (const uint8_t *)ggml_backend_buffer_get_base(b->r->packed.buffer));
}

static int upload(struct build *b)
{
    const size_t n = b->most[PACKED];
    b->packed = calloc(n, 1);
    if (!b->packed)
        return wnw__fail(WNW_E_NOMEM, "no memory for what a graph reads");
    float *hidden = in_packed(b, b->hidden);
    for (int64_t i = 0; i < b->hidden->ne[0]; i++)
        hidden[i] = -INFINITY;
    for (int32_t i = 0; i < b->n_layer; i++) {
        const struct on_x *on = &b->layers[i];
        if (on->host_rows)
            memcpy(in_packed(b, on->rows), on->host_rows, ggml_nbytes(on->rows));
    }
    for (int32_t i = 0; i < b->look->n_store; i++) {
        const struct wnw__wrap_store *s = &b->look->stores[i];
        struct wnw__bridge_layer *l = s->t->layer;
        if (!l->wrap->ragged || s->t->is_v)
            continue;
        WNW_TRY(read_cells(b, s->node->src[1]));
        const struct on_x *on = layer_on_x(b, l);
        float *number = in_packed(b, on->cells);
        for (int64_t j = 0; j < on->n * l->n_head; j++)
            number[j] = (float)(b->cells[j / l->n_head] % l->k.n_cell + 1);
    }
    struct ggml_tensor t;
    wnw__wrap_bytes_at(&t, b->r->packed.buffer, ggml_backend_buffer_get_base(b->r->packed.buffer), n);
    ggml_backend_tensor_set(&t, b->packed, 0, n);
    return WNW_OK;
}

/* While X sees the graph, replaced nodes have no sources: X would look at those of the cache. */
struct bare {
    enum ggml_op op;
    struct ggml_tensor *src[GGML_MAX_SRC];
};

static struct ggml_tensor *replaced(const struct wnw__wrap_look *look, int32_t i)
{
    const bool is_flash = i < look->n_flash;
    const struct wnw__bridge_layer *l =
        is_flash ? look->flash[i].layer : look->stores[i - look->n_flash].t->layer;
    if (!l->wrap->ragged)
        return NULL;
    return is_flash ? look->flash[i].node : look->stores[i - look->n_flash].node;
}

static enum ggml_status compute(struct build *b)
{
    const int32_t n = b->look->n_flash + b->look->n_store;
    struct bare *bare = calloc((size_t)n + 1, sizeof *bare);
    if (!bare)
        return GGML_STATUS_ALLOC_FAILED;
    for (int32_t i = 0; i < n; i++) {
        struct ggml_tensor *node = replaced(b->look, i);
        if (!node)
            continue;
        bare[i].op = node->op;
        memcpy(bare[i].src, node->src, sizeof node->src);
        node->op = GGML_OP_NONE;
        memset(node->src, 0, sizeof node->src);
    }
    const enum ggml_status status = wnw__wrap_pointed(b->r, b->look, b->graph, b->key);
    for (int32_t i = 0; i < n; i++) {
        struct ggml_tensor *node = replaced(b->look, i);
        if (!node)
            continue;
        node->op = bare[i].op;
        memcpy(node->src, bare[i].src, sizeof node->src);
    }
    free(bare);
    return status;
}

/* How many sums an attention gets. */
static int32_t count_sums(const struct build *b, const struct wnw__bridge_flash *f)
{
    const struct wnw__bridge_layer *l = f->layer;
    int64_t n = 0;
    if (!is_summed(b, f) || !l->wrap->ragged)
        return 0;
    const struct wnw__wrap_head *head = l->wrap->heads + wnw__bridge_first_stream(f->k) * l->n_head;
    for (int64_t i = 0; i < f->q->ne[3] * l->n_head; i++) {
        const int64_t most = rows_at_once(head[i].cap, f->q->ne[2] / l->n_head);
        n += (f->q->ne[1] + most - 1) / most;
    }
    return (int32_t)n;
}

/* The most tensors and nodes that are added, and how many sums. */
static void count_tensors(const struct build *b, int32_t *tensors, int32_t *nodes, int32_t *sums)
{
    enum { PER_SUM = 14, PER_HEAD = 3 };
    const struct wnw__wrap_look *look = b->look;
    *sums = 0;
    *tensors = 1 + 8 * look->n_store;
    *nodes = 4 * look->n_store;
    for (int32_t i = 0; i < look->n_flash; i++) {
        const int32_t n_sum = count_sums(b, &look->flash[i]);
        *sums += n_sum;
        *tensors += (PER_SUM + PER_HEAD) * n_sum;
        *nodes += (PER_SUM + PER_HEAD) * n_sum;
        const int32_t streams = (int32_t)look->flash[i].q->ne[3];
        *tensors += 5 + streams * (18 + 20 * look->flash[i].shape.n_head);
        *nodes += streams * (6 + 7 * look->flash[i].shape.n_head);
    }
}

/* What the graph is made of: libllama's, copies for a policy, where rows are, and how many are stored. Rows that policies sum up are others for
 * each token. */
static uint64_t key_of(const struct build *b)
{
    uint64_t h = wnw__mix(wnw__mix(b->look->number) + b->r->n_memory);
    h = wnw__mix(h + wnw__wrap_taps_key(b->look->taps));
    for (int32_t i = 0; i < b->n_layer; i++) {
        const struct on_x *on = &b->layers[i];
        h = wnw__mix(wnw__mix(h ^ (uintptr_t)on->l) + on->l->wrap->n_made);
        h = wnw__mix(h + (uint64_t)(on->host_rows ? on->n + 1 : 0));
    }
    return b->look->sums_for ? 0 : h | 1;
}

/* Takes the graph that was made last. */
static void take_made(struct build *b, const struct wnw__wrap_made *m)
{
    b->graph = m->graph;
    b->hidden = m->hidden;
    b->most[PACKED] = m->packed;
    for (int32_t i = 0; i < b->n_layer; i++) {
        b->layers[i].rows = m->layers[i].rows;
        b->layers[i].cells = m->layers[i].cells;
        b->layers[i].l->wrap->user = b->r->x;
    }
}

/* Keeps the graph for the next token. Without memory it is made again. */
static void keep_made(const struct build *b)
{
    struct wnw__wrap_run *r = b->r;
    struct wnw__wrap_made *m = r->made ? r->made : calloc(1, sizeof *m);
    r->made = m;
    if (!m || b->key == 0)
        return;
    struct on_x *layers = realloc(m->layers, ((size_t)b->n_layer + 1) * sizeof *layers);
    if (!layers)
        return;
    memcpy(layers, b->layers, (size_t)b->n_layer * sizeof *layers);
    *m = (struct wnw__wrap_made){
        .graph = b->graph, .hidden = b->hidden, .layers = layers, .packed = b->most[PACKED]};
    r->made_key = b->key;
}

void wnw__wrap_made_free(struct wnw__wrap_made *m)
{
    if (m)
        free(m->layers);
    free(m);
}

static int make(struct build *b)
{
    int32_t n_tensor, n_node, n_sum;
    count_tensors(b, &n_tensor, &n_node, &n_sum);
    n_node += ggml_graph_n_nodes(b->look->graph) + wnw__wrap_taps_count(b->look->taps);
    const size_t size =
        (size_t)n_tensor * ggml_tensor_overhead() + ggml_graph_overhead_custom((size_t)n_node, false);
    int64_t n_turned = 0;
    for (int32_t i = 0; i < b->look->n_flash; i++)
        n_turned += b->look->flash[i].q->ne[3];
    b->tensors = malloc((size_t)n_tensor * sizeof *b->tensors);
    b->turned = malloc(((size_t)n_turned + 1) * sizeof *b->turned);
    b->summed = malloc(((size_t)n_sum + 1) * sizeof *b->summed);
    b->r->made_key = 0;
    void *memory = wnw__wrap_block_need(&b->r->nodes, size);
    if (b->tensors && b->turned && b->summed && memory)
        b->ctx =
            ggml_init((struct ggml_init_params){.mem_size = size, .mem_buffer = memory, .no_alloc = true});
    if (!b->ctx)
        return wnw__fail(WNW_E_NOMEM, "no memory for a graph of %d nodes", (int)n_node);
    b->graph = ggml_new_graph_custom(b->ctx, (size_t)n_node, false);
    add_nodes(b);
    WNW_TRY(place_tensors(b));
    b->key = key_of(b); /* with the memory that it got */
    keep_made(b);
    return WNW_OK;
}

static int make_or_take(struct build *b)
{
    b->key = key_of(b);
    if (b->key != 0 && b->r->made_key == b->key)
        take_made(b, b->r->made);
    else
        WNW_TRY(make(b));
    return upload(b);
}

/* Adds the sums to those of their entries. */
static int take_sums(const struct build *b)
{
    struct wnw__wrap_run *r = b->r;
    uint8_t *copy;
    if (b->n_summed == 0)
        return WNW_OK;
    ggml_backend_synchronize(r->x);
    WNW_TRY(wnw__wrap_memory_read(r, &r->sums, b->most[SUMS], &copy));
    const uint8_t *base = ggml_backend_buffer_get_base(r->sums.buffer), *host = copy ? copy : base;
    int rc = WNW_OK;
    for (int32_t i = 0; i < b->n_summed && rc == WNW_OK; i++) {
        const struct summed *s = &b->summed[i];
        rc = wnw__wrap_add_sums(s->l, s->head, s->off, s->cap,
                                (const void *)(host + ((const uint8_t *)s->t->data - base)));
    }
    free(copy);
    return rc;
}

static int run(struct build *b, enum ggml_status *status)
{
    WNW_TRY(prepare(b));
    WNW_TRY(make_or_take(b));
    *status = compute(b);
    return *status == GGML_STATUS_SUCCESS ? take_sums(b) : WNW_OK;
}

enum ggml_status wnw__wrap_graph_run(struct wnw__wrap_run *r, struct wnw__wrap_look *look)
{
    struct build b = {.r = r, .look = look};
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    b.layers = calloc((size_t)(look->n_flash + look->n_store) + 1, sizeof *b.layers);
    const int rc =
        b.layers ? run(&b, &status) : wnw__fail(WNW_E_NOMEM, "no memory for the layers of a graph");
    if (rc != WNW_OK)
        wnw__log(WNW_LOG_WARN, "winnow: %s", wnw_last_error());
    if (b.ctx)
        ggml_free(b.ctx);
    for (int32_t i = 0; b.layers && i < b.n_layer; i++)
        free(b.layers[i].host_rows);
    free(b.layers);
    free(b.tensors);
    free(b.turned);
    free(b.summed);
    free(b.packed);
    free(b.cells);
    return status;
}

/* libllama's graph with the copies that a policy wants; NULL: no memory. */
static struct ggml_cgraph *tapped(struct wnw__wrap_run *r, const struct wnw__wrap_look *look)
{
    const int n = ggml_graph_n_nodes(look->graph);
    struct ggml_cgraph *out = wnw__wrap_graph_new(r, n + wnw__wrap_taps_count(look->taps));
    for (int i = 0; out && i < n; i++) {
        wnw__wrap_taps_add(look->taps, out, ggml_graph_node(look->graph, i));
        ggml_graph_add_node(out, ggml_graph_node(look->graph, i));
    }
    return out;
}

enum ggml_status wnw__wrap_graph_tapped(struct wnw__wrap_run *r, const struct wnw__wrap_look *look)
{
    const uint64_t made_of = wnw__mix(wnw__mix(look->number) + r->n_memory);
    const uint64_t key = wnw__mix(made_of + wnw__wrap_taps_key(look->taps)) | 1;
    if (!r->made)
        r->made = calloc(1, sizeof *r->made);
    struct ggml_cgraph *graph = r->made_key == key ? r->made->graph : tapped(r, look);
    if (!graph)
        return GGML_STATUS_ALLOC_FAILED;
    if (r->made) {
        r->made->graph = graph;
        r->made_key = key;
    }
    return wnw__wrap_pointed(r, look, graph, key);
}
