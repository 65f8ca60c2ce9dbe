/* SPDX-License-Identifier: MIT */
/*
 * A row belongs to the sequence of the cells that it sees. It is alone where no other row of the batch belongs to its
 * sequence. A prompt has ended when its sequence has two rows that are alone, one after the other: the last token of a
 * prompt may be alone because a batch was full before it, and the first generated one then follows.
 *
 * Cells are told apart by the order in which they were written, which takes the place of positions: libllama's are not
 * among what a backend sees, and shifts change them.
 */
#include "bridge/bridge_watch.h"

#include "base/vectors.h"
#include "bridge/bridge_plan.h"
#include "policy/policy.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The policy ---- */

static int check_needs(const wnw_policy *p, const wnw_needs *needs)
{
    const uint32_t can = WNW_NEED_WINDOW_ATTN | WNW_NEED_KEYS | WNW_NEED_VALUES;
    for (int32_t bit = 0; bit < 32; bit++)
        if (needs->flags & ~can & (1u << bit))
            return wnw__fail(WNW_E_UNSUPPORTED,
                             "%s needs %s, which the backend under libllama does not observe",
                             wnw__policy_name(p), wnw_need_name(bit));
    if (wnw__policy_has(p, WNW_PART_POSITIONS, WNW_FLAG_REROTATES))
        return wnw__fail(WNW_E_UNSUPPORTED, "+rerotate: positions are libllama's under the backend");
    if (wnw__contents_of(p)->merge || wnw__contents_of(p)->prune)
        return wnw__fail(WNW_E_UNSUPPORTED, "+%s writes into entries, which the backend does not do yet",
                         wnw__contents_of(p)->part.name);
    return WNW_OK;
}

int wnw__bridge_watch_set(struct wnw__bridge_watch *w, const char *recipe, const wnw_size *size,
                          bool by_itself)
{
    wnw_policy *policy = NULL;
    WNW_TRY(wnw_policy_parse(&policy, recipe, NULL));
    const wnw_needs needs = wnw_policy_needs(policy);
    const int rc = check_needs(policy, &needs);
    if (rc != WNW_OK) {
        wnw_policy_free(policy);
        return rc;
    }
    wnw_policy_free(w->policy);
    w->policy = policy;
    w->needs = needs;
    w->size = size ? *size : (wnw_size){.kind = WNW_SIZE_NONE};
    w->by_itself = by_itself;
    return WNW_OK;
}

/* A number of the environment, which is all of the variable, within bounds. */
static int number_of(const char *variable, const char *text, double least, double most, double *out)
{
    char *end;
    errno = 0;
    *out = strtod(text, &end);
    if (errno || end == text || *end || !(*out >= least && *out <= most))
        return wnw__fail(WNW_E_ARG, "%s is '%.40s': it is a number from %g to %g", variable, text, least,
                         most);
    return WNW_OK;
}

/* Sets the size that one variable names; n counts those that are set. */
static int take_size(const char *variable, wnw_size_kind kind, double least, double most, wnw_size *size,
                     int *n)
{
    const char *text = getenv(variable);
    double x;
    if (!text || !*text)
        return WNW_OK;
    WNW_TRY(number_of(variable, text, least, most, &x));
    size->kind = kind;
    size->budget = kind == WNW_SIZE_BUDGET ? (int64_t)x : 0;
    size->ratio = kind == WNW_SIZE_RATIO ? x : 0.0;
    size->bytes = kind == WNW_SIZE_BYTES ? (uint64_t)x : 0;
    (*n)++;
    return WNW_OK;
}

int wnw__bridge_watch_set_from_environment(struct wnw__bridge_watch *w)
{
    const char *recipe = getenv("WINNOW_POLICY");
    wnw_size size = {.kind = WNW_SIZE_NONE};
    int n = 0;
    if (!recipe || !*recipe)
        return WNW_OK;
    WNW_TRY(take_size("WINNOW_BUDGET", WNW_SIZE_BUDGET, 1.0, 2147483647.0, &size, &n));
    WNW_TRY(take_size("WINNOW_RATIO", WNW_SIZE_RATIO, 0.0, nextafter(1.0, 0.0), &size, &n));
    WNW_TRY(take_size("WINNOW_KV_BYTES", WNW_SIZE_BYTES, 1.0, 1e15, &size, &n));
    if (n > 1)
        return wnw__fail(WNW_E_ARG, "WINNOW_BUDGET, WINNOW_RATIO and WINNOW_KV_BYTES exclude each other");
    return wnw__bridge_watch_set(w, recipe, &size, true);
}

