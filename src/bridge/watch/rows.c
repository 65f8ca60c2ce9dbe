/* SPDX-License-Identifier: MIT */
/* For programs that know which sequence each row of a batch has, as a server does: where rows were written, and compressing
 * and freeing the cells that the program names (winnow_bridge.h). */
#include "base/err.h"
#include "base/vectors.h"
#include "bridge/sequence/sample.h"
#include "bridge/watch/watch.h"
#include "policy/policy.h"
#include "winnow_bridge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct wnw__bridge_backend *backend_of(const wnw_bridge *cache)
{
    return (struct wnw__bridge_backend *)(uintptr_t)cache;
}

/* ---- Where rows go ---- */

/* The mask of the attention over a layer as libllama wrote it; NULL if there is none. */
static const struct ggml_tensor *mask_of(const struct wnw__bridge_backend *b, struct ggml_cgraph *graph,
                                         const struct wnw__bridge_layer *l)
{
    const struct ggml_tensor *attend = wnw__bridge_attention_of(b, graph, l);
    const struct ggml_tensor *mask = attend ? wnw__bridge_input_of(attend->src[3]) : NULL;
    return mask && mask->ne[3] == 1 ? mask : NULL;
}

int wnw_bridge_seen(const wnw_bridge *cache, int32_t row, int32_t *cells, int32_t n, int32_t *n_cells)
{
    WNW_REQUIRE(cache);
    WNW_REQUIRE(n_cells);
    if (n > 0)
        WNW_REQUIRE(cells);
    const struct wnw__bridge_backend *b = backend_of(cache);
    while (b->other && !b->rows_mask)
        b = b->other;
    const struct ggml_tensor *mask = b->rows_mask;
    if (!mask || row < 0 || row >= mask->ne[1])
        return wnw__fail(WNW_E_NOT_OBSERVED, "no graph shows what row %d sees", (int)row);
    const char *at = (const char *)mask->data + (size_t)row * mask->nb[1];
    *n_cells = 0;
    for (int32_t cell = 0; cell < mask->ne[0]; cell++) {
        const bool sees = mask->type == GGML_TYPE_F16 ? ((const uint16_t *)(const void *)at)[cell] != 0xfc00
                                                      : ((const float *)(const void *)at)[cell] != -INFINITY;
        if (sees && *n_cells < n)
            cells[*n_cells] = cell;
        *n_cells += sees;
    }
    return WNW_OK;
}

/* Notes for cells of layers with windows, which lie elsewhere, with which of the others they were written. */
static void note_twins(const struct wnw__bridge_tensor *t, const struct ggml_tensor *node,
                       const int32_t *cell, int64_t n)
{
    struct wnw__bridge_cache *c = t->layer->cache;
    const size_t n_all = (size_t)t->n_cell * (size_t)t->n_stream;
    if (!c->twin && (c->twin = malloc(n_all * sizeof *c->twin)))
        for (size_t i = 0; i < n_all; i++)
            c->twin[i] = -1;
    for (int64_t i = 0; c->twin && i < n; i++)
        c->twin[wnw__bridge_store_cell(node, i)] = cell[i];
}

static void note_all_twins(const struct wnw__bridge_backend *b, struct ggml_cgraph *graph,
                           const int32_t *cell, int64_t n)
{
    const struct wnw__bridge_cache *done = NULL;
    for (int i = 0; b->n_cache > 1 && i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        if (wnw__bridge_node_get(b, node).what != WNW_BRIDGE_STORE)
            continue;
        const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
        if (t->is_v || t->layer->cache == done || wnw__bridge_store_rows(node) != n ||
            !wnw__bridge_is_sliding(b, t->layer))
            continue;
        note_twins(t, node, cell, n);
        done = t->layer->cache;
    }
}

/* Whether a layer is the first of its context that policies act on: a batch is reported once. */
static bool comes_first(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l)
{
    for (const struct wnw__bridge_backend *of = b->first ? b->first : b; of; of = b->first ? of->other : NULL)
        for (int32_t c = 0; c < of->n_cache; c++)
            for (int32_t i = 0; i < of->caches[c]->n_layer; i++) {
                const struct wnw__bridge_layer *before = of->caches[c]->layers[i];
                if (before->il < l->il && wnw__bridge_acts_on(of, before))
                    return false;
            }
    return true;
}

