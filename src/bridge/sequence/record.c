/* SPDX-License-Identifier: MIT */
#include "bridge/sequence/sequence.h"

#include "bridge/sequence/track.h"
#include "kernel/kernel.h"
#include "observe/queries.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Numbers that entries keep ---- */

/* Begins or ends keeping n numbers of a kind with each entry. */
static int keep_numbers(struct wnw__bridge_layer *l, enum wnw__aux kind, int32_t n)
{
    return l->rows.aux_planes[kind] == n ? WNW_OK : wnw__cache_set_aux(&l->rows, kind, n);
}

static bool wants_queries(const struct wnw__bridge_backend *b)
{
    return b->watch.needs.flags & (WNW_NEED_WINDOW_ATTN | WNW_NEED_EVERY_QUERY);
}

int wnw__bridge_record_begin(struct wnw__bridge_backend *b)
{
    const uint32_t flags = b->watch.needs.flags;
    if (!(flags & WNW_NEED_QUERY_STATS)) {
        wnw__bridge_tracks_free(b->watch.tracks);
        b->watch.tracks = NULL;
    }
    for (int32_t i = 0; i < b->watch.n_site; i++) {
        struct wnw__bridge_layer *l = b->watch.sites[i].layer;
        const int32_t group = l->info.n_head / l->n_head;
        if (!l->wrap) { /* else numbers are kept by wrap/wrap_mirror.c */
            WNW_TRY(keep_numbers(l, WNW_AUX_ATTN_SUM, flags & WNW_NEED_ATTN_SUM ? group : 0));
            WNW_TRY(keep_numbers(l, WNW_AUX_ATTN_MAX, flags & WNW_NEED_ATTN_MAX ? group : 0));
            WNW_TRY(keep_numbers(l, WNW_AUX_GATE, wnw__bridge_gates_suit(b, l)));
        }
        if (!wants_queries(b))
            wnw__bridge_queries_free(&l->queries);
    }
    b->watch.on_attention = wants_queries(b) ? wnw__bridge_record_queries : NULL;
    return wnw__bridge_gates_reserve(b);
}

/* ---- Queries ---- */

/* Windows that a layer's ring of queries has room for where there are several sequences, since each batch may bring one window. */
enum { WINDOWS = 16 };

/* Bytes of n numbers. */
static size_t bytes_of(const struct wnw__bridge_queries *q, size_t n)
{
    return n * (q->type == WNW_KV_F16 ? sizeof(uint16_t) : sizeof(float));
}

/* Bytes of the queries of one token. */
static size_t row_of(const struct wnw__bridge_layer *l)
{
    const struct wnw__bridge_queries *q = &l->queries;
    return bytes_of(q, (size_t)q->n_reader * (size_t)q->n_head * (size_t)l->d_k);
}

size_t wnw__bridge_query_bytes(const struct wnw__bridge_layer *l)
{
    return l->queries.q && l->queries.all ? row_of(l) : 0;
}

/* A window's attention is computed from queries as they are. */
static wnw_kv_type type_for(const wnw_needs *needs)
{
    return wnw__queries_rounded(needs->flags) && !(needs->flags & WNW_NEED_WINDOW_ATTN) ? WNW_KV_F16
                                                                                        : WNW_KV_F32;
}

uint64_t wnw__bridge_queries_held(const struct wnw__bridge_layer *l)
{
    return l->queries.q ? (uint64_t)l->queries.room * row_of(l) : 0;
}

/* Tokens whose queries a layer has room for. */
static int32_t room_for(const struct wnw__bridge_layer *l, const struct wnw__bridge_watch *w)
{
    const int32_t n_cell = l->k.n_cell * l->k.n_stream, times = w->several ? WINDOWS : 1;
    if (w->needs.flags & WNW_NEED_EVERY_QUERY)
        return n_cell;
    return w->needs.window < n_cell / times ? w->needs.window * times : n_cell;
}

/* A ring with more room, and the same queries. */
static bool grow(struct wnw__bridge_layer *l, int32_t room)
{
    struct wnw__bridge_queries *q = &l->queries;
    const size_t row = row_of(l);
    uint8_t *more = malloc((size_t)room * row);
    int32_t *cell = malloc((size_t)room * sizeof *cell);
    if (!more || !cell) {
        free(more);
        free(cell);
        return false;
    }
    for (int32_t i = 0; i < room; i++) {
        const int32_t from = (q->at + i) % q->room; /* the oldest first */
        cell[i] = i < q->room ? q->cell[from] : -1;
        if (i < q->room)
            memcpy(more + (size_t)i * row, (uint8_t *)q->q + (size_t)from * row, row);
    }
    free(q->q);
    free(q->cell);
    q->q = more;
    q->cell = cell;
    q->at = q->room;
    q->room = room;
    return true;
}

/* Makes room for the queries that the policy wants of a layer, which loses those that it had for another. Memory of
 * those of all cells is taken where they are written. */
