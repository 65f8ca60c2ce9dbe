/* SPDX-License-Identifier: MIT */
/* Running a graph: entries and scratch first, then everything on the CPU backend. */
#include "bridge/device/device.h"
#include "bridge/drive/drive.h"
#include "bridge/graph/fuse.h"
#include "bridge/watch/watch.h"

#include <stdlib.h>
#include <string.h>

static struct wnw__bridge_tensor *ragged(const struct ggml_tensor *t)
{
    struct wnw__bridge_tensor *mine = t ? wnw__bridge_tensor_of(t) : NULL;
    return mine && mine->layer->kind == WNW_BRIDGE_RAGGED ? mine : NULL;
}

/* Whether a node that is not ours reads or writes a ragged layer. */
static bool is_stranger(const struct wnw__bridge_backend *b, const struct ggml_tensor *node)
{
    bool found = ragged(node) != NULL;
    for (int i = 0; i < GGML_MAX_SRC && !found; i++)
        found = ragged(node->src[i]) != NULL;
    return found && !wnw__bridge_is_view(node) && wnw__bridge_node_get(b, node).what == WNW_BRIDGE_NOT_OURS;
}

/* ---- Parts of a graph ---- */

static void forget_nodes(struct wnw__bridge_backend *b)
{
    ggml_free(b->running.ctx);
    b->running = (struct wnw__bridge_running){0};
}

/* Tensors that recorders may add. */
static int n_recorded(const struct wnw__bridge_backend *b)
{
    return b->drive ? wnw__drive_tensors(b->drive) : wnw__bridge_record_tensors(b);
}

/* Memory for a graph of n nodes, where winnow's replace n_ours. */
static bool need_room(struct wnw__bridge_backend *b, int n, int n_ours, int n_tensor)
{
    const size_t bytes = ggml_graph_overhead_custom((size_t)(n + n_ours + n_tensor), false) +
                         (size_t)(2 * n_ours + n_tensor + 1) * ggml_tensor_overhead();
    if (bytes > b->room_bytes) {
        uint8_t *room = malloc(bytes);
        if (!room)
            return false;
        free(b->room);
        b->room = room;
        b->room_bytes = bytes;
    }
    return true;
}

/* Lists what runs in place of nodes from .. to-1. Threads need not look at views, which compute nothing. */
static bool list_nodes(struct wnw__bridge_backend *b, struct ggml_cgraph *graph, int from, int to)
{
    forget_nodes(b);
    const int n_ours = wnw__bridge_fuse_plan(b, graph, from, to), n_tensor = n_recorded(b);
    if (n_ours < 0 || !need_room(b, to - from, n_ours, n_tensor))
        return false;
    const struct ggml_init_params params = {
        .mem_size = b->room_bytes, .mem_buffer = b->room, .no_alloc = true};
    struct ggml_context *ctx = ggml_init(params);
    if (!ctx)
        return false;
    struct ggml_cgraph *part = ggml_new_graph_custom(ctx, (size_t)(to - from + n_ours + n_tensor), false);
    b->running = (struct wnw__bridge_running){.ctx = ctx, .nodes = part};
    b->products.converted = NULL;
    for (int i = from; i < to; i++) {
        struct ggml_tensor *node = ggml_graph_node(graph, i);
        const struct wnw__bridge_step *step = &b->products.steps[i - from];
        wnw__bridge_record_before(b, ctx, part, node);
        if (b->drive)
            wnw__drive_before(b->drive, ctx, part, node);
        if (step->kind == WNW_BRIDGE_PRODUCTS)
            wnw__bridge_products_add(&b->products, ctx, part, step);
        else if (step->kind == WNW_BRIDGE_NORM)
            wnw__bridge_norm_add(ctx, part, node);
        else if (step->kind == WNW_BRIDGE_AS_IT_IS && !wnw__bridge_is_view(node) &&
                 (!b->drive || !wnw__drive_add(b->drive, ctx, part, node)))
            ggml_graph_add_node(part, node);
        wnw__bridge_record_after(b, ctx, part, node);
    }
    return true;
}

/* Whether what was listed last is what would be. Recorders add nodes of their own, which depend on more than the graph. */
static bool is_listed(const struct wnw__bridge_backend *b, int from, int to)
{
    return b->running.ctx && b->last.again && !b->drive && n_recorded(b) == 0 &&
           wnw__bridge_fuse_is_planned(b, from, to);
}