/* Queries of rows that the program has named are not kept of later layers of the batch either. */
static void skip_named(struct wnw__bridge_backend *b)
{
    for (int32_t i = 0; i < b->n_skipped; i++)
        wnw__bridge_record_skip(b, b->skipped[i]);
}

void wnw__bridge_rows_tell(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    const struct ggml_tensor *node = b->rows_told ? wnw__bridge_first_store(b, graph) : NULL;
    if (!node)
        return;
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
    const bool tells = comes_first(b, t->layer);
    const int64_t n = wnw__bridge_store_rows(node);
    int32_t *cell = malloc(((size_t)n + 1) * sizeof *cell);
    for (int64_t i = 0; cell && i < n; i++)
        cell[i] = (int32_t)wnw__bridge_store_cell(node, i);
    if (cell)
        note_all_twins(b, graph, cell, n);
    if (!tells) {
        skip_named(b);
        free(cell);
        return;
    }
    for (struct wnw__bridge_backend *of = b->first; of; of = of->other)
        of->n_skipped = 0;
    b->n_skipped = 0;
    b->tells = true;
    b->rows_mask = mask_of(b, graph, t->layer);
    b->rows_told(cell, cell ? (int32_t)n : 0, t->n_cell * t->n_stream, b->rows_user);
    b->rows_mask = NULL;
    b->tells = false;
    free(cell);
}

int wnw_bridge_tell_rows(wnw_bridge *cache, wnw_bridge_rows on_rows, void *user)
{
    WNW_REQUIRE(cache);
    for (struct wnw__bridge_backend *b = backend_of(cache); b; b = b->other) {
        b->rows_told = on_rows;
        b->rows_user = user;
    }
    return WNW_OK;
}

/* Notes a row whose query is not kept of the layers whose graphs follow. */
static int skip_later(struct wnw__bridge_backend *b, int32_t row)
{
    if (b->n_skipped == b->cap_skipped) {
        const int32_t cap = b->cap_skipped > 0 ? 2 * b->cap_skipped : 64;
        int32_t *more = realloc(b->skipped, (size_t)cap * sizeof *more);
        if (!more)
            return wnw__fail(WNW_E_NOMEM, "no memory to list rows");
        b->skipped = more;
        b->cap_skipped = cap;
    }
    b->skipped[b->n_skipped++] = row;
    return WNW_OK;
}

int wnw_bridge_skip_query(wnw_bridge *cache, int32_t row)
{
    WNW_REQUIRE(cache);
    for (struct wnw__bridge_backend *b = backend_of(cache); b; b = b->other) {
        WNW_TRY(skip_later(b, row));
        if (b->tells || !b->other)
            wnw__bridge_record_skip(b, row);
    }
    return WNW_OK;
}

/* ---- Policies of sequences ---- */

static int observe(struct wnw__bridge_backend *b, const char *recipe)
{
    struct wnw__bridge_watch *w = &b->watch;
    wnw_policy *policy = NULL;
    if (!w->policy) {
        WNW_TRY(wnw__bridge_watch_set(w, recipe, NULL, false));
        return wnw__bridge_watch_check(b);
    }
    WNW_TRY(wnw_policy_parse(&policy, recipe, w->registry));
    const wnw_needs needs = wnw_policy_needs(policy);
    int rc = wnw_bridge_check_policy(policy, w->profile);
    if (rc == WNW_OK && b->far)
        rc = b->far->check_policy(b, policy, &needs);
    if (rc == WNW_OK)
        rc = wnw__bridge_add_needs(&w->needs, &needs);
    wnw_policy_free(policy);
    return rc;
}

int wnw_bridge_observe(wnw_bridge *cache, const char *recipe)
{
    WNW_REQUIRE(cache);
    WNW_REQUIRE(recipe);
    for (struct wnw__bridge_backend *b = backend_of(cache); b; b = b->other)
        WNW_TRY(observe(b, recipe));
    return WNW_OK;
}

