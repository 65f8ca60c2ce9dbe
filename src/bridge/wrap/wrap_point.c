/* SPDX-License-Identifier: MIT */
/* Memory of X in a graph: libllama's tensors of rectangular layers point to it while X computes, and our own tensors get room. */
#include "base/random.h"
#include "bridge/wrap/wrap.h"

#include <stdlib.h>

void *wnw__wrap_block_need(struct wnw__wrap_block *b, size_t size)
{
    if (size > b->size) {
        free(b->at);
        b->at = malloc(size);
        b->size = b->at ? size : 0;
    }
    return b->at;
}

/* A prompt's graphs need much more than those of the tokens that follow: what they do not need goes back. */
static bool is_wasted(size_t has, size_t needed)
{
    enum { SHARE = 8, LEAST = 1 << 20 };
    return has > LEAST && needed < has / SHARE;
}

int wnw__wrap_memory_need(struct wnw__wrap_run *r, struct wnw__wrap_memory *m, size_t size)
{
    if (m->buffer && size <= m->size && !is_wasted(m->size, size))
        return WNW_OK;
    ggml_backend_synchronize(r->x); /* it may still read what is there */
    r->n_memory++;
    wnw__wrap_buffer_drop(r->w, m->buffer);
    *m = (struct wnw__wrap_memory){0};
    WNW_TRY(wnw__wrap_buffer_new(&m->buffer, r->w, size + size / 4 + 256));
    m->size = size + size / 4 + 256;
    return WNW_OK;
}

int wnw__wrap_memory_read(struct wnw__wrap_run *r, const struct wnw__wrap_memory *m, size_t n, uint8_t **out)
{
    struct ggml_tensor all;
    *out = NULL;
    if (ggml_backend_buffer_is_host(m->buffer))
        return WNW_OK;
    *out = malloc(n);
    if (!*out)
        return wnw__fail(WNW_E_NOMEM, "no memory to read %zu bytes of %s", n, r->w->name);
    wnw__wrap_bytes_at(&all, m->buffer, ggml_backend_buffer_get_base(m->buffer), n);
    ggml_backend_tensor_get(&all, *out, 0, n);
    return WNW_OK;
}

struct ggml_cgraph *wnw__wrap_graph_new(struct wnw__wrap_run *r, int n)
{
    const size_t size = ggml_graph_overhead_custom((size_t)n, false);
    r->made_key = 0;
    void *memory = wnw__wrap_block_need(&r->nodes, size);
    struct ggml_context *ctx =
        memory
            ? ggml_init((struct ggml_init_params){.mem_size = size, .mem_buffer = memory, .no_alloc = true})
            : NULL;
    if (!ctx) {
        wnw__log(WNW_LOG_WARN, "winnow: no memory for a graph of %d nodes", n);
        return NULL;
    }
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, (size_t)n, false);
    ggml_free(ctx); /* its memory is ours, and stays */
    return graph;
}

/* ---- Pointing tensors to their memory ---- */

/* The rectangular layer that t is of; NULL: none, or its rows are in the ragged form. */
static struct wnw__bridge_tensor *rectangular(const struct ggml_tensor *t)
{
    struct wnw__bridge_tensor *mine = t ? wnw__bridge_tensor_of(t) : NULL;
    return mine && mine->layer->wrap && !mine->layer->wrap->settled ? mine : NULL;
}

/* Where a tensor of a layer is among the layer's bytes. */
static struct wnw__wrap_pointed_at place_of(struct ggml_tensor *t, const struct wnw__bridge_tensor *mine)
{
    const size_t at = (size_t)((const uint8_t *)t->data - mine->base);
    return (struct wnw__wrap_pointed_at){.t = t,
                                         .mine = mine,
                                         .at = at,
                                         .end = at + ggml_nbytes(t),
                                         .row = ggml_row_size(mine->type, mine->n_embd)};
}

/* The cell after the last one that it reaches. */
static int64_t rows_reached(const struct wnw__wrap_pointed_at *p)
{
    return (int64_t)((p->end + p->row - 1) / p->row);
}