void wnw__bridge_watch_free(struct wnw__bridge_watch *w)
{
    wnw_policy_free(w->policy);
    free(w->last.cell);
    *w = (struct wnw__bridge_watch){0};
}

/* ---- Rows of a batch ---- */

/* The rows of a graph and what they see. Rows are those of one stream after the other. */
struct batch {
    struct wnw__bridge_cache *cache;
    const struct wnw__bridge_layer *layer;
    const struct ggml_tensor *mask;
    int32_t first_stream, n_stream, n_row, n_cell; /* rows of each stream; columns of the mask */
    const int32_t *own;                            /* [n_stream * n_row] their cells, within their stream */
};

static bool sees(const struct batch *batch, int32_t stream, int32_t row, int32_t cell)
{
    const struct ggml_tensor *m = batch->mask;
    const char *at =
        (const char *)m->data + (m->ne[3] > 1 ? (size_t)stream * m->nb[3] : 0) + (size_t)row * m->nb[1];
    if (cell >= batch->n_cell)
        return false;
    return m->type == GGML_TYPE_F16 ? ((const uint16_t *)(const void *)at)[cell] != 0xfc00
                                    : ((const float *)(const void *)at)[cell] != -INFINITY;
}

static bool is_alone(const struct batch *batch, int32_t stream, int32_t row)
{
    const int32_t *own = batch->own + (int64_t)stream * batch->n_row;
    for (int32_t i = 0; i < batch->n_row; i++)
        if (i != row && (sees(batch, stream, row, own[i]) || sees(batch, stream, i, own[row])))
            return false;
    return true;
}

static struct wnw__bridge_note *notes_of(const struct batch *batch, int32_t stream)
{
    return batch->cache->note + (int64_t)(batch->first_stream + stream) * batch->cache->n_cell;
}

struct ordered {
    int32_t order, cell;
};

/* Sets *live to the cells that a row sees, without its own, in the order in which they were written. */
static int list_live(const struct batch *batch, int32_t stream, int32_t row, struct wnw__bridge_live *live)
{
    const struct wnw__bridge_note *note = notes_of(batch, stream);
    const int32_t own = batch->own[(int64_t)stream * batch->n_row + row];
    struct ordered *found = malloc(((size_t)batch->n_cell + 1) * sizeof *found);
    int32_t n = 0;
    if (found && batch->n_cell + 1 > live->room) {
        int32_t *more = realloc(live->cell, ((size_t)batch->n_cell + 1) * sizeof *more);
        live->cell = more ? more : live->cell;
        live->room = more ? batch->n_cell + 1 : live->room;
    }
    if (!found || batch->n_cell + 1 > live->room) {
        free(found);
        return wnw__fail(WNW_E_NOMEM, "no memory for the cells of a sequence");
    }
    for (int32_t cell = 0; cell < batch->n_cell; cell++)
        if (cell != own && sees(batch, stream, row, cell))
            found[n++] = (struct ordered){.order = note[cell].order, .cell = cell};
    qsort(found, (size_t)n, sizeof *found, wnw__ascending_i32);
    for (int32_t i = 0; i < n; i++)
        live->cell[i] = found[i].cell;
    live->n = n;
    live->cache = batch->cache;
    live->stream = batch->first_stream + stream;
    free(found);
    return WNW_OK;
}

/* Whether the prompt of a sequence has ended whose next row is alone, and has brought enough that no policy has seen. */
static bool is_due(const struct batch *batch, int32_t stream, const struct wnw__bridge_live *live)
{
    const struct wnw__bridge_note *note = notes_of(batch, stream);
    int32_t n_new = 0;
    if (live->n == 0 || !note[live->cell[live->n - 1]].alone)
        return false;
    for (int32_t i = 0; i < live->n; i++)
        n_new += !note[live->cell[i]].seen && !note[live->cell[i]].alone;
    return n_new >= WNW_BRIDGE_LEAST_NEW;
}

static void note_row(const struct batch *batch, int32_t stream, int32_t row, bool alone)
{
    notes_of(batch, stream)[batch->own[(int64_t)stream * batch->n_row + row]] =
        (struct wnw__bridge_note){.order = ++batch->cache->n_written, .alone = alone};
}