int wnw_bridge_unobserve(wnw_bridge *cache)
{
    WNW_REQUIRE(cache);
    for (struct wnw__bridge_backend *b = backend_of(cache); b; b = b->other)
        b->watch.needs = (wnw_needs){0};
    return WNW_OK;
}

/* One of a context's devices that has layers on which policies act; the first where none has. */
static const struct wnw__bridge_backend *with_layers(const struct wnw__bridge_backend *b)
{
    const struct wnw__bridge_backend *of = b;
    while (of && !wnw__bridge_some_layer(of))
        of = of->other;
    return of ? of : b;
}

/* The layer whose cells the numbers mean, and which has all of them; NULL if there is none. */
static const struct wnw__bridge_layer *check_cells(const struct wnw__bridge_backend *b, const int32_t *cell,
                                                   int32_t n)
{
    const struct wnw__bridge_layer *l = wnw__bridge_some_layer(b);
    if (!l) {
        wnw__fail(WNW_E_UNSUPPORTED,
                  "no layer of this cache is on the device WINNOW: nothing can be compressed");
        return NULL;
    }
    for (int32_t i = 0; i < n; i++)
        if (cell[i] < 0 || cell[i] >= l->k.n_cell) {
            wnw__fail(WNW_E_RANGE, "cell %d of a cache with %d", (int)cell[i], (int)l->k.n_cell);
            return NULL;
        }
    return l;
}

/* Whether a policy keeps n first entries that a chat template wrote, regardless of their scores. */
static bool protects(const wnw_policy *policy, int32_t n_cells, int32_t n)
{
    const wnw_keep_problem problem = {
        .n = n_cells, .budget = n_cells, .sized = true, .n_prefix = n, .n_here = n};
    return wnw__policy_keep(policy, &problem).n_first >= n;
}

/* Copies the cells that the policy is to see, and adds a header that it sees and keeps to the size. */
static int take_cells(struct wnw__bridge_sequence_cells *sequence_cells, wnw_size *size,
                      const wnw_bridge_cells_of *of)
{
    const bool sees = of->n_prefix > 0 && protects(of->policy, of->n_prefix + of->n_cells, of->n_prefix);
    const int32_t n_prefix = sees ? of->n_prefix : 0;
    *size = of->size ? *of->size : (wnw_size){.kind = WNW_SIZE_NONE};
    sequence_cells->n_prefix = n_prefix;
    if (size->kind == WNW_SIZE_BUDGET)
        size->budget += n_prefix;
    sequence_cells->n = sequence_cells->room = n_prefix + of->n_cells;
    sequence_cells->cell = malloc((size_t)sequence_cells->n * sizeof *sequence_cells->cell);
    if (!sequence_cells->cell)
        return wnw__fail(WNW_E_NOMEM, "no memory for the cells of a sequence");
    memcpy(sequence_cells->cell, of->prefix, (size_t)n_prefix * sizeof *sequence_cells->cell);
    memcpy(sequence_cells->cell + n_prefix, of->cells, (size_t)of->n_cells * sizeof *sequence_cells->cell);
    return WNW_OK;
}

/* Bytes of one entry in all heads of the layers of a device that policies act on. */
static double entry_bytes(const struct wnw__bridge_backend *b)
{
    double bytes = 0.0;
    for (int32_t c = 0; c < b->n_cache; c++)
        for (int32_t i = 0; i < b->caches[c]->n_layer; i++) {
            const struct wnw__bridge_layer *l = b->caches[c]->layers[i];
            if (wnw__bridge_acts_on(b, l))
                bytes += (double)l->n_head * (double)(ggml_row_size(l->k.type, l->d_k) +
                                                      (l->v.base ? ggml_row_size(l->v.type, l->d_v) : 0));
        }
    return bytes;
}

/* The part of a size that is a device's: bytes are shared by the layers. */
static void share_size(wnw_size *size, const struct wnw__bridge_backend *b)
{
    double all = 0.0;
    if (size->kind != WNW_SIZE_BYTES || !b->first || !b->first->other)
        return;
    for (const struct wnw__bridge_backend *of = b->first; of; of = of->other)
        all += entry_bytes(of);
    size->bytes = all > 0.0 ? (uint64_t)((double)size->bytes * entry_bytes(b) / all) : size->bytes;
}

