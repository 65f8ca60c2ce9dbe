/* SPDX-License-Identifier: MIT */
/*
 * Numbers that X computes on the way and a policy wants: queries of attentions, queries before they turn, and what attentions read.
 * libllama uses their memory again within the graph. So X copies them while it computes, and the host reads the copies afterwards. Of what
 * attentions read it may compute the products that gates want, in place of a copy (wrap/wrap_gates.c).
 */
#include "base/parallel.h"
#include "base/random.h"
#include "bridge/sequence/track.h"
#include "bridge/watch/watch.h"
#include "bridge/wrap/wrap.h"

#include <stdlib.h>

enum kind { QUERIES, TURNED, INPUT, GATE };

/* One copy, or product. */
struct tap {
    enum kind kind;
    const struct wnw__bridge_site *site;
    const struct ggml_tensor *before; /* the node that reads it */
    struct ggml_tensor *from;
    int64_t first, n;         /* rows of queries */
    struct ggml_tensor *copy; /* without gaps */
    struct ggml_tensor *node;
};

struct wnw__wrap_taps {
    struct tap *list; /* [n] */
    int32_t n;
    size_t bytes; /* of all copies, which lie one after the other */
    struct ggml_context *ctx;
};

int32_t wnw__wrap_taps_count(const struct wnw__wrap_taps *t)
{
    return t ? t->n : 0;
}

uint64_t wnw__wrap_taps_key(const struct wnw__wrap_taps *t)
{
    uint64_t h = (uint64_t)wnw__wrap_taps_count(t);
    for (int32_t i = 0; t && i < t->n; i++) {
        const struct tap *tap = &t->list[i];
        h = wnw__mix(h ^ (uintptr_t)tap->before);
        h = wnw__mix(h ^ (uintptr_t)tap->from->view_src ^ (uint64_t)tap->kind << 56);
        h = wnw__mix(h ^ (uintptr_t)tap->node ^ (uint64_t)tap->first << 48);
        h = wnw__mix(h ^ (uintptr_t)tap->copy->data ^ (uint64_t)tap->n << 48);
    }
    return h;
}

/* The rows of the graph's streams whose queries are wanted: from *first on; returns their number. */
static int64_t wanted_rows(const struct wnw__bridge_backend *b, const struct ggml_tensor *q, int64_t *first)
{
    const int64_t n_row = q->ne[1], n = n_row * q->ne[3];
    int64_t end = 0;
    *first = n_row;
    for (int64_t i = 0; i < n && b->watch_n_own == n; i++) {
        if (b->watch_own[i] < 0)
            continue;
        *first = i % n_row < *first ? i % n_row : *first;
        end = i % n_row >= end ? i % n_row + 1 : end;
    }
    return end > *first ? end - *first : 0;
}

static void add(struct wnw__wrap_taps *t, const struct tap *tap)
{
    if (tap->from->type == GGML_TYPE_F32)
        t->list[t->n++] = *tap;
}

static void list_taps(struct wnw__wrap_taps *t, const struct wnw__bridge_backend *b)
{
    const uint32_t flags = b->watch.needs.flags;
    for (int32_t i = 0; i < b->watch.n_site; i++) {
        const struct wnw__bridge_site *p = &b->watch.sites[i];
        if (flags & (WNW_NEED_WINDOW_ATTN | WNW_NEED_EVERY_QUERY)) {
            struct tap tap = {.kind = QUERIES, .site = p, .before = p->node, .from = p->node->src[0]};
            tap.n = wanted_rows(b, tap.from, &tap.first);
            if (tap.n > 0)
                add(t, &tap);
        }
        if (p->rope && p->reader == 0 && b->watch.tracks)
            add(t, &(struct tap){.kind = TURNED, .site = p, .before = p->rope, .from = p->rope->src[0]});
        if (p->product && wnw__bridge_gates_suit(b, p->layer))
            add(t, &(struct tap){.kind = b->wrap->gates_on_x ? GATE : INPUT,
                                 .site = p,
                                 .before = p->product,
                                 .from = p->product->src[1]});
    }
}

/* Makes the nodes. */
static int make(struct wnw__wrap_taps *t, struct wnw__bridge_backend *b)
{
    struct wnw__wrap_run *r = b->wrap;
    enum { PER_TAP = 3 };
    size_t bytes = 0;
    const size_t size = (size_t)t->n * PER_TAP * ggml_tensor_overhead();
    void *memory = wnw__wrap_block_need(&r->tap_nodes, size);
    t->ctx =
        memory
            ? ggml_init((struct ggml_init_params){.mem_size = size, .mem_buffer = memory, .no_alloc = true})
            : NULL;
    if (!t->ctx)
        return wnw__fail(WNW_E_NOMEM, "no memory to copy what a policy reads");
    for (int32_t i = 0; i < t->n; i++) {
        struct tap *tap = &t->list[i];
        struct ggml_tensor *f = tap->from;
        const int64_t n = tap->kind == QUERIES ? tap->n : f->ne[1];
        f = ggml_view_4d(t->ctx, f, f->ne[0], n, f->ne[2], f->ne[3], f->nb[1], f->nb[2], f->nb[3],
                         (size_t)tap->first * f->nb[1]);
        tap->copy = tap->kind == GATE
                        ? wnw__wrap_gates_product(b, t->ctx, tap->site->layer, f)
                        : ggml_new_tensor_4d(t->ctx, GGML_TYPE_F32, f->ne[0], f->ne[1], f->ne[2], f->ne[3]);
        bytes += wnw__wrap_align(r->w, ggml_backend_buft_get_alloc_size(r->w->xt, tap->copy));
        tap->from = f;
    }
    WNW_TRY(wnw__wrap_memory_need(r, &r->taps, bytes));
    t->bytes = bytes;
    bytes = 0;
    for (int32_t i = 0; i < t->n; i++) {
        struct tap *tap = &t->list[i];
        ggml_backend_view_init(tap->from);
        ggml_backend_tensor_alloc(r->taps.buffer, tap->copy,
                                  (uint8_t *)ggml_backend_buffer_get_base(r->taps.buffer) + bytes);
        tap->node = tap->copy;
        if (tap->kind != GATE) {
            tap->node = ggml_cpy(t->ctx, tap->from, tap->copy);
            ggml_backend_view_init(tap->node);
        }
        tap->node->flags |= GGML_TENSOR_FLAG_COMPUTE;
        bytes += wnw__wrap_align(r->w, ggml_backend_buft_get_alloc_size(r->w->xt, tap->copy));
    }
    return WNW_OK;
}

