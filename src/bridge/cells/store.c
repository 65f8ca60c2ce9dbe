/* SPDX-License-Identifier: MIT */
/* Entries of a ragged layer, found by the cells that libllama gave them. */
#include "base/kv_types.h"
#include "bridge/cells/cells.h"
#include "kernel/kernel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- A layer ---- */

/* The keys or values of one stream and head. */
struct head {
    uint8_t *rows;
    size_t row_bytes;
    const int32_t *cell;
    int32_t n;
};

static struct head head_of(const struct wnw__bridge_layer *l, bool is_v, int32_t stream, int32_t ih)
{
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    const int32_t i = stream * l->n_head + ih;
    const size_t row_bytes = is_v ? l->rows.v_row_bytes : l->rows.row_bytes;
    if (kv->len[i] == 0)
        return (struct head){.row_bytes = row_bytes};
    return (struct head){.rows = (is_v ? kv->v : kv->k) + (size_t)kv->off[i] * row_bytes,
                         .row_bytes = row_bytes,
                         .cell = kv->pos + kv->off[i],
                         .n = kv->len[i]};
}

static int32_t find(const struct wnw__bridge_layer *l, int32_t stream, int32_t ih, int32_t cell)
{
    return wnw__cache_find(&l->rows.layers[0], stream * l->n_head + ih, cell);
}

int wnw__bridge_layer_take(struct wnw__bridge_layer *l, const struct wnw__bridge_shape *shape)
{
    const size_t n = (size_t)l->k.n_stream * (size_t)l->k.n_cell;
    l->n_head = shape->n_head;
    l->d_k = shape->d_k;
    l->d_v = shape->d_v;
    l->transposed = shape->transposed;
    l->v_in_keys = shape->v_in_keys;
    l->written = calloc(n, 1);
    if (!l->written)
        return wnw__fail(WNW_E_NOMEM, "no memory for a cache of %zu cells", n);
    const int rc = wnw__cache_init_rows(&l->rows, l->k.n_stream * l->n_head, ggml_row_size(l->k.type, l->d_k),
                                        l->v_in_keys ? 0 : ggml_row_size(l->v.type, l->d_v));
    if (rc != WNW_OK) {
        free(l->written);
        l->written = NULL;
        return rc;
    }
    l->rows.tight = l->cache->tight;
    l->kind = WNW_BRIDGE_RAGGED;
    return WNW_OK;
}

int wnw__bridge_layer_trim(struct wnw__bridge_layer *l)
{
    if (!l->loose)
        return WNW_OK;
    WNW_TRY(wnw__cache_trim_layer(&l->rows, 0));
    l->loose = false;
    return WNW_OK;
}

int wnw__bridge_cache_set_tight(struct wnw__bridge_cache *c, bool tight)
{
    c->tight = tight;
    for (int32_t i = 0; i < c->n_layer; i++) {
        struct wnw__bridge_layer *l = c->layers[i];
        if (l->kind != WNW_BRIDGE_RAGGED || l->far)
            continue;
        l->rows.tight = tight;
        l->loose = tight;
        WNW_TRY(wnw__bridge_layer_trim(l));
    }
    return WNW_OK;
}

/* Places an entry that is written by itself, as those of a state. Whether or not the cache is tight, it grows by an eighth here:
 * else each block of a state would move all that is there. What is too much goes back when the layer is looked at. */
static int place_one(struct wnw__bridge_layer *l, int32_t head, int32_t cell)
{
    const bool tight = l->rows.tight;
    l->rows.tight = false;
    const int rc = wnw__cache_place(&l->rows, 0, head, head + 1, &cell, 1);
    l->rows.tight = tight;
    l->loose = l->loose || tight;
    return rc;
}

void wnw__bridge_layer_clear(struct wnw__bridge_layer *l)
{
    if (l->kind != WNW_BRIDGE_RAGGED)
        return;
    wnw__cache_clear(&l->rows);
    l->loose = l->lost = false;
    wnw__bridge_queries_free(&l->queries); /* room is made again where some are to be kept */
    memset(l->written, 0, (size_t)l->k.n_stream * (size_t)l->k.n_cell);
}