static enum ggml_status run_nodes(struct wnw__bridge_backend *b, struct ggml_cgraph *graph, int from, int to)
{
    if (from == to)
        return GGML_STATUS_SUCCESS;
    if (!is_listed(b, from, to) && !list_nodes(b, graph, from, to))
        return GGML_STATUS_ALLOC_FAILED;
    const enum ggml_status status = ggml_backend_graph_compute(b->cpu, b->running.nodes);
    if (b->drive || n_recorded(b) > 0)
        forget_nodes(b);
    return status;
}

/* Runs a node on tensors that have their entries at their addresses meanwhile. */
static enum ggml_status run_stranger(struct wnw__bridge_backend *b, struct ggml_cgraph *graph, int i)
{
    const struct ggml_tensor *node = ggml_graph_node(graph, i);
    struct wnw__bridge_tensor *used[GGML_MAX_SRC + 1] = {ragged(node)};
    for (int s = 0; s < GGML_MAX_SRC; s++)
        used[s + 1] = ragged(node->src[s]) != used[0] ? ragged(node->src[s]) : NULL;
    for (int s = 0; s <= GGML_MAX_SRC; s++)
        if (used[s])
            wnw__bridge_tensor_spread(used[s]);
    const enum ggml_status status = run_nodes(b, graph, i, i + 1);
    if (used[0] && status == GGML_STATUS_SUCCESS)
        wnw__bridge_tensor_gather(used[0]);
    for (int s = 0; s <= GGML_MAX_SRC; s++)
        if (used[s])
            wnw__bridge_tensor_release(used[s]);
    return status;
}

static int add_ours(struct wnw__bridge_last *last, int i)
{
    if (last->n_ours == last->cap_ours) {
        const int cap = last->cap_ours > 0 ? 2 * last->cap_ours : 256;
        int *more = realloc(last->ours, (size_t)cap * sizeof *more);
        if (!more)
            return wnw__fail(WNW_E_NOMEM, "no memory for a graph of %d nodes", last->n);
        last->ours = more;
        last->cap_ours = cap;
    }
    last->ours[last->n_ours++] = i;
    return WNW_OK;
}

/* Prepares every node, and notes which are ours and whether there are strangers. */
static int look_and_prepare(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    struct wnw__bridge_last *last = &b->last;
    last->n_ours = 0;
    last->strangers = false;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        WNW_TRY(wnw__bridge_node_prepare(b, node));
        if (wnw__bridge_node_get(b, node).what != WNW_BRIDGE_NOT_OURS)
            WNW_TRY(add_ours(last, i));
        last->strangers = last->strangers || is_stranger(b, node);
    }
    last->looked = true;
    return WNW_OK;
}

static int prepare(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    const struct wnw__bridge_last *last = &b->last;
    if (!last->looked)
        return look_and_prepare(b, graph);
    for (int i = 0; i < last->n_ours; i++)
        WNW_TRY(wnw__bridge_node_prepare(b, ggml_graph_node(graph, last->ours[i])));
    return WNW_OK;
}

static enum ggml_status run_graph(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    const int n = ggml_graph_n_nodes(graph);
    int done = 0;
    if (prepare(b, graph) != WNW_OK) {
        wnw__log(WNW_LOG_WARN, "winnow: %s", wnw_last_error());
        return GGML_STATUS_ALLOC_FAILED;
    }
    for (int i = 0; b->last.strangers && i < n; i++) {
        if (!is_stranger(b, ggml_graph_node(graph, i)))
            continue;
        enum ggml_status status = run_nodes(b, graph, done, i);
        status = status == GGML_STATUS_SUCCESS ? run_stranger(b, graph, i) : status;
        if (status != GGML_STATUS_SUCCESS)
            return status;
        done = i + 1;
    }
    return run_nodes(b, graph, done, n);
}

static bool is_ready(const struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    const bool taken = b->last.looked || wnw__bridge_graph_is_taken(b, graph);
    if (!taken)
        wnw__log(WNW_LOG_WARN, "winnow: there was no memory to look at a graph: it is not run");
    return taken;
}