/* The part of a sample that was taken on a device; NULL: none was. */
static const struct wnw_bridge_sample *sample_on(const wnw_bridge_sample *sample,
                                                 const struct wnw__bridge_cache *cache)
{
    while (sample && sample->cache != cache)
        sample = sample->next;
    return sample;
}

/* The same of both lists that a sequence has, as take_prefix leaves them. */
static const struct wnw__bridge_layer *check_sequence(const struct wnw__bridge_backend *b,
                                                      const wnw_bridge_cells_of *of)
{
    return check_cells(b, of->cells, of->n_cells) ? check_cells(b, of->prefix, of->n_prefix) : NULL;
}

/* `of` as take_prefix leaves it. n_settled: first entries that are settled at least. */
static int compress_cells(struct wnw__bridge_backend *b, const wnw_bridge_cells_of *of, int32_t n_settled)
{
    struct wnw__bridge_watch *w = &b->watch;
    const struct wnw__bridge_layer *l = check_sequence(b, of);
    if (!l)
        return WNW_E_RANGE;
    struct wnw__bridge_sequence_cells sequence_cells = {
        .cache = l->cache, .sample = sample_on(of->sample, l->cache), .n_settled = n_settled};
    wnw_policy *const policy = w->policy;
    const wnw_size size = w->size;
    wnw_size own;
    WNW_TRY(take_cells(&sequence_cells, &own, of));
    share_size(&own, b);
    w->policy = (wnw_policy *)(uintptr_t)of->policy; /* read only */
    w->size = own;
    const int rc = wnw__bridge_compress(b, &sequence_cells);
    w->policy = policy;
    w->size = size;
    free(sequence_cells.cell);
    if (rc == WNW_OK && of->n_settled && sequence_cells.settles > *of->n_settled)
        *of->n_settled = sequence_cells.settles;
    return rc;
}

/* Leaves the header's cells in prefix[n_prefix] and those that follow it in cells[n_cells], whichever way the caller named them. */
static int take_prefix(wnw_bridge_cells_of *of)
{
    const int32_t n_within = of->prefix ? 0 : of->n_prefix;
    if (of->n_prefix < 0 || of->n_cells < 1 || of->n_cells <= n_within ||
        of->n_prefix > INT32_MAX - of->n_cells)
        return wnw__fail(WNW_E_ARG, "%d cells are named, and %d %s of a header: there is nothing to compress",
                         (int)of->n_cells, (int)of->n_prefix, of->prefix ? "others" : "of them");
    if (of->prefix)
        return WNW_OK;
    of->prefix = of->cells;
    of->cells += n_within;
    of->n_cells -= n_within;
    return WNW_OK;
}

int wnw_bridge_compress_cells(wnw_bridge *cache, const wnw_bridge_cells_of *cells_of)
{
    wnw_bridge_cells_of of = wnw_bridge_cells_of_default();
    WNW_REQUIRE(cache);
    WNW_REQUIRE(cells_of);
    WNW_TRY(WNW_SIZED_TAKE(wnw_bridge_cells_of, &of, cells_of));
    WNW_REQUIRE(of.policy);
    WNW_REQUIRE(of.cells);
    WNW_TRY(take_prefix(&of));
    const struct wnw__bridge_backend *some = with_layers(backend_of(cache));
    if (!check_sequence(some, &of))
        return WNW_E_RANGE;
    const int32_t n_settled = of.n_settled ? *of.n_settled : 0;
    if (of.n_settled)
        *of.n_settled = 0;
    for (struct wnw__bridge_backend *b = backend_of(cache); b; b = b->other)
        if (wnw__bridge_some_layer(b))
            WNW_TRY(compress_cells(b, &of, n_settled));
    return WNW_OK;
}

/* Takes a sample on one device, in front of those of others. */
static int take_sample(wnw_bridge_sample **list, struct wnw__bridge_backend *b,
                       const wnw_bridge_sample_of *of)
{
    wnw_bridge_sample *sample;
    const struct wnw__bridge_layer *l = check_cells(b, of->cells, of->n_cells);
    if (!l)
        return WNW_E_RANGE;
    const struct wnw__bridge_sequence_cells sequence_cells = {
        .cache = l->cache, .n = of->n_cells, .cell = (int32_t *)(uintptr_t)of->cells}; /* read only */
    WNW_TRY(wnw__bridge_sample_new(&sample, b, &sequence_cells, of));
    sample->next = *list;
    *list = sample;
    return WNW_OK;
}

