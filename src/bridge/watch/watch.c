/* SPDX-License-Identifier: MIT */
/*
 * The attention mask separates sequences: a row belongs to the sequence of the cells that it sees. It is single if no
 * other row of the batch belongs to its sequence. A prompt has ended when its sequence has two rows in a row that are
 * single. One is not enough: the last token of a prompt may be single because a batch was full before it. The first
 * generated token then follows.
 *
 * Cells are identified by the order in which they were written. Positions would not do: a backend does not see
 * libllama's, and shifts change them.
 */
#include "bridge/watch/watch.h"

#include "bridge/sequence/track.h"
#include "policy/policy.h"
#include "winnow_tools.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Rows of a batch ---- */

/* The rows of a graph and what they see. Rows are those of one stream after the other. */
struct batch {
    struct wnw__bridge_cache *cache;
    const struct wnw__bridge_layer *layer;
    const struct ggml_tensor *mask;
    int32_t first_stream, n_stream, n_row, n_cell; /* rows of each stream; columns of the mask */
    const int32_t *own;                            /* [n_stream * n_row] their cells, within their stream */
};

/* The mask of a row. */
static const void *mask_of(const struct batch *batch, int32_t stream, int32_t row)
{
    const struct ggml_tensor *m = batch->mask;
    return (const char *)m->data + (m->ne[3] > 1 ? (size_t)stream * m->nb[3] : 0) + (size_t)row * m->nb[1];
}

/* Whether the row with the mask `at` sees a cell. */
static bool is_open(const struct batch *batch, const void *at, int32_t cell)
{
    return batch->mask->type == GGML_TYPE_F16 ? ((const uint16_t *)at)[cell] != 0xfc00
                                              : ((const float *)at)[cell] != -INFINITY;
}

static bool sees(const struct batch *batch, int32_t stream, int32_t row, int32_t cell)
{
    return cell < batch->n_cell && is_open(batch, mask_of(batch, stream, row), cell);
}

static bool is_single_row(const struct batch *batch, int32_t stream, int32_t row)
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
    int32_t write_order, cell;
};

/* Cells that were written before anything was noted have no order; a text's are the first that were free. */
static int by_order(const void *a, const void *b)
{
    const struct ordered *x = a, *y = b;
    const int by = (x->write_order > y->write_order) - (x->write_order < y->write_order);
    return by ? by : (x->cell > y->cell) - (x->cell < y->cell);
}

/* Sets *sequence_cells to the cells that a row sees, without its own, in the order in which they were written. */
static int list_live(const struct batch *batch, int32_t stream, int32_t row,
                     struct wnw__bridge_sequence_cells *sequence_cells)
{
    const struct wnw__bridge_note *note = notes_of(batch, stream);
    const int32_t own = batch->own[(int64_t)stream * batch->n_row + row];
    struct ordered *found = malloc(((size_t)batch->n_cell + 1) * sizeof *found);
    int32_t n = 0;
    if (found && batch->n_cell + 1 > sequence_cells->room) {
        int32_t *more = realloc(sequence_cells->cell, ((size_t)batch->n_cell + 1) * sizeof *more);
        sequence_cells->cell = more ? more : sequence_cells->cell;
        sequence_cells->room = more ? batch->n_cell + 1 : sequence_cells->room;
    }
    if (!found || batch->n_cell + 1 > sequence_cells->room) {
        free(found);
        return wnw__fail(WNW_E_NOMEM, "no memory for the cells of a sequence");
    }
    const void *mask = mask_of(batch, stream, row);
    bool in_order = true; /* as most cells are, and thousands are listed for every token */
    for (int32_t cell = 0; cell < batch->n_cell; cell++) {
        if (cell == own || !is_open(batch, mask, cell))
            continue;
        found[n] = (struct ordered){.write_order = note[cell].write_order, .cell = cell};
        in_order = in_order && (n == 0 || by_order(&found[n - 1], &found[n]) < 0);
        n++;
    }
    if (!in_order)
        qsort(found, (size_t)n, sizeof *found, by_order);
    for (int32_t i = 0; i < n; i++)
        sequence_cells->cell[i] = found[i].cell;
    sequence_cells->n = n;
    sequence_cells->cache = batch->cache;
    sequence_cells->stream = batch->first_stream + stream;
    free(found);
    return WNW_OK;
}

/* Tokens of prompts that no compression has judged. */
static int32_t count_new(const struct batch *batch, int32_t stream,
                         const struct wnw__bridge_sequence_cells *sequence_cells)
{
    const struct wnw__bridge_note *note = notes_of(batch, stream);
    int32_t n = 0;
    for (int32_t i = 0; i < sequence_cells->n; i++)
        n += !note[sequence_cells->cell[i]].judged && !note[sequence_cells->cell[i]].single_row;
    return n;
}

