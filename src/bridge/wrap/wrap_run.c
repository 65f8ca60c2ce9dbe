/* SPDX-License-Identifier: MIT */
/* Running a graph on X, and the rest of a backend, which is X's. */
#include "base/random.h"
#include "bridge/watch/watch.h"
#include "bridge/wrap/wrap.h"

#include <stdlib.h>

/* ---- A graph ---- */

/* The caller frees *cells in any case. */
static int note_stores(struct wnw__wrap_run *r, const struct wnw__wrap_look *look, int64_t **cells)
{
    const struct ggml_tensor *of = NULL;
    for (int32_t i = 0; i < look->n_store; i++) {
        const struct ggml_tensor *index = look->stores[i].node->src[1];
        struct wnw__bridge_layer *l = look->stores[i].t->layer;
        if (look->stores[i].t->is_v || l->kind != WNW_BRIDGE_RAGGED || l->wrap->ragged)
            continue;
        if (index != of) {
            free(*cells);
            WNW_TRY(wnw__wrap_cells(cells, r->w, index));
            of = index;
        }
        WNW_TRY(wnw__wrap_layer_note(l));
        for (int64_t j = 0; j < ggml_nelements(index); j++)
            if ((*cells)[j] >= 0 && (*cells)[j] < (int64_t)l->k.n_cell * l->k.n_stream)
                l->written[(*cells)[j]] = 1;
    }
    return WNW_OK;
}

/* Notes the cells that a graph writes to layers whose entries can be dropped. */
static int note_written(struct wnw__wrap_run *r, const struct wnw__wrap_look *look)
{
    int64_t *cells = NULL;
    const int rc = note_stores(r, look, &cells);
    free(cells);
    return rc;
}

/* Has the client of a server forget which graph it computed last, where the server may have forgotten it: buffers were freed there since. A
 * graph without a number does that. */
static int forget_graph(struct wnw__wrap_run *r)
{
    const unsigned freed = wnw__wrap_frees();
    uint8_t memory[2048];
    if (freed == r->freed || !r->w->remote)
        return WNW_OK;
    WNW_TRY(wnw__wrap_memory_need(r, &r->packed, 2 * wnw__wrap_align(r->w, sizeof(float))));
    struct ggml_context *ctx =
        2 * ggml_tensor_overhead() + ggml_graph_overhead_custom(1, false) <= sizeof memory
            ? ggml_init((struct ggml_init_params){
                  .mem_size = sizeof memory, .mem_buffer = memory, .no_alloc = true})
            : NULL;
    if (!ctx)
        return wnw__fail(WNW_E_NOMEM, "no memory for a graph of one node");
    uint8_t *base = ggml_backend_buffer_get_base(r->packed.buffer);
    struct ggml_tensor *a = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1), *b = ggml_scale(ctx, a, 1.0f);
    ggml_backend_tensor_alloc(r->packed.buffer, a, base);
    ggml_backend_tensor_alloc(r->packed.buffer, b, base + wnw__wrap_align(r->w, sizeof(float)));
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, 1, false);
    b->flags |= GGML_TENSOR_FLAG_COMPUTE;
    ggml_graph_add_node(graph, b);
    const enum ggml_status status = wnw__wrap_compute(r->w, r->x, graph, 0);
    ggml_free(ctx);
    r->freed = wnw__wrap_frees();
    return status == GGML_STATUS_SUCCESS ? WNW_OK
                                         : wnw__fail(WNW_E_BACKEND, "%s computes nothing", r->w->name);
}

static enum ggml_status run_graph(struct wnw__wrap_run *r, struct wnw__wrap_look *look)
{
    if (look->ragged)
        return wnw__wrap_graph_run(r, look);
    return look->taps ? wnw__wrap_graph_tapped(r, look)
                      : wnw__wrap_pointed(r, look, look->graph, look->number);
}

/* Attentions and stores over ragged layers. */
static int32_t count_ragged(const struct wnw__wrap_look *look)
{
    int32_t n = 0;
    for (int32_t i = 0; i < look->n_flash; i++)
        n += look->flash[i].layer->wrap->ragged;
    for (int32_t i = 0; i < look->n_store; i++)
        n += look->stores[i].t->layer->wrap->ragged;
    return n;
}

/* Looks at a graph, and does what a policy wants before it runs. */
static int get_ready(struct wnw__wrap_look *look, struct wnw__wrap_watched *watched,
                     struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    struct wnw__wrap_run *r = b->wrap;
    WNW_TRY(wnw__wrap_look(look, b, graph));
    const int32_t n_ragged = count_ragged(look);
    WNW_TRY(wnw__wrap_watch(watched, b, look));
    if (count_ragged(look) != n_ragged) /* a policy has dropped entries */
        WNW_TRY(wnw__wrap_look(look, b, graph));
    look->taps = watched->taps;
    look->sums_for = wnw__wrap_wants_sums(b) ? b : NULL;
    WNW_TRY(note_written(r, look));
    if (!look->ragged)
        return forget_graph(r);
    ggml_backend_synchronize(r->x); /* rows may move, which graphs before this one may still read */
    return WNW_OK;
}