int wnw_bridge_sample_new(wnw_bridge_sample **out, wnw_bridge *cache, const wnw_bridge_sample_of *sample_of)
{
    wnw_bridge_sample_of of = wnw_bridge_sample_of_default();
    wnw_bridge_sample *list = NULL;
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(cache);
    WNW_REQUIRE(sample_of);
    WNW_TRY(WNW_SIZED_TAKE(wnw_bridge_sample_of, &of, sample_of));
    WNW_REQUIRE(of.cells);
    int rc = check_cells(with_layers(backend_of(cache)), of.cells, of.n_cells) ? WNW_OK : WNW_E_RANGE;
    for (struct wnw__bridge_backend *b = backend_of(cache); rc == WNW_OK && b; b = b->other)
        if (wnw__bridge_some_layer(b))
            rc = take_sample(&list, b, &of);
    if (rc != WNW_OK) {
        wnw_bridge_sample_free(list);
        return rc;
    }
    *out = list;
    return WNW_OK;
}

/* ---- Freeing ---- */

/* Lists in keep[] the entries of a head whose cells are not marked dead; returns their number. */
static int32_t list_alive(const struct wnw__kv_layer *kv, int32_t i, const bool *dead, int32_t *keep)
{
    int32_t n = 0;
    for (int32_t e = 0; e < kv->len[i]; e++)
        if (!dead[kv->pos[kv->off[i] + e]])
            keep[n++] = e;
    return n;
}

static int forget_in(struct wnw__bridge_layer *l, const bool *dead)
{
    if (l->far)
        return l->far->forget(l, dead);
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    const int32_t n_head = l->rows.n_head_kv > 0 ? l->rows.n_head_kv : 0;
    size_t n = 0;
    int32_t n_left = 0;
    int rc = WNW_E_NOMEM;
    for (int32_t i = 0; i < n_head; i++)
        n += (size_t)kv->len[i];
    int32_t *all = malloc((n + 1) * sizeof *all), *n_keep = calloc((size_t)n_head + 1, sizeof *n_keep);
    const int32_t **keep = calloc((size_t)n_head + 1, sizeof *keep);
    if (!all || !n_keep || !keep) {
        wnw__fail(rc, "no memory to free entries of layer %d", (int)l->il);
        goto done;
    }
    for (int32_t i = 0, at = 0; i < n_head; at += n_keep[i++]) {
        keep[i] = all + at;
        n_keep[i] = list_alive(kv, i, dead, all + at);
        n_left += n_keep[i];
    }
    rc = WNW_OK;
    if (n_left == 0)
        wnw__cache_clear(&l->rows);
    else if ((size_t)n_left < n)
        rc = wnw__cache_keep_layer(&l->rows, 0, keep, n_keep);
done:
    free(all);
    free(n_keep);
    free(keep);
    return rc;
}

/* Whether the layers that see the whole text have no entry left. */
static bool is_empty(const struct wnw__bridge_cache *c)
{
    for (int32_t i = 0; i < c->n_layer; i++) {
        const struct wnw__bridge_layer *l = c->layers[i];
        if (l->far && l->kind == WNW_BRIDGE_RAGGED && l->far->entries(l) > 0)
            return false;
        for (int32_t ih = 0; l->kind == WNW_BRIDGE_RAGGED && ih < l->rows.n_head_kv; ih++)
            if (l->rows.layers[0].len[ih] > 0)
                return false;
    }
    return true;
}