/* Whether a sequence is compressed before its next row: its prompt has ended where this row and the last one are single ones. */
static bool is_due(const struct batch *batch, int32_t stream, bool single_row, int32_t chunk,
                   const struct wnw__bridge_sequence_cells *sequence_cells)
{
    const int32_t n = sequence_cells->n;
    if (single_row && (n == 0 || !notes_of(batch, stream)[sequence_cells->cell[n - 1]].single_row))
        return false;
    return wnw_turns_is_due(count_new(batch, stream, sequence_cells), chunk, single_row);
}

/* Whether a row continues the one before it in its batch. */
static bool follows(const struct batch *batch, int32_t stream, int32_t row)
{
    return row > 0 && sees(batch, stream, row, batch->own[(int64_t)stream * batch->n_row + row - 1]);
}

/* Where a row belongs, after it was noted. last: the row before it; one that sees it sees what that sees. */
static struct wnw__bridge_row place_of(const struct batch *batch, int32_t stream, int32_t row,
                                       const struct wnw__bridge_row *last)
{
    const struct wnw__bridge_note *note = notes_of(batch, stream);
    const int32_t *own = batch->own + (int64_t)stream * batch->n_row;
    struct wnw__bridge_row at = {.stream = batch->first_stream + stream, .cell = own[row], .before = -1};
    if (row > 0 && sees(batch, stream, row, last->cell)) {
        at.before = last->cell;
        at.n_before = last->n_before + 1;
        return at;
    }
    for (int32_t cell = 0; cell < batch->n_cell; cell++) {
        if (cell == own[row] || !sees(batch, stream, row, cell))
            continue;
        at.n_before++;
        at.before = at.before < 0 || note[cell].write_order > note[at.before].write_order ? cell : at.before;
    }
    return at;
}

static void note_row(const struct batch *batch, int32_t stream, int32_t row, bool single_row)
{
    notes_of(batch, stream)[batch->own[(int64_t)stream * batch->n_row + row]] =
        (struct wnw__bridge_note){.write_order = ++batch->cache->n_written, .single_row = single_row};
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

/* Whether a token of the batch sees a cell, which is counted over all streams, or is in it. */
static bool is_of_batch(const struct batch *batch, int32_t cell)
{
    const int32_t stream = cell / batch->layer->k.n_cell - batch->first_stream;
    const int32_t *own = batch->own + (int64_t)stream * batch->n_row;
    bool found = false;
    cell %= batch->layer->k.n_cell;
    if (stream < 0 || stream >= batch->n_stream)
        return false;
    for (int32_t row = batch->n_row - 1; row >= 0 && !found; row--)
        found = own[row] == cell || sees(batch, stream, row, cell);
    return found;
}

/* Whether there is more than one sequence: in the batch, or among those whose queries are kept. */
static bool has_several(const struct wnw__bridge_watch *w, const struct batch *batch)
{
    const struct wnw__bridge_queries *q = w->n_site > 0 ? &w->sites[0].layer->queries : NULL;
    bool several = batch->n_stream > 1;
    for (int32_t row = 1; row < batch->n_row && !several; row++)
        several = !follows(batch, 0, row);
    for (int32_t i = 0; q && q->q && !q->all && i < q->room && !several; i++)
        several = q->cell[i] >= 0 && !is_of_batch(batch, q->cell[i]);
    return several;
}

/* Warns once that a sequence stays as it is, with the reason. */
static void warn_once(struct wnw__bridge_watch *w, int rc)
{
    w->last_rc = rc;
    if (strcmp(w->last_warning, wnw_last_error()) == 0)
        return;
    wnw__log(WNW_LOG_WARN, "winnow: nothing is compressed: %s", wnw_last_error());
    snprintf(w->last_warning, sizeof w->last_warning, "%s", wnw_last_error());
}

/* Compresses the sequence that a row goes on, before that row is written: its prompt has ended, or a chunk of it was read. */
static int compress_before(struct wnw__bridge_backend *b, const struct batch *batch, int32_t stream,
                           int32_t row, bool single_row)
{
    struct wnw__bridge_watch *w = &b->watch;
    WNW_TRY(list_live(batch, stream, row, &w->last));
    const int rc =
        is_due(batch, stream, single_row, w->chunk, &w->last) ? wnw__bridge_compress_last(b) : WNW_OK;
    if (rc != WNW_OK)
        warn_once(w, rc);
    return WNW_OK;
}

static int look_at(struct wnw__bridge_backend *b, const struct batch *batch)
{
    struct wnw__bridge_watch *w = &b->watch;
    if (w->needs.flags & WNW_NEED_QUERY_STATS) {
        if (!w->tracks)
            WNW_TRY(wnw__bridge_tracks_new(&w->tracks, b, batch->cache));
        wnw__bridge_tracks_begin(w->tracks);
    }
    struct wnw__bridge_row at = {.cell = -1};
    for (int32_t s = 0; s < batch->n_stream; s++)
        for (int32_t row = 0; row < batch->n_row; row++) {
            const bool single_row = is_single_row(batch, s, row);
            if (w->by_itself && (single_row || (w->chunk > 0 && !follows(batch, s, row))))
                WNW_TRY(compress_before(b, batch, s, row, single_row));
            note_row(batch, s, row, single_row);
            if (w->tracks) {
                at = place_of(batch, s, row, &at);
                WNW_TRY(
                    wnw__bridge_tracks_row(w->tracks, batch->cache, (int64_t)s * batch->n_row + row, &at));
            }
        }
    WNW_TRY(list_live(batch, batch->n_stream - 1, batch->n_row - 1, &w->last));
    w->last.cell[w->last.n++] = batch->own[(int64_t)batch->n_stream * batch->n_row - 1];
    return WNW_OK;
}

/* ---- A graph ---- */

const struct ggml_tensor *wnw__bridge_attention_of(const struct wnw__bridge_backend *b,
                                                   struct ggml_cgraph *graph,
                                                   const struct wnw__bridge_layer *l)
{
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        const int32_t what = wnw__bridge_node_get(b, node).what;
        if ((what == WNW_BRIDGE_ATTEND || what == WNW_BRIDGE_ATTEND_CHAIN) &&
            wnw__bridge_tensor_of(node->src[1])->layer == l)
            return node;
    }
    return NULL;
}