/* reaches: X reads or writes all of t. */
static int collect(struct wnw__wrap_points *p, struct ggml_tensor *t, bool reaches)
{
    const struct wnw__bridge_tensor *mine = rectangular(t);
    if (!mine)
        return WNW_OK;
    if (p->n == p->cap) {
        const size_t cap = p->cap > 0 ? 2 * p->cap : 256;
        struct wnw__wrap_pointed_at *more = realloc(p->list, cap * sizeof *more);
        if (!more)
            return wnw__fail(WNW_E_NOMEM, "no memory to note the tensors of a graph");
        p->list = more;
        p->cap = cap;
    }
    struct wnw__wrap_pointed_at *at = &p->list[p->n++];
    *at = place_of(t, mine);
    at->rows = reaches ? rows_reached(at) : 0;
    return t->view_src ? collect(p, t->view_src, false) : WNW_OK;
}

static bool is_row_store(const struct ggml_tensor *node)
{
    const struct wnw__bridge_tensor *to = rectangular(node);
    return to && wnw__bridge_is_op(node, "SET_ROWS") && node->ne[0] == to->n_embd;
}

/* The cell after the last one that a store writes. */
static int last_cell(struct wnw__wrap_run *r, const struct ggml_tensor *index, int64_t *end)
{
    int64_t *cells;
    WNW_TRY(wnw__wrap_cells(&cells, r->w, index));
    *end = 1;
    for (int64_t i = 0; i < ggml_nelements(index); i++)
        *end = cells[i] >= *end ? cells[i] + 1 : *end;
    free(cells);
    return WNW_OK;
}

/* Grows layers to the cells that stores write. The attention that reads them may be elsewhere: X may not compute it. */
static int reach_written(struct wnw__wrap_run *r, const struct wnw__wrap_look *look)
{
    /* libllama has one list of cells for keys, and one for values */
    struct {
        const struct ggml_tensor *index;
        int64_t end;
    } of[2] = {{NULL, 0}, {NULL, 0}};
    for (int32_t i = 0; i < look->n_touched; i++) {
        struct ggml_tensor *node = look->touched[i].node;
        const struct ggml_tensor *index = node->src[1];
        if (!is_row_store(node))
            continue;
        const struct wnw__bridge_tensor *mine = rectangular(node);
        const struct wnw__wrap_pointed_at at = place_of(node, mine);
        int64_t rows = rows_reached(&at);
        if (index->type == GGML_TYPE_I64) {
            if (index != of[mine->is_v].index)
                WNW_TRY(last_cell(r, index, &of[mine->is_v].end));
            of[mine->is_v].index = index;
            rows = (int64_t)(at.at / at.row) + of[mine->is_v].end;
        }
        WNW_TRY(wnw__wrap_rect_grow(mine->layer, rows));
    }
    return WNW_OK;
}

/* Collects what X will look at. A store reaches only the cells that it writes. */
static int collect_all(struct wnw__wrap_points *p, const struct wnw__wrap_look *look)
{
    p->n = 0;
    p->key = 0;
    for (int32_t i = 0; i < look->n_touched; i++) {
        struct ggml_tensor *node = look->touched[i].node;
        const bool rows = is_row_store(node);
        WNW_TRY(collect(p, node, !rows));
        for (int s = 0; s < GGML_MAX_SRC; s++)
            WNW_TRY(collect(p, node->src[s], !rows || s != 2));
    }
    return WNW_OK;
}

static int point_one(struct wnw__wrap_run *r, struct wnw__wrap_pointed_at *p)
{
    struct ggml_tensor *t = p->t;
    const struct wnw__bridge_tensor *mine = p->mine;
    struct wnw__wrap_layer *w = mine->layer->wrap;
    if (w->buffer && t->buffer == w->buffer)
        p->twice = true;
    if (p->twice)
        return WNW_OK;
    p->buffer = t->buffer;
    p->data = t->data;
    p->ne1 = t->ne[1];
    p->ne2 = t->ne[2];
    if (!w->buffer) /* nothing reads it: a store without an attention */
        WNW_TRY(wnw__wrap_rect_grow(mine->layer, 1));
    w->user = r->x;
    t->buffer = w->buffer;
    t->data = wnw__wrap_layer_at(w, mine->is_v) + p->at;
    if (p->end > (size_t)w->rows * p->row) { /* X checks that it has the whole tensor */
        t->ne[1] = w->rows - (int64_t)(p->at / p->row);
        t->ne[2] = 1;
    }
    return WNW_OK;
}

static void point_back(const struct wnw__wrap_pointed_at *p)
{
    p->t->buffer = p->buffer;
    p->t->data = p->data;
    p->t->ne[1] = p->ne1;
    p->t->ne[2] = p->ne2;
}

/* ---- Numbers of graphs ---- */