void wnw__bridge_queries_free(struct wnw__bridge_queries *q)
{
    free(q->q);
    free(q->cell);
    *q = (struct wnw__bridge_queries){0};
}

void wnw__bridge_layer_free(struct wnw__bridge_layer *l)
{
    if (!l)
        return;
    wnw__cache_free(&l->rows);
    free(l->written);
    wnw__bridge_queries_free(&l->queries);
    free(l);
}

static bool has_numbers(const struct wnw__bridge_layer *l)
{
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        if (l->rows.aux_planes[kind] > 0)
            return true;
    return false;
}

int wnw__bridge_layer_place(struct wnw__bridge_layer *l, int32_t stream, const int32_t *cell, int32_t n)
{
    WNW_TRY(wnw__bridge_layer_trim(l));
    WNW_TRY(wnw__cache_place(&l->rows, 0, stream * l->n_head, (stream + 1) * l->n_head, cell, n));
    for (int32_t ih = 0; has_numbers(l) && ih < l->n_head; ih++)
        for (int32_t i = 0; i < n; i++)
            wnw__cache_renew(&l->rows, 0, stream * l->n_head + ih, find(l, stream, ih, cell[i]));
    for (int32_t i = 0; i < n; i++)
        l->written[(size_t)stream * (size_t)l->k.n_cell + (size_t)cell[i]] = 1;
    return WNW_OK;
}

/* One row of d elements. Types that our kernels do not know are quantised by ggml's reference. */
static void row_from_f32(enum ggml_type type, const float *x, int32_t d, uint8_t *dst)
{
    wnw_kv_type own;
    if (wnw__kv_type_of_ggml(&own, type))
        wnw__rows_from_f32(own, x, 1, d, dst);
    else
        ggml_get_type_traits(type)->from_float_ref(x, dst, d);
}

void wnw__bridge_head_write(struct wnw__bridge_layer *l, bool is_v, int32_t head, int32_t cell, int32_t from,
                            int32_t to, const float *x)
{
    const struct head h = head_of(l, is_v, head / l->n_head, head % l->n_head);
    const int32_t at = find(l, head / l->n_head, head % l->n_head, cell);
    if (at >= from && at < to && at < h.n && h.cell[at] == cell)
        row_from_f32(is_v ? l->v.type : l->k.type, x, is_v ? l->d_v : l->d_k,
                     h.rows + (size_t)at * h.row_bytes);
}

void wnw__bridge_layer_write(struct wnw__bridge_layer *l, bool is_v, int32_t stream, int32_t cell,
                             const float *x)
{
    const int32_t d = is_v ? l->d_v : l->d_k;
    for (int32_t ih = 0; ih < l->n_head; ih++)
        wnw__bridge_head_write(l, is_v, stream * l->n_head + ih, cell, 0, INT32_MAX, x + (int64_t)ih * d);
}

/* The stored bytes of a row, in keys or, where there are none of their own, values. */
static uint8_t *row_at(const struct wnw__bridge_layer *l, bool is_v, int32_t ih, int32_t row)
{
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    const bool own = is_v && !l->v_in_keys;
    return (own ? kv->v : kv->k) +
           (size_t)(kv->off[ih] + row) * (own ? l->rows.v_row_bytes : l->rows.row_bytes);
}

void wnw__bridge_layer_read(const struct wnw__bridge_layer *l, bool is_v, int32_t ih, int32_t row, float *x)
{
    const uint8_t *at = row_at(l, is_v, ih, row);
    const enum ggml_type type = is_v && !l->v_in_keys ? l->v.type : l->k.type;
    const int32_t d = is_v ? l->d_v : l->d_k;
    if (type == GGML_TYPE_F32)
        memcpy(x, at, (size_t)d * sizeof *x);
    else
        ggml_get_type_traits(type)->to_float(at, x, d);
}

void wnw__bridge_layer_set(struct wnw__bridge_layer *l, bool is_v, int32_t ih, int32_t row, const float *x)
{
    row_from_f32(is_v ? l->v.type : l->k.type, x, is_v ? l->d_v : l->d_k, row_at(l, is_v, ih, row));
}

/* ---- Dropping ---- */