/* Whether so few rows of its sequence come after a row that its query is in their window. */
static bool is_newest(const struct batch *batch, int32_t stream, int32_t row, int32_t window)
{
    const int32_t cell = batch->own[(int64_t)stream * batch->n_row + row];
    int32_t n = 0;
    for (int32_t i = row + 1; i < batch->n_row && n < window; i++)
        n += sees(batch, stream, i, cell);
    return n < window;
}

static int look_at(struct wnw__bridge_backend *b, const struct batch *batch)
{
    struct wnw__bridge_watch *w = &b->watch;
    for (int32_t s = 0; s < batch->n_stream; s++)
        for (int32_t row = 0; row < batch->n_row; row++) {
            const bool alone = is_alone(batch, s, row);
            if (alone && w->by_itself) {
                WNW_TRY(list_live(batch, s, row, &w->last));
                if (is_due(batch, s, &w->last))
                    WNW_TRY(wnw__bridge_compress(b, &w->last));
            }
            note_row(batch, s, row, alone);
        }
    WNW_TRY(list_live(batch, batch->n_stream - 1, batch->n_row - 1, &w->last));
    w->last.cell[w->last.n++] = batch->own[(int64_t)batch->n_stream * batch->n_row - 1];
    return WNW_OK;
}

/* ---- A graph ---- */

/* The attention over a layer that a graph has; NULL if there is none. */
static const struct ggml_tensor *attention_of(struct ggml_cgraph *graph, const struct wnw__bridge_layer *l)
{
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        const int32_t what = wnw__bridge_node_get(node).what;
        if ((what == WNW_BRIDGE_ATTEND || what == WNW_BRIDGE_ATTEND_CHAIN) &&
            wnw__bridge_tensor_of(node->src[1])->layer == l)
            return node;
    }
    return NULL;
}

/* The mask as libllama wrote it: a graph may convert it to another type first. */
static const struct ggml_tensor *input_of(const struct ggml_tensor *mask)
{
    while (mask && strcmp(ggml_op_name(mask->op), "NONE") != 0)
        mask = mask->src[0];
    return mask && mask->data && (mask->type == GGML_TYPE_F16 || mask->type == GGML_TYPE_F32) ? mask : NULL;
}

static bool need_notes(struct wnw__bridge_cache *c, const struct wnw__bridge_tensor *t)
{
    if (!c->note) {
        c->n_cell = t->n_cell;
        c->note = calloc((size_t)t->n_cell * (size_t)t->n_stream, sizeof *c->note);
    }
    return c->note && c->n_cell == t->n_cell;
}

/* Looks at the rows that a store writes, the first of its cache in a graph. */
static int look_at_store(struct wnw__bridge_backend *b, struct ggml_cgraph *graph,
                         const struct ggml_tensor *node)
{
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
    const struct ggml_tensor *attend = attention_of(graph, t->layer);
    const struct ggml_tensor *mask = attend ? input_of(attend->src[3]) : NULL;
    if (!mask || !need_notes(t->layer->cache, t))
        return WNW_OK;
    const struct ggml_tensor *q = attend->src[0], *k = attend->src[1];
    struct batch batch = {
        .cache = t->layer->cache,
        .layer = t->layer,
        .mask = mask,
        .n_stream = (int32_t)k->ne[3],
        .n_row = (int32_t)q->ne[1],
        .n_cell = (int32_t)k->ne[1],
        .first_stream = (int32_t)(k->view_offs / (ggml_row_size(t->type, t->n_embd) * (size_t)t->n_cell)),
    };
    const int64_t n = (int64_t)batch.n_stream * batch.n_row;
    int32_t *own = malloc((size_t)n * sizeof *own);
    bool *unkept = calloc((size_t)n, sizeof *unkept);
    if (!own || !unkept) {
        free(own);
        free(unkept);
        return wnw__fail(WNW_E_NOMEM, "no memory for the cells of %lld rows", (long long)n);
    }
    bool fits = wnw__bridge_store_rows(node) == n;
    for (int64_t i = 0; fits && i < n; i++) {
        const int64_t cell = wnw__bridge_store_cell(node, i);
        fits = cell / t->n_cell == batch.first_stream + i / batch.n_row;
        own[i] = (int32_t)(cell % t->n_cell);
    }
    batch.own = own;
    const int rc = fits ? look_at(b, &batch) : WNW_OK;
    for (int64_t i = 0; fits && i < n; i++)
        unkept[i] =
            !is_newest(&batch, (int32_t)(i / batch.n_row), (int32_t)(i % batch.n_row), b->watch.needs.window);
    for (int64_t i = 0; i < n; i++)
        own[i] = unkept[i] ? -1 : own[i];
    free(unkept);
    free(b->watch_own);
    b->watch_own = own;
    b->watch_n_own = fits ? n : 0;
    return rc;
}