/* libllama's scheduler numbers its graphs, and uses them again. X takes a graph with a number that it knows for the one that it computed,
 * without looking at the addresses (CUDA, Hexagon). So a graph that was numbered before its rows moved is given without a number.
 * Without one X does not compute several nodes as one, so it is given by its number where it can be. */

static uint64_t places_of(const struct wnw__wrap_points *p)
{
    uint64_t h = WNW_HASH_START;
    for (size_t i = 0; i < p->n; i++)
        if (!p->list[i].twice)
            h = wnw__mix(wnw__mix(h ^ (uintptr_t)p->list[i].t->data) + p->list[i].mine->layer->wrap->n_made);
    return h | 1;
}

static struct wnw__wrap_numbered *numbered(struct wnw__wrap_run *r, const struct ggml_tensor *first)
{
    const uint64_t h = wnw__hash(WNW_HASH_START, &first, sizeof first);
    return &r->numbered[h % (sizeof r->numbered / sizeof *r->numbered)];
}

void wnw__wrap_numbered(struct wnw__wrap_run *r, struct ggml_cgraph *graph)
{
    if (ggml_graph_n_nodes(graph) == 0)
        return;
    const struct ggml_tensor *first = ggml_graph_node(graph, 0);
    *numbered(r, first) = (struct wnw__wrap_numbered){.first = first};
}

static struct ggml_cgraph *same_nodes(struct wnw__wrap_run *r, struct ggml_cgraph *graph)
{
    const int n = ggml_graph_n_nodes(graph);
    struct ggml_cgraph *out = wnw__wrap_graph_new(r, n);
    for (int i = 0; out && i < n; i++)
        ggml_graph_add_node(out, ggml_graph_node(graph, i));
    return out;
}

/* The graph if it may be given by its number, else one with the same nodes; NULL: no memory. */
static struct ggml_cgraph *by_number(struct wnw__wrap_run *r, struct ggml_cgraph *graph, uint64_t places)
{
    const struct ggml_tensor *first = ggml_graph_node(graph, 0);
    struct wnw__wrap_numbered *known = numbered(r, first);
    if (known->first != first || (known->places != 0 && known->places != places))
        return same_nodes(r, graph);
    known->places = places;
    return graph;
}

/* *n: tensors that the caller points back, also after a failure. */
static int point_all(struct wnw__wrap_run *r, const struct wnw__wrap_look *look, uint64_t key, size_t *n)
{
    struct wnw__wrap_points *p = &r->points;
    if (key == 0 || p->key != key)
        WNW_TRY(collect_all(p, look));
    for (size_t i = 0; i < p->n; i++)
        WNW_TRY(wnw__wrap_rect_grow(p->list[i].mine->layer, p->list[i].rows));
    WNW_TRY(reach_written(r, look));
    while (*n < p->n)
        WNW_TRY(point_one(r, &p->list[(*n)++]));
    return WNW_OK;
}

static enum ggml_status run_pointed(struct wnw__wrap_run *r, const struct wnw__wrap_look *look,
                                    struct ggml_cgraph *run, uint64_t key)
{
    const uint64_t places = places_of(&r->points);
    uint64_t what = key != 0 ? wnw__mix(wnw__mix(key ^ r->id) + places) | 1 : 0;
    if (run == look->graph) {
        run = by_number(r, run, places);
        what = run == look->graph ? 0 : what; /* X's client knows it */
    }
    return run ? wnw__wrap_compute(r->w, r->x, run, what) : GGML_STATUS_ALLOC_FAILED;
}

enum ggml_status wnw__wrap_pointed(struct wnw__wrap_run *r, const struct wnw__wrap_look *look,
                                   struct ggml_cgraph *run, uint64_t key)
{
    struct wnw__wrap_points *p = &r->points;
    enum ggml_status status = GGML_STATUS_ALLOC_FAILED;
    size_t n = 0;
    const int rc = point_all(r, look, key, &n);
    p->key = rc == WNW_OK ? key : 0;
    if (rc == WNW_OK)
        status = run_pointed(r, look, run, key);
    else
        wnw__log(WNW_LOG_WARN, "winnow: %s", wnw_last_error());
    while (n > 0)
        if (!p->list[--n].twice)
            point_back(&p->list[n]);
    return status;
}

void wnw__wrap_points_free(struct wnw__wrap_points *p)
{
    free(p->list);
    *p = (struct wnw__wrap_points){0};
}