/* Sets keep[] to the entries of a head whose cells are not among cell[n], which ascend; returns their number. */
static int32_t others(const struct head *h, const int32_t *cell, int32_t n, int32_t *keep)
{
    int32_t n_keep = 0, j = 0;
    for (int32_t i = 0; i < h->n; i++) {
        while (j < n && cell[j] < h->cell[i])
            j++;
        if (j == n || cell[j] != h->cell[i])
            keep[n_keep++] = i;
    }
    return n_keep;
}

int wnw__bridge_layer_drop(struct wnw__bridge_layer *l, int32_t stream, int32_t ih, const int32_t *cell,
                           int32_t n)
{
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    const int32_t n_head = l->rows.n_head_kv, dropping = stream * l->n_head + ih;
    const struct head h = head_of(l, false, stream, ih);
    int32_t longest = 0;
    for (int32_t i = 0; i < n_head; i++)
        longest = kv->len[i] > longest ? kv->len[i] : longest;
    int32_t *all = malloc(((size_t)longest + 1) * sizeof *all);
    int32_t *kept = malloc(((size_t)h.n + 1) * sizeof *kept);
    const int32_t **keep = calloc((size_t)n_head, sizeof *keep);
    int32_t *n_keep = calloc((size_t)n_head, sizeof *n_keep);
    int rc = WNW_E_NOMEM;
    if (!all || !kept || !keep || !n_keep) {
        wnw__fail(rc, "no memory to drop entries of layer %d", (int)l->il);
        goto done;
    }
    for (int32_t i = 0; i < longest; i++)
        all[i] = i;
    for (int32_t i = 0; i < n_head; i++) {
        keep[i] = i == dropping ? kept : all;
        n_keep[i] = i == dropping ? others(&h, cell, n, kept) : kv->len[i];
    }
    rc = wnw__cache_keep_in_place(&l->rows, 0, keep, n_keep, WNW_CACHE_GROWTH);
done:
    free(all);
    free(kept);
    free(keep);
    free(n_keep);
    return rc;
}

/* ---- Copies between streams ---- */

static void clear_stream(struct wnw__bridge_layer *l, int32_t stream)
{
    for (int32_t i = stream * l->n_head; i < (stream + 1) * l->n_head; i++)
        if (l->rows.layers[0].len[i] > 0)
            wnw__cache_drop(&l->rows, 0, i, 0, l->rows.layers[0].len[i]);
    memset(l->written + (size_t)stream * (size_t)l->k.n_cell, 0, (size_t)l->k.n_cell);
}

static int place_as(struct wnw__bridge_layer *l, int32_t from, int32_t to)
{
    clear_stream(l, to);
    memcpy(l->written + (size_t)to * (size_t)l->k.n_cell, l->written + (size_t)from * (size_t)l->k.n_cell,
           (size_t)l->k.n_cell);
    for (int32_t ih = 0; ih < l->n_head; ih++) {
        const struct head h = head_of(l, false, from, ih);
        int32_t *cell = malloc(((size_t)h.n + 1) * sizeof *cell); /* the layer's own list may move */
        if (!cell)
            return wnw__fail(WNW_E_NOMEM, "no memory to copy a stream of layer %d", (int)l->il);
        if (h.n > 0)
            memcpy(cell, h.cell, (size_t)h.n * sizeof *cell);
        const int rc = wnw__cache_place(&l->rows, 0, to * l->n_head + ih, to * l->n_head + ih + 1, cell, h.n);
        free(cell);
        WNW_TRY(rc);
    }
    return WNW_OK;
}

/* Copies the numbers of entries, which are the same in both streams, of one head. */
static void copy_numbers(struct wnw__bridge_layer *l, int32_t from, int32_t to)
{
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        for (int32_t p = 0; p < l->rows.aux_planes[kind]; p++) {
            float *x = wnw__cache_aux(kv, (enum wnw__aux)kind, p);
            memcpy(x + kv->off[to], x + kv->off[from], (size_t)kv->len[from] * sizeof *x);
        }
}