/* libllama makes two caches for a model whose layers have windows and others not: first that of the others, which has at
 * least as many cells. */
static bool comes_before(const struct wnw__bridge_layer *a, const struct wnw__bridge_layer *l)
{
    return a->kind == WNW_BRIDGE_RAGGED && a->cache != l->cache &&
           (a->k.n_cell > l->k.n_cell || (a->k.n_cell == l->k.n_cell && a->cache->made < l->cache->made));
}

bool wnw__bridge_is_sliding(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l)
{
    for (int32_t c = 0; c < b->n_cache; c++)
        for (int32_t i = 0; i < b->caches[c]->n_layer; i++)
            if (comes_before(b->caches[c]->layers[i], l))
                return true;
    return false;
}

void wnw__bridge_watch_graph(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    if (!b->watch.policy)
        return;
    b->watch_n_own = 0;
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        if (wnw__bridge_node_get(node).what != WNW_BRIDGE_STORE)
            continue;
        const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
        if (t->is_v || wnw__bridge_is_sliding(b, t->layer))
            continue;
        if (look_at_store(b, graph, node) != WNW_OK)
            wnw__log(WNW_LOG_WARN, "winnow: %s", wnw_last_error());
        return; /* the rows of the other layers are the same */
    }
}

/* ---- Queries ---- */

/* Windows that a layer's ring of queries has room for: of several sequences, each batch of which may bring one. */
enum { WINDOWS = 16 };

static bool need_ring(struct wnw__bridge_layer *l, const struct wnw__cells_op *op, int32_t window)
{
    if (l->q)
        return l->q_room >= window;
    const size_t n = (size_t)window * WINDOWS;
    l->q = malloc(n * (size_t)op->n_head * (size_t)op->d_k * sizeof *l->q);
    l->q_cell = malloc(n * sizeof *l->q_cell);
    if (!l->q || !l->q_cell) {
        free(l->q);
        free(l->q_cell);
        l->q = NULL;
        l->q_cell = NULL;
        return false;
    }
    l->q_room = (int32_t)n;
    l->n_q_head = op->n_head;
    for (int32_t i = 0; i < l->q_room; i++)
        l->q_cell[i] = -1;
    return true;
}

static void keep_query(struct wnw__bridge_layer *l, const struct wnw__cells_op *op, int32_t stream,
                       int32_t row, int32_t cell)
{
    const char *q = op->q + (size_t)stream * op->q_stream + (size_t)row * op->q_row;
    float *to = l->q + (size_t)l->q_at * (size_t)op->n_head * (size_t)op->d_k;
    for (int32_t h = 0; h < op->n_head; h++, to += op->d_k)
        memcpy(to, q + (size_t)h * op->q_head, (size_t)op->d_k * sizeof *to);
    l->q_cell[l->q_at] = (op->first_stream + stream) * l->k.n_cell + cell;
    l->q_at = (l->q_at + 1) % l->q_room;
}

void wnw__bridge_watch_queries(struct wnw__bridge_backend *b, const struct wnw__cells_op *op,
                               struct wnw__bridge_layer *l)
{
    const int32_t window = b->watch.needs.window;
    l->scale = op->scale;
    if (!(b->watch.needs.flags & WNW_NEED_WINDOW_ATTN) || window < 1 ||
        b->watch_n_own != (int64_t)op->n_stream * op->n_row || wnw__bridge_is_sliding(b, l) ||
        !need_ring(l, op, window) || l->n_q_head != op->n_head)
        return;
    for (int32_t s = 0; s < op->n_stream; s++)
        for (int32_t row = 0; row < op->n_row; row++)
            if (b->watch_own[(int64_t)s * op->n_row + row] >= 0)
                keep_query(l, op, s, row, b->watch_own[(int64_t)s * op->n_row + row]);
}