static enum ggml_status graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    struct wnw__bridge_backend *b = backend->context;
    struct wnw__wrap_run *r = b->wrap;
    struct wnw__wrap_look look;
    struct wnw__wrap_watched watched = {.watched = false};
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    r->computing = true;
    if (get_ready(&look, &watched, b, graph) == WNW_OK)
        status = run_graph(r, &look);
    else
        wnw__log(WNW_LOG_WARN, "winnow: %s", wnw_last_error());
    if (wnw__wrap_watch_end(&watched, b, status == GGML_STATUS_SUCCESS) != WNW_OK)
        wnw__log(WNW_LOG_WARN, "winnow: %s", wnw_last_error());
    r->computing = false;
    return status;
}

/* ---- The backend ---- */

static struct wnw__wrap_run *run_of(ggml_backend_t backend)
{
    return ((struct wnw__bridge_backend *)backend->context)->wrap;
}

static const char *get_name(ggml_backend_t backend)
{
    return run_of(backend)->w->name;
}

/* X's backend has computed all, and ends. */
static void leave_cache(const struct wnw__wrap_run *r, const struct wnw__bridge_cache *c)
{
    for (int32_t i = 0; i < c->n_layer; i++)
        if (c->layers[i]->wrap && c->layers[i]->wrap->user == r->x)
            c->layers[i]->wrap->user = NULL;
}

static void free_backend(ggml_backend_t backend)
{
    struct wnw__bridge_backend *b = backend->context;
    struct wnw__wrap_run *r = b->wrap;
    struct wnw__wrap_memory *const memory[] = {&r->kept, &r->scratch, &r->packed,
                                               &r->sums, &r->taps,    &r->gates};
    ggml_backend_synchronize(r->x);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        wnw__wrap_buffer_drop(r->w, memory[i]->buffer);
    wnw__wrap_freed(r->w);
    for (int32_t i = 0; i < b->n_cache; i++) {
        leave_cache(r, b->caches[i]);
        wnw__bridge_cache_release(b->caches[i]);
    }
    ggml_backend_free(r->x);
    free(b->caches);
    wnw__bridge_watch_free(&b->watch);
    wnw__bridge_notes_free(&b->notes);
    wnw__bridge_last_free(&b->last);
    free(b->watch_own);
    free(b->skipped);
    struct wnw__wrap_block *const blocks[] = {&r->nodes, &r->tap_nodes, &r->found.flash, &r->found.stores,
                                              &r->found.touched};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        free(blocks[i]->at);
    wnw__wrap_points_free(&r->points);
    wnw__wrap_made_free(r->made);
    free(r);
    free(b);
    free(backend);
}

static void set_tensor_async(ggml_backend_t backend, struct ggml_tensor *t, const void *data, size_t offset,
                             size_t size)
{
    struct wnw__wrap_run *r = run_of(backend);
    if (wnw__wrap_of_cache(t)) {
        ggml_backend_synchronize(r->x);
        ggml_backend_tensor_set(t, data, offset, size);
        return;
    }
    wnw__wrap_note(r->w, t, data, offset, size);
    r->x->iface.set_tensor_async(r->x, t, data, offset, size);
}

static void get_tensor_async(ggml_backend_t backend, const struct ggml_tensor *t, void *data, size_t offset,
                             size_t size)
{
    struct wnw__wrap_run *r = run_of(backend);
    if (wnw__wrap_of_cache(t)) {
        ggml_backend_synchronize(r->x);
        ggml_backend_tensor_get(t, data, offset, size);
        return;
    }
    r->x->iface.get_tensor_async(r->x, t, data, offset, size);
}

static ggml_backend_t inner(ggml_backend_t backend)
{
    return wnw__wrap_of(backend->device) ? run_of(backend)->x : backend;
}

static bool cpy_tensor_async(ggml_backend_t from, ggml_backend_t to, const struct ggml_tensor *src,
                             struct ggml_tensor *dst)
{
    ggml_backend_t x = inner(to);
    if (wnw__wrap_of_cache(src) || wnw__wrap_of_cache(dst) || !x->iface.cpy_tensor_async)
        return false;
    return x->iface.cpy_tensor_async(inner(from), x, src, dst);
}

static void synchronize(ggml_backend_t backend)
{
    wnw__bridge_called(backend->context);
    ggml_backend_synchronize(run_of(backend)->x);
}