/* The mask as libllama wrote it: a graph may convert it to another type first. */
const struct ggml_tensor *wnw__bridge_input_of(const struct ggml_tensor *mask)
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

/* Notes that rows were written. Nothing else is known of them, because memory ran out. */
static void note_missed(const struct ggml_tensor *node)
{
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
    struct wnw__bridge_cache *c = t->layer->cache;
    c->unobserved = c->unobserved || !c->note;
    for (int64_t i = 0; c->note && c->n_cell == t->n_cell && i < wnw__bridge_store_rows(node); i++)
        c->note[wnw__bridge_store_cell(node, i)] =
            (struct wnw__bridge_note){.write_order = ++c->n_written, .unobserved = true};
}

/* Looks at the rows that a store writes, the first of its cache in a graph. */
static int look_at_store(struct wnw__bridge_backend *b, struct ggml_cgraph *graph,
                         const struct ggml_tensor *node)
{
    const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
    const struct ggml_tensor *attend = wnw__bridge_attention_of(b, graph, t->layer);
    const struct ggml_tensor *mask = attend ? wnw__bridge_input_of(attend->src[3]) : NULL;
    if (!mask)
        return WNW_OK;
    if (!need_notes(t->layer->cache, t))
        return wnw__fail(WNW_E_NOMEM, "no memory for notes of %d cells", (int)t->n_cell);
    const struct ggml_tensor *q = attend->src[0], *k = attend->src[1];
    struct batch batch = {
        .cache = t->layer->cache,
        .layer = t->layer,
        .mask = mask,
        .n_stream = (int32_t)k->ne[3],
        .n_row = (int32_t)q->ne[1],
        .n_cell = (int32_t)k->ne[1],
        .first_stream = wnw__bridge_first_stream(k),
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
    b->watch.several = b->watch.several || (fits && has_several(&b->watch, &batch));
    const int rc = fits ? look_at(b, &batch) : WNW_OK;
    for (int64_t i = 0; fits && !(b->watch.needs.flags & WNW_NEED_EVERY_QUERY) && i < n; i++)
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

/* The tensor that another one is a view of. */
static const struct ggml_tensor *root_of(const struct ggml_tensor *t)
{
    return t && t->view_src ? t->view_src : t;
}

static bool is_called(const struct ggml_tensor *t, const char *beginning)
{
    return t && strncmp(t->name, beginning, strlen(beginning)) == 0;
}

/* Notes what a graph shows of a model whose caches the device has not. libllama may have cut a batch into several graphs: true once one has
 * come again, so that all were seen. */
static bool look_for(struct wnw__bridge_seen *seen, struct ggml_cgraph *graph)
{
    const struct ggml_tensor *first = ggml_graph_n_nodes(graph) > 0 ? ggml_graph_node(graph, 0) : NULL;
    const bool again = first && *seen->first && strcmp(seen->first, first->name) == 0;
    if (first && !*seen->first)
        snprintf(seen->first, sizeof seen->first, "%s", first->name);
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++)
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            const struct ggml_tensor *src = root_of(ggml_graph_node(graph, i)->src[s]);
            seen->caches = seen->caches || is_called(src, "cache_k_l") || is_called(src, "cache_v_l");
        }
    return again;
}