int wnw__bridge_layer_copy_stream(struct wnw__bridge_layer *l, bool is_v, int32_t from, int32_t to)
{
    if (!is_v) {
        WNW_TRY(place_as(l, from, to));
        for (int32_t ih = 0; ih < l->n_head; ih++)
            copy_numbers(l, from * l->n_head + ih, to * l->n_head + ih);
    }
    for (int32_t ih = 0; ih < l->n_head; ih++) {
        const struct head src = head_of(l, is_v, from, ih), dst = head_of(l, is_v, to, ih);
        if (src.n > 0 && src.n == dst.n)
            memcpy(dst.rows, src.rows, (size_t)src.n * src.row_bytes);
    }
    return WNW_OK;
}

/* ---- As libllama sees it ---- */

/* What a read or write of some bytes does with a part of an entry. */
enum way { READ, WRITE };

/* Some bytes of what one head has in one cell: n, from byte `at` on. */
struct extent {
    bool is_v;
    int32_t stream, ih, cell;
    size_t at, n;
};

static int access_extent(struct wnw__bridge_layer *l, const struct extent *x, uint8_t *bytes, enum way way)
{
    const bool is_v = x->is_v;
    const int32_t stream = x->stream, ih = x->ih, cell = x->cell;
    const size_t at = x->at, n = x->n;
    struct head h = head_of(l, is_v, stream, ih);
    int32_t i = find(l, stream, ih, cell);
    const bool here = i < h.n && h.cell[i] == cell;
    uint8_t *written = &l->written[(size_t)stream * (size_t)l->k.n_cell + (size_t)cell];
    if (way == READ) {
        if (here)
            memcpy(bytes, h.rows + (size_t)i * h.row_bytes + at, n);
        else
            memset(bytes, *written ? 0xff : 0, n);
        return WNW_OK;
    }
    bool ones = n == h.row_bytes;
    for (size_t b = 0; ones && b < n; b++)
        ones = bytes[b] == 0xff;
    if (ones && here && !is_v)
        wnw__cache_drop(&l->rows, 0, stream * l->n_head + ih, i, 1);
    if (ones && !is_v)
        *written = 1;
    /* Keys come before values, and decide what is there. */
    if (ones || (is_v && !here && *written))
        return WNW_OK;
    if (here && !is_v)
        wnw__cache_renew(&l->rows, 0, stream * l->n_head + ih, i);
    if (!here) {
        const int32_t head = stream * l->n_head + ih;
        WNW_TRY(place_one(l, head, cell));
        h = head_of(l, is_v, stream, ih);
        i = find(l, stream, ih, cell);
        if (n < h.row_bytes)
            memset(h.rows + (size_t)i * h.row_bytes, 0, h.row_bytes);
        *written = 1;
    }
    memcpy(h.rows + (size_t)i * h.row_bytes + at, bytes, n);
    return WNW_OK;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Rows [n_embd] of cells, stream after stream; a row may be longer than its heads. */
static int rows_of_cells(const struct wnw__bridge_tensor *t, size_t at, size_t n, uint8_t *bytes,
                         enum way way)
{
    struct wnw__bridge_layer *l = t->layer;
    const size_t row_bytes = ggml_row_size(t->type, t->n_embd);
    const size_t head_bytes = t->is_v ? l->rows.v_row_bytes : l->rows.row_bytes;
    while (n > 0) {
        const size_t row = at / row_bytes, in_row = at % row_bytes, ih = in_row / head_bytes;
        const size_t in_head = in_row % head_bytes;
        const bool padding = ih >= (size_t)l->n_head;
        const size_t part = smaller(n, padding ? row_bytes - in_row : head_bytes - in_head);
        if (!padding)
            WNW_TRY(access_extent(l,
                                  &(struct extent){.is_v = t->is_v,
                                                   .stream = (int32_t)(row / (size_t)t->n_cell),
                                                   .ih = (int32_t)ih,
                                                   .cell = (int32_t)(row % (size_t)t->n_cell),
                                                   .at = in_head,
                                                   .n = part},
                                  bytes, way));
        else if (way == READ)
            memset(bytes, 0, part);
        at += part;
        bytes += part;
        n -= part;
    }
    return WNW_OK;
}

/* Elements of transposed values: cells are neighbours. */
static int elements_of_cells(const struct wnw__bridge_tensor *t, size_t at, size_t n, uint8_t *bytes,
                             enum way way)
{
    struct wnw__bridge_layer *l = t->layer;
    const size_t size = ggml_type_size(t->type), n_cell = (size_t)t->n_cell;
    for (size_t e = at / size; n >= size; e++, n -= size, bytes += size) {
        const size_t cell = e % n_cell, j = e / n_cell % (size_t)t->n_embd,
                     stream = e / n_cell / (size_t)t->n_embd;
        const size_t ih = j / (size_t)l->d_v;
        if (ih < (size_t)l->n_head)
            WNW_TRY(access_extent(l,
                                  &(struct extent){.is_v = true,
                                                   .stream = (int32_t)stream,
                                                   .ih = (int32_t)ih,
                                                   .cell = (int32_t)cell,
                                                   .at = j % (size_t)l->d_v * size,
                                                   .n = size},
                                  bytes, way));
        else if (way == READ)
            memset(bytes, 0, size);
    }
    return WNW_OK;
}

static int access_bytes(const struct wnw__bridge_tensor *t, size_t at, size_t n, uint8_t *bytes, enum way way)
{
    return t->is_v && t->layer->transposed ? elements_of_cells(t, at, n, bytes, way)
                                           : rows_of_cells(t, at, n, bytes, way);
}

void wnw__bridge_tensor_read(const struct wnw__bridge_tensor *t, size_t at, size_t n, uint8_t *dst)
{
    access_bytes(t, at, n, dst, READ);
}

/* Cells that a state is written to are of tokens that no graph has shown. */
static void forget_twins(const struct wnw__bridge_tensor *t, size_t at, size_t n)
{
    int32_t *twin = t->layer->cache->twin;
    const size_t row_bytes = ggml_row_size(t->type, t->n_embd);
    for (size_t row = at / row_bytes; twin && !t->is_v && n > 0 && row <= (at + n - 1) / row_bytes; row++)
        twin[row] = -1;
}

int wnw__bridge_tensor_write(struct wnw__bridge_tensor *t, size_t at, size_t n, const uint8_t *src)
{
    forget_twins(t, at, n);
    return access_bytes(t, at, n, (uint8_t *)(uintptr_t)src, WRITE); /* WRITE only reads them */
}

/* ---- For nodes that are not ours ---- */

/* Copies every entry to the tensor's addresses (`out`) or from there. */
static void move_all(const struct wnw__bridge_tensor *t, bool out)
{
    const struct wnw__bridge_layer *l = t->layer;
    const size_t row_bytes = ggml_row_size(t->type, t->n_embd), size = ggml_type_size(t->type);
    for (int32_t stream = 0; stream < t->n_stream; stream++)
        for (int32_t ih = 0; ih < l->n_head; ih++) {
            const struct head h = head_of(l, t->is_v, stream, ih);
            for (int32_t i = 0; i < h.n; i++) {
                uint8_t *row = h.rows + (size_t)i * h.row_bytes;
                if (!(t->is_v && l->transposed)) {
                    uint8_t *at = t->base +
                                  ((size_t)stream * (size_t)t->n_cell + (size_t)h.cell[i]) * row_bytes +
                                  (size_t)ih * h.row_bytes;
                    memcpy(out ? at : row, out ? row : at, h.row_bytes);
                    continue;
                }
                for (int32_t j = 0; j < l->d_v; j++, row += size) {
                    uint8_t *at =
                        t->base + (((size_t)stream * (size_t)t->n_embd + (size_t)(ih * l->d_v + j)) *
                                       (size_t)t->n_cell +
                                   (size_t)h.cell[i]) *
                                      size;
                    memcpy(out ? at : row, out ? row : at, size);
                }
            }
        }
}

void wnw__bridge_tensor_spread(const struct wnw__bridge_tensor *t)
{
    move_all(t, true);
}

void wnw__bridge_tensor_gather(struct wnw__bridge_tensor *t)
{
    move_all(t, false);
}

void wnw__bridge_tensor_release(const struct wnw__bridge_tensor *t)
{
    const size_t bytes = (size_t)t->n_cell * (size_t)t->n_stream * ggml_row_size(t->type, t->n_embd);
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
                    from = ((uintptr_t)t->base + page - 1) / page * page;
    const uintptr_t to = ((uintptr_t)t->base + bytes) / page * page;
    if (from < to)
        madvise((void *)from, to - from, MADV_DONTNEED);
}