static bool need_room(struct wnw__bridge_layer *l, const struct wnw__bridge_watch *w)
{
    struct wnw__bridge_queries *q = &l->queries;
    const bool all = w->needs.flags & WNW_NEED_EVERY_QUERY;
    const int32_t room = room_for(l, w);
    const wnw_kv_type type = type_for(&w->needs);
    if (q->q && q->all == all && q->type == type && q->n_head == l->info.n_head &&
        q->n_reader == l->info.n_reader && (q->room == room || (!all && q->room < room && grow(l, room))))
        return true;
    wnw__bridge_queries_free(q);
    q->type = type;
    q->n_head = l->info.n_head;
    q->n_reader = l->info.n_reader;
    q->q = malloc((size_t)room * row_of(l));
    q->cell = malloc((size_t)room * sizeof *q->cell);
    if (!q->q || !q->cell) {
        wnw__bridge_queries_free(q);
        return false;
    }
    q->room = room;
    q->all = all;
    for (int32_t i = 0; i < room; i++)
        q->cell[i] = -1;
    return true;
}

static int32_t slot_of(const struct wnw__bridge_queries *q, int32_t cell)
{
    if (q->all)
        return q->cell[cell] == cell ? cell : -1;
    for (int32_t i = 1; i <= q->room; i++) {
        const int32_t at = (q->at - i + q->room) % q->room;
        if (q->cell[at] == cell)
            return at;
    }
    return -1;
}

static uint8_t *query_at(const struct wnw__bridge_layer *l, int32_t at, int32_t reader)
{
    const struct wnw__bridge_queries *q = &l->queries;
    return (uint8_t *)q->q + (size_t)at * row_of(l) +
           bytes_of(q, (size_t)reader * (size_t)q->n_head * (size_t)l->d_k);
}

const void *wnw__bridge_query(const struct wnw__bridge_layer *l, int32_t cell, int32_t reader)
{
    const int32_t at = l->queries.q ? slot_of(&l->queries, cell) : -1;
    return at < 0 ? NULL : query_at(l, at, reader);
}

/* The place for the query of a cell; the first reader of a layer chooses it. */
static uint8_t *place_for(struct wnw__bridge_layer *l, int32_t cell, int32_t reader)
{
    struct wnw__bridge_queries *q = &l->queries;
    int32_t at = cell;
    if (!q->all)
        at = reader == 0 ? q->at : slot_of(q, cell);
    if (at < 0)
        return NULL;
    if (!q->all && reader == 0)
        q->at = (q->at + 1) % q->room;
    q->cell[at] = cell;
    return query_at(l, at, reader);
}

static void keep_query(struct wnw__bridge_layer *l, const struct wnw__cells_op *op, int32_t stream,
                       int32_t row, int32_t cell, int32_t reader)
{
    const char *q = op->q + (size_t)stream * op->q_stream + (size_t)row * op->q_row;
    uint8_t *to = place_for(l, (op->first_stream + stream) * l->k.n_cell + cell, reader);
    float turned[WNW_BRIDGE_MOST_D];
    for (int32_t h = 0; to && h < op->n_head; h++, to += bytes_of(&l->queries, (size_t)op->d_k)) {
        const float *x = (const void *)(q + (size_t)h * op->q_head);
        if (l->info.k_block > 0) { /* as keys are read */
            memcpy(turned, x, (size_t)op->d_k * sizeof *turned);
            wnw__hadamard(turned, op->d_k, l->info.k_block);
            x = turned;
        }
        wnw__rows_from_f32(l->queries.type, x, 1, op->d_k, to);
    }
}

void wnw__bridge_record_queries(struct wnw__bridge_backend *b, const struct ggml_tensor *node,
                                const struct wnw__cells_op *op)
{
    const struct wnw__bridge_site *p = wnw__bridge_site_of(b, node);
    if (!p || !wants_queries(b) || op->n_head != p->layer->info.n_head ||
        b->watch_n_own != (int64_t)op->n_stream * op->n_row || !need_room(p->layer, &b->watch))
        return;
    for (int32_t s = 0; s < op->n_stream; s++)
        for (int32_t row = 0; row < op->n_row; row++)
            if (b->watch_own[(int64_t)s * op->n_row + row] >= 0)
                keep_query(p->layer, op, s, row, b->watch_own[(int64_t)s * op->n_row + row], p->reader);
}

void wnw__bridge_record_unasked(const struct wnw__bridge_layer *l, int32_t cell)
{
    const struct wnw__bridge_cache *c = l->cache;
    if (c->note && c->n_cell == l->k.n_cell)
        c->note[cell].query_skipped = true;
}

void wnw__bridge_record_skip(struct wnw__bridge_backend *b, int32_t i)
{
    if (!(b->watch.needs.flags & WNW_NEED_EVERY_QUERY) || i < 0 || i >= b->watch_n_own || b->watch_own[i] < 0)
        return;
    for (int32_t k = 0; k < b->watch.n_site; k++) { /* the cell may have had another token */
        struct wnw__bridge_queries *q = &b->watch.sites[k].layer->queries;
        if (q->q && q->all && b->watch_own[i] < q->room)
            q->cell[b->watch_own[i]] = -1;
        wnw__bridge_record_unasked(b->watch.sites[k].layer, b->watch_own[i]);
    }
    b->watch_own[i] = -1;
}