/* Why a model has no layer of a cache here; NULL: it is not known yet. */
static const char *why_none(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    const bool again = look_for(&b->seen, graph);
    if (b->seen.caches)
        return "the cache of this model is not on the device WINNOW; give that all layers (-ngl 99, "
               "n_gpu_layers=-1) "
               "and leave the cache with them (no -nkvo, offload_kqv=True)";
    return again ? "this model has no cache of keys and values; take the policy away" : NULL;
}

static bool is_f32(const struct wnw__bridge_layer *l)
{
    return l->k.type == GGML_TYPE_F32 || l->v.type == GGML_TYPE_F32;
}

enum { LINE = 256 };

/* Why caches stay as libllama has them; `line` is room for it. */
static const char *why_plain(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l,
                             char line[LINE])
{
    if (b->plain)
        return "the caches of this model stay as libllama has them, because of WINNOW_PLAIN";
    if (is_f32(l) && b->unknown_node && strcmp(b->unknown_node, "CPY") == 0)
        return "the caches of this model stay as libllama has them: they are f32, of which it makes f16 for "
               "flash "
               "attention; take f16 (-ctk f16 -ctv f16), or no flash attention (-fa off)";
    if (*b->refused) {
        snprintf(line, LINE, "the caches of this model stay as libllama has them: %s", b->refused);
        return line;
    }
    snprintf(line, LINE,
             "the caches of this model stay as libllama has them, because of the operation %s, which reads "
             "them and is not known",
             b->unknown_node ? b->unknown_node : "of a kind");
    return line;
}

/* Warns that a policy has no layer to act on, if that holds for the whole model and not only for the current graph. */
static void warn_no_layers(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    const struct wnw__bridge_layer *plain = NULL;
    int32_t n_sliding = 0;
    char line[LINE];
    for (int32_t c = 0; c < b->n_cache; c++)
        for (int32_t i = 0; i < b->caches[c]->n_layer; i++) {
            const struct wnw__bridge_layer *l = b->caches[c]->layers[i];
            if (l->kind == WNW_BRIDGE_RAGGED && !wnw__bridge_is_sliding(b, l))
                return;
            plain = l->kind != WNW_BRIDGE_RAGGED ? l : plain;
            n_sliding += l->kind == WNW_BRIDGE_RAGGED;
        }
    const char *why = "every layer of this model has a sliding window; take the policy away";
    if (plain)
        why = why_plain(b, plain, line);
    else if (n_sliding == 0)
        why = why_none(b, graph);
    if (!why)
        return;
    const int rc =
        wnw__fail(WNW_E_UNSUPPORTED, "%s has nothing to act on: %s",
                  b->watch.automatic ? b->watch.automatic : wnw__policy_name(b->watch.policy), why);
    warn_once(&b->watch, rc);
}

const struct ggml_tensor *wnw__bridge_first_store(const struct wnw__bridge_backend *b,
                                                  struct ggml_cgraph *graph)
{
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(graph, i);
        if (wnw__bridge_node_get(b, node).what != WNW_BRIDGE_STORE)
            continue;
        const struct wnw__bridge_tensor *t = wnw__bridge_tensor_of(node);
        if (!t->is_v && !wnw__bridge_is_sliding(b, t->layer))
            return node;
    }
    return NULL;
}

static int watch(struct wnw__bridge_backend *b, struct ggml_cgraph *graph, const struct ggml_tensor *store)
{
    if (!b->last.again || !b->watch.sites_known)
        WNW_TRY(wnw__bridge_sites_find(b, graph));
    b->watch.sites_known = true;
    WNW_TRY(wnw__bridge_record_begin(b));
    if (b->watch.n_site == 0)
        warn_no_layers(b, graph);
    return store ? look_at_store(b, graph, store) : WNW_OK;
}

void wnw__bridge_watch_graph(struct wnw__bridge_backend *b, struct ggml_cgraph *graph)
{
    if (!b->watch.policy)
        return;
    const struct ggml_tensor *store = wnw__bridge_first_store(b, graph);
    b->watch_n_own = 0;
    const int rc = watch(b, graph, store);
    if (rc == WNW_OK)
        return;
    b->watch.n_site = 0;
    b->watch.sites_known = false;
    b->watch.last.n = 0; /* it would be the sequence of an earlier batch */
    if (store)
        note_missed(store);
    warn_once(&b->watch, rc);
}

void wnw__bridge_watch_fail(struct wnw__bridge_backend *b)
{
    if (b->watch.tracks)
        wnw__bridge_tracks_fail(b->watch.tracks);
}