int wnw__wrap_taps_new(struct wnw__wrap_taps **out, struct wnw__bridge_backend *b)
{
    enum { PER_SITE = 3 };
    struct wnw__wrap_taps *t = *out = NULL;
    if (!b->watch.policy || b->watch.n_site == 0)
        return WNW_OK;
    WNW_TRY(wnw__wrap_gates_need(b));
    t = calloc(1, sizeof *t);
    if (t)
        t->list = malloc((size_t)b->watch.n_site * PER_SITE * sizeof *t->list);
    if (!t || !t->list) {
        free(t);
        return wnw__fail(WNW_E_NOMEM, "no memory to copy what a policy reads");
    }
    list_taps(t, b);
    const int rc = t->n > 0 ? make(t, b) : WNW_OK;
    if (rc != WNW_OK || t->n == 0) {
        wnw__wrap_taps_free(t);
        return rc;
    }
    *out = t;
    return WNW_OK;
}

void wnw__wrap_taps_free(struct wnw__wrap_taps *t)
{
    if (!t)
        return;
    if (t->ctx)
        ggml_free(t->ctx);
    free(t->list);
    free(t);
}

void wnw__wrap_taps_add(const struct wnw__wrap_taps *t, struct ggml_cgraph *graph,
                        const struct ggml_tensor *before)
{
    for (int32_t i = 0; t && i < t->n; i++)
        if (t->list[i].before == before)
            ggml_graph_add_node(graph, t->list[i].node);
}

/* ---- Afterwards ---- */

/* Hidden states [n_embd, n_row] on their way to the gates, in parts. */
struct asked {
    struct ggml_tensor node;
    const struct wnw__bridge_site *site;
    int n;
};

static void ask_part(int32_t i, void *user)
{
    struct asked *a = user;
    wnw__bridge_gates_take(&a->node, i, a->n, (void *)(uintptr_t)a->site);
}

static void take_queries(struct wnw__bridge_backend *b, const struct tap *tap, const struct ggml_tensor *host)
{
    const struct ggml_tensor *q = tap->site->node->src[0];
    const struct wnw__bridge_layer *l = tap->site->layer;
    const struct wnw__cells_op op = {
        .n_head = (int32_t)q->ne[2],
        .n_head_kv = l->n_head,
        .d_k = l->d_k,
        .n_row = (int32_t)q->ne[1],
        .n_stream = (int32_t)q->ne[3],
        .first_stream = wnw__bridge_first_stream(tap->site->node->src[1]),
        /* only rows that were copied are read */
        .q = (const char *)((uintptr_t)host->data - (size_t)tap->first * host->nb[1]),
        .q_row = host->nb[1],
        .q_head = host->nb[2],
        .q_stream = host->nb[3]};
    wnw__bridge_record_queries(b, tap->site->node, &op);
}

static int take(struct wnw__bridge_backend *b, const struct tap *tap, struct ggml_tensor *host)
{
    struct asked a = {.site = tap->site, .n = b->n_threads};
    switch (tap->kind) {
    case QUERIES:
        take_queries(b, tap, host);
        break;
    case TURNED:
        wnw__bridge_tracks_take(b->watch.tracks, wnw__bridge_number(b, tap->site->layer), host, 0, 1);
        break;
    case INPUT:
        a.node.src[0] = host;
        wnw__wrap_need_gates(tap->site->layer);
        wnw__parallel(wnw__bridge_pool(b), a.n, ask_part, &a);
        break;
    case GATE:
        return wnw__wrap_gates_keep(b, tap->site, host->data, host->ne[1]);
    }
    return WNW_OK;
}

int wnw__wrap_taps_take(const struct wnw__wrap_taps *t, struct wnw__bridge_backend *b)
{
    uint8_t *copies;
    if (!t)
        return WNW_OK;
    ggml_backend_synchronize(b->wrap->x);
    /* all at once, since each reading of a server takes a round trip */
    WNW_TRY(wnw__wrap_memory_read(b->wrap, &b->wrap->taps, t->bytes, &copies));
    const uint8_t *base = ggml_backend_buffer_get_base(b->wrap->taps.buffer);
    int rc = WNW_OK;
    for (int32_t i = 0; i < t->n && rc == WNW_OK; i++) {
        struct ggml_tensor host = *t->list[i].copy;
        if (copies)
            host.data = copies + ((const uint8_t *)host.data - base);
        rc = take(b, &t->list[i], &host);
    }
    free(copies);
    return rc;
}