void wnw__bridge_record_dead(struct wnw__bridge_layer *l, const bool *dead)
{
    struct wnw__bridge_queries *q = &l->queries;
    for (int32_t i = 0; q->q && !q->all && i < q->room; i++)
        if (q->cell[i] >= 0 && dead[q->cell[i]])
            q->cell[i] = -1;
}

/* Queries of all cells are as large as hidden states, and serve once. */
void wnw__bridge_record_seen(struct wnw__bridge_layer *l, int32_t stream, const int32_t *cell, int32_t n)
{
    struct wnw__bridge_queries *q = &l->queries;
    const size_t row = row_of(l);
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    bool any = false;
    if (!q->q || !q->all)
        return;
    for (int32_t i = 0; i < n; i++) {
        int32_t *kept = &q->cell[stream * l->k.n_cell + cell[i]];
        any = any || *kept >= 0;
        *kept = -1;
    }
    for (int32_t i = 0; any && i < q->room;) {
        const int32_t first = i;
        while (i < q->room && q->cell[i] < 0)
            i++;
        const uintptr_t from = ((uintptr_t)q->q + (size_t)first * row + page - 1) / page * page,
                        to = ((uintptr_t)q->q + (size_t)i * row) / page * page;
        if (from < to)
            madvise((void *)from, to - from, MADV_DONTNEED);
        i += i < q->room;
    }
}

/* ---- Nodes ---- */

static bool wants_columns(const struct wnw__bridge_backend *b)
{
    return b->watch.policy && (b->watch.needs.flags & WNW_NEED_ATTN_NUMBERS);
}

int wnw__bridge_record_tensors(const struct wnw__bridge_backend *b)
{
    enum { PER_SITE = 3 }; /* queries before they turn, columns, gates */
    const bool any =
        b->watch.tracks || (b->watch.needs.flags & (WNW_NEED_INPUT_GATE | WNW_NEED_ATTN_NUMBERS));
    return b->watch.policy && any ? PER_SITE * b->watch.n_site : 0;
}

/* The node that a recorder's node is about is its source. */
static void add(struct ggml_context *ctx, struct ggml_cgraph *graph, const struct wnw__bridge_site *p,
                struct ggml_tensor *about, ggml_custom_op_t work)
{
    struct ggml_tensor *node = ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, &about, 1, work,
                                              GGML_N_TASKS_MAX, (void *)(uintptr_t)p);
    node->data = about->data; /* nothing is written there */
    node->flags |= GGML_TENSOR_FLAG_COMPUTE;
    ggml_graph_add_node(graph, node);
}

static void take_queries(struct ggml_tensor *node, int ith, int nth, void *user)
{
    const struct wnw__bridge_site *p = user;
    wnw__bridge_tracks_take(p->b->watch.tracks, wnw__bridge_number(p->b, p->layer), node->src[0], ith, nth);
}

/* Whether something may be recorded before a node: most are of other kinds, and layers are many. */
static bool is_point(const struct wnw__bridge_backend *b, const struct ggml_tensor *node)
{
    return (node->op == GGML_OP_ROPE && b->watch.tracks) ||
           (node->op == GGML_OP_MUL_MAT && (b->watch.needs.flags & WNW_NEED_INPUT_GATE));
}

void wnw__bridge_record_before(struct wnw__bridge_backend *b, struct ggml_context *ctx,
                               struct ggml_cgraph *graph, struct ggml_tensor *node)
{
    for (int32_t i = 0; b->watch.policy && is_point(b, node) && i < b->watch.n_site; i++) {
        const struct wnw__bridge_site *p = &b->watch.sites[i];
        if (p->rope == node && p->reader == 0 && b->watch.tracks)
            add(ctx, graph, p, node->src[0], take_queries);
        if (p->product == node && wnw__bridge_gates_suit(b, p->layer))
            add(ctx, graph, p, node->src[1], wnw__bridge_gates_take);
    }
}

static void take_columns(struct ggml_tensor *node, int ith, int nth, void *user)
{
    const struct wnw__bridge_site *p = user;
    const struct wnw__cells_op op = wnw__bridge_attention(p->b, node->src[0]);
    wnw__cells_columns_run(p->b->cells, &op, ith, nth);
}

void wnw__bridge_record_after(struct wnw__bridge_backend *b, struct ggml_context *ctx,
                              struct ggml_cgraph *graph, struct ggml_tensor *node)
{
    const struct wnw__bridge_site *p = wants_columns(b) ? wnw__bridge_site_of(b, node) : NULL;
    if (p && node->src[0]->ne[2] == p->layer->info.n_head)
        add(ctx, graph, p, node, take_columns);
}