static void event_record(ggml_backend_t backend, ggml_backend_event_t event)
{
    struct wnw__wrap_run *r = run_of(backend);
    r->x->iface.event_record(r->x, event);
}

static void event_wait(ggml_backend_t backend, ggml_backend_event_t event)
{
    struct wnw__wrap_run *r = run_of(backend);
    r->x->iface.event_wait(r->x, event);
}

static void graph_optimize(ggml_backend_t backend, struct ggml_cgraph *graph,
                           struct ggml_backend_graph_optimize_params *params)
{
    struct wnw__wrap_run *r = run_of(backend);
    wnw__wrap_decide(backend->context, graph);
    if (r->x->iface.graph_optimize)
        r->x->iface.graph_optimize(r->x, graph, params);
    wnw__wrap_numbered(r, graph);
}

static ggml_guid_t guid(void)
{
    static ggml_guid id = {0x77, 0x69, 0x6e, 0x6e, 0x6f, 0x77, 0x2d, 0x77,
                           0x72, 0x61, 0x70, 0x00, 0x00, 0x00, 0x00, 0x01};
    return &id;
}

static void set_n_threads(struct wnw__bridge_backend *b, int n_threads)
{
    struct wnw__wrap_run *r = b->wrap;
    void (*fn)(void);
    b->n_threads = n_threads > 0 ? n_threads : 1; /* of what the host does */
    if (wnw__wrap_function(r->w, "ggml_backend_set_n_threads", &fn))
        ((ggml_backend_set_n_threads_t)fn)(r->x, n_threads);
}

static void set_abort_callback(struct wnw__bridge_backend *b, ggml_abort_callback callback, void *data)
{
    struct wnw__wrap_run *r = b->wrap;
    void (*fn)(void);
    if (wnw__wrap_function(r->w, "ggml_backend_set_abort_callback", &fn))
        ((ggml_backend_set_abort_callback_t)fn)(r->x, callback, data);
}

const struct wnw__bridge_far wnw__wrap_far = {
    .find_holes = wnw__wrap_find_holes,
    .entries = wnw__wrap_entries,
    .bytes = wnw__wrap_bytes,
    .room_entries = wnw__wrap_room_entries,
    .list = wnw__wrap_list,
    .drop = wnw__wrap_rows_drop,
    .forget = wnw__wrap_forget,
    .clear = wnw__wrap_layer_clear,
    .sinks = wnw__wrap_sinks,
    .keep_gate = wnw__wrap_keep_gate,
    .check_policy = wnw__wrap_check_policy,
    .plan_begin = wnw__wrap_mirror_begin,
    .plan_end = wnw__wrap_mirror_end,
    .set_n_threads = set_n_threads,
    .set_abort_callback = set_abort_callback,
};

ggml_backend_t wnw__wrap_backend_new(struct wnw__wrap *w)
{
    static atomic_ullong n_run;
    struct ggml_backend *backend = calloc(1, sizeof *backend);
    struct wnw__bridge_backend *b = calloc(1, sizeof *b);
    struct wnw__wrap_run *r = calloc(1, sizeof *r);
    ggml_backend_t x = backend && b && r ? ggml_backend_dev_init(w->x, NULL) : NULL;
    if (!x) {
        free(backend);
        free(b);
        free(r);
        return NULL;
    }
    *r = (struct wnw__wrap_run){.w = w,
                                .x = x,
                                .id = wnw__mix(atomic_fetch_add(&n_run, 1)),
                                .freed = wnw__wrap_frees(),
                                .at_once = wnw__bridge_is_set("WINNOW_RAGGED_AT_ONCE")};
    b->wrap = r;
    b->far = &wnw__wrap_far;
    b->n_threads = 1;
    int rc = wnw__bridge_watch_set_from_environment(&b->watch);
    if (rc == WNW_OK)
        rc = wnw__bridge_watch_check(b);
    if (rc != WNW_OK)
        wnw__log(WNW_LOG_WARN, "winnow: nothing is compressed: %s", wnw_last_error());
    *backend = (struct ggml_backend){
        .guid = guid(),
        .iface = {.get_name = get_name,
                  .free = free_backend,
                  .set_tensor_async = x->iface.set_tensor_async ? set_tensor_async : NULL,
                  .get_tensor_async = x->iface.get_tensor_async ? get_tensor_async : NULL,
                  .cpy_tensor_async = x->iface.cpy_tensor_async ? cpy_tensor_async : NULL,
                  .synchronize = synchronize,
                  .graph_compute = graph_compute,
                  .event_record = x->iface.event_record ? event_record : NULL,
                  .event_wait = x->iface.event_wait ? event_wait : NULL,
                  .graph_optimize = graph_optimize},
        .device = &w->dev,
        .context = b};
    return backend;
}