/* Frees what layers with windows hold of the tokens whose cells died, or where no token is left all of it: some came from a state. */
static int forget_twins(struct wnw__bridge_cache *c, const bool *dead, bool all)
{
    int rc = WNW_OK;
    const size_t n = c->n_layer > 0 ? (size_t)c->layers[0]->k.n_cell : 0;
    bool *here = c->twin ? calloc(n + 1, sizeof *here) : NULL;
    if (c->twin && !here)
        return wnw__fail(WNW_E_NOMEM, "no memory to free the cells of windows");
    for (size_t i = 0; here && i < n; i++)
        if (c->twin[i] >= 0 && dead[c->twin[i]]) {
            here[i] = true;
            c->twin[i] = -1;
        }
    for (int32_t i = 0; rc == WNW_OK && i < c->n_layer; i++) {
        struct wnw__bridge_layer *l = c->layers[i];
        if (l->kind != WNW_BRIDGE_RAGGED || l->k.n_stream != 1 || l->k.n_cell != (int32_t)n)
            continue;
        if (all && l->far)
            l->far->clear(l);
        else if (all)
            wnw__cache_clear(&l->rows);
        else if (here)
            rc = forget_in(l, here);
    }
    free(here);
    return rc;
}

static int forget_queries(struct wnw__bridge_backend *b, const int32_t *cells, int32_t n)
{
    const struct wnw__bridge_layer *first = check_cells(b, cells, n);
    if (!first)
        return WNW_E_RANGE;
    for (int32_t i = 0; i < n; i++)
        wnw__bridge_record_unasked(first, cells[i]);
    for (int32_t i = 0; i < first->cache->n_layer; i++)
        if (first->cache->layers[i]->k.n_cell == first->k.n_cell)
            wnw__bridge_record_seen(first->cache->layers[i], 0, cells, n);
    return WNW_OK;
}

static int forget_everywhere(struct wnw__bridge_backend *b, const struct wnw__bridge_layer *first,
                             const bool *dead)
{
    const struct wnw__bridge_cache *of = first->cache;
    for (int32_t i = 0; i < of->n_layer; i++) {
        struct wnw__bridge_layer *l = of->layers[i];
        if (l->k.n_cell != first->k.n_cell || l->k.n_stream != 1)
            continue;
        wnw__bridge_record_dead(l, dead);
        if (l->kind == WNW_BRIDGE_RAGGED)
            WNW_TRY(forget_in(l, dead));
    }
    const bool all = is_empty(of);
    for (int32_t c = 0; c < b->n_cache; c++)
        if (b->caches[c]->n_layer > 0 && wnw__bridge_is_sliding(b, b->caches[c]->layers[0]))
            WNW_TRY(forget_twins(b->caches[c], dead, all));
    return WNW_OK;
}

static int forget(struct wnw__bridge_backend *b, const int32_t *cells, int32_t n)
{
    const struct wnw__bridge_layer *first = check_cells(b, cells, n);
    if (!first)
        return WNW_E_RANGE;
    bool *dead = calloc((size_t)first->k.n_cell, sizeof *dead);
    if (!dead)
        return wnw__fail(WNW_E_NOMEM, "no memory to free %d cells", (int)n);
    for (int32_t i = 0; i < n; i++)
        dead[cells[i]] = true;
    const int rc = forget_everywhere(b, first, dead);
    free(dead);
    return rc == WNW_OK ? forget_queries(b, cells, n) : rc;
}

/* Acts on the cells in every device of the context that has layers. They are checked first, so that a wrong one changes nothing. */
static int on_each_device(wnw_bridge *cache, const int32_t *cells, int32_t n,
                          int (*act)(struct wnw__bridge_backend *b, const int32_t *cells, int32_t n))
{
    if (!check_cells(with_layers(backend_of(cache)), cells, n))
        return WNW_E_RANGE;
    for (struct wnw__bridge_backend *b = backend_of(cache); b; b = b->other)
        if (wnw__bridge_some_layer(b))
            WNW_TRY(act(b, cells, n));
    return WNW_OK;
}

int wnw_bridge_forget(wnw_bridge *cache, const int32_t *cells, int32_t n)
{
    WNW_REQUIRE(cache);
    if (n > 0)
        WNW_REQUIRE(cells);
    return on_each_device(cache, cells, n, forget);
}

int wnw_bridge_forget_queries(wnw_bridge *cache, const int32_t *cells, int32_t n)
{
    WNW_REQUIRE(cache);
    if (n > 0)
        WNW_REQUIRE(cells);
    return on_each_device(cache, cells, n, forget_queries);
}