enum ggml_status wnw__bridge_graph_run(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    wnw__bridge_last_see(b, graph);
    if (!b->last.again)
        wnw__bridge_fuse_recount(b, graph);
    if (b->drive) {
        const int rc = wnw__drive_begin(b->drive, graph);
        if (rc == WNW_E_CANCELLED)
            return GGML_STATUS_SUCCESS; /* it was looked at */
        return rc == WNW_OK ? run_nodes(b, graph, 0, ggml_graph_n_nodes(graph)) : GGML_STATUS_FAILED;
    }
    if (!is_ready(b, graph))
        return GGML_STATUS_ALLOC_FAILED;
    wnw__bridge_watch_graph(b, graph);
    wnw__bridge_rows_tell(b, graph);
    const enum ggml_status status = run_graph(b, graph);
    if (status != GGML_STATUS_SUCCESS)
        wnw__bridge_watch_fail(b);
    return status;
}

/* ---- The backend ---- */

static const char *get_name(ggml_backend_t backend)
{
    (void)backend;
    return "WINNOW";
}

static void free_backend(ggml_backend_t backend)
{
    struct wnw__bridge_backend *b = backend->context;
    ggml_backend_free(b->cpu);
    for (int32_t i = 0; i < b->n_cache; i++)
        wnw__bridge_cache_release(b->caches[i]);
    free(b->caches);
    wnw__cells_shared_free(b->cells);
    wnw__bridge_watch_free(&b->watch);
    free(b->watch_own);
    free(b->skipped);
    free(b->index);
    forget_nodes(b);
    free(b->room);
    wnw__bridge_products_free(&b->products);
    wnw__bridge_notes_free(&b->notes);
    wnw__bridge_last_free(&b->last);
    free(b);
    free(backend);
}

/* Nothing is left to wait for when a graph has run. But libllama calls it for each backend of a context. */
static void synchronize(ggml_backend_t backend)
{
    wnw__bridge_called(backend->context);
}

static enum ggml_status graph_compute(ggml_backend_t backend, struct ggml_cgraph *graph)
{
    return wnw__bridge_graph_run(backend->context, graph);
}

static void graph_optimize(ggml_backend_t backend, struct ggml_cgraph *graph,
                           struct ggml_backend_graph_optimize_params *params)
{
    struct wnw__bridge_backend *b = backend->context;
    wnw__bridge_last_shown(b);
    wnw__bridge_nodes_begin(b, graph);
    wnw__bridge_graph_take(b, graph);
    wnw__bridge_fuse_note(b, graph, params);
}

static ggml_guid_t guid(void)
{
    static ggml_guid id = {0x77, 0x69, 0x6e, 0x6e, 0x6f, 0x77, 0x2d, 0x62,
                           0x72, 0x69, 0x64, 0x67, 0x65, 0x00, 0x00, 0x01};
    return &id;
}

ggml_backend_t wnw__bridge_backend_new(ggml_backend_dev_t dev)
{
    struct ggml_backend *backend = calloc(1, sizeof *backend);
    struct wnw__bridge_backend *b = calloc(1, sizeof *b);
    ggml_backend_t cpu = backend && b ? ggml_backend_dev_init(wnw__bridge_cpu(), NULL) : NULL;
    if (!cpu) {
        free(backend);
        free(b);
        return NULL;
    }
    b->cpu = cpu;
    const bool own = wnw__drive_expected();
    b->plain = !own && wnw__bridge_is_set("WINNOW_PLAIN");
    if (!own && wnw__bridge_watch_set_from_environment(&b->watch) != WNW_OK)
        wnw__log(WNW_LOG_WARN, "winnow: nothing is compressed: %s", wnw_last_error());
    b->ggml_products = wnw__bridge_products_off();
    b->products.by_eight = wnw__bridge_by_eight();
    *backend = (struct ggml_backend){.guid = guid(),
                                     .iface = {.get_name = get_name,
                                               .free = free_backend,
                                               .synchronize = synchronize,
                                               .graph_compute = graph_compute,
                                               .graph_optimize = graph_optimize},
                                     .device = dev,
                                     .context = b};
    wnw__bridge_set_n_threads(backend, GGML_DEFAULT_N_THREADS);
    if (!b->cells) {
        free_backend(backend);
        return NULL;
    }
    return backend;
}
