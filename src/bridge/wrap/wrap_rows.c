/* SPDX-License-Identifier: MIT */
/*
 * Entries of a ragged layer. The host knows which cells each head has, and in which row; keys, values and the numbers of
 * rows are on X. The number of a row is that of its cell and 1, or 0 where nothing sees it.
 */
#include "bridge/wrap/wrap.h"

#include <stdlib.h>

/* ---- Sizes ---- */

static size_t head_bytes(const struct wnw__bridge_layer *l, bool is_v)
{
    if (is_v)
        return l->v.base ? ggml_row_size(l->v.type, l->d_v) : 0;
    return ggml_row_size(l->k.type, l->d_k);
}

static int32_t n_heads(const struct wnw__bridge_layer *l)
{
    return l->k.n_stream * l->n_head;
}

/* Rows of one head in the layer's buffer. */
static int64_t rows_there(const struct wnw__bridge_layer *l)
{
    return l->wrap->settled ? l->wrap->rows : l->wrap->rows * l->n_head;
}

/* n rows of bytes of the buffer, as a tensor. */
static void rows_of(struct ggml_tensor *t, const struct wnw__bridge_layer *l, bool is_v)
{
    const size_t n = head_bytes(l, is_v) * (size_t)rows_there(l);
    wnw__wrap_bytes_at(t, l->wrap->buffer, wnw__wrap_layer_at(l->wrap, is_v), n);
}

int wnw__wrap_rows_fetch(const struct wnw__bridge_layer *l, bool is_v, uint8_t **out)
{
    struct ggml_tensor t;
    const size_t n = l->wrap->buffer ? head_bytes(l, is_v) * (size_t)rows_there(l) : 0;
    *out = malloc(n + 1);
    if (!*out)
        return wnw__fail(WNW_E_NOMEM, "no memory to read %zu bytes of layer %d", n, (int)l->il);
    if (n > 0) {
        wnw__wrap_layer_wait(l->wrap);
        rows_of(&t, l, is_v);
        ggml_backend_tensor_get(&t, *out, 0, n);
    }
    return WNW_OK;
}

/* ---- Lists of heads ---- */

int32_t wnw__wrap_find(const struct wnw__wrap_head *h, int32_t cell)
{
    int32_t a = 0, b = h->n;
    if (b > 0 && h->cell[b - 1] < cell)
        return b;
    while (a < b) {
        const int32_t mid = a + (b - a) / 2;
        if (h->cell[mid] < cell)
            a = mid + 1;
        else
            b = mid;
    }
    return a;
}

static bool has(const struct wnw__wrap_head *h, int32_t i, int32_t cell)
{
    return i < h->n && h->cell[i] == cell;
}

/* Makes room for n entries in all. */
static int need_entries(struct wnw__wrap_head *h, int32_t n)
{
    if (n <= h->room)
        return WNW_OK;
    const int32_t room = n + n / 4 + 32;
    int32_t *cell = realloc(h->cell, (size_t)room * sizeof *cell);
    h->cell = cell ? cell : h->cell;
    int64_t *row = cell ? realloc(h->row, (size_t)room * sizeof *row) : NULL;
    if (!row)
        return wnw__fail(WNW_E_NOMEM, "no memory for a list of %d entries", (int)room);
    h->row = row;
    h->room = room;
    return WNW_OK;
}

/* Inserts an entry before entry i. */
static int insert(struct wnw__wrap_head *h, int32_t i, int32_t cell, int64_t row)
{
    WNW_TRY(need_entries(h, h->n + 1));
    memmove(h->cell + i + 1, h->cell + i, (size_t)(h->n - i) * sizeof *h->cell);
    memmove(h->row + i + 1, h->row + i, (size_t)(h->n - i) * sizeof *h->row);
    h->cell[i] = cell;
    h->row[i] = row;
    h->n++;
    return WNW_OK;
}

static void take_out(struct wnw__wrap_head *h, int32_t i)
{
    h->n--;
    memmove(h->cell + i, h->cell + i + 1, (size_t)(h->n - i) * sizeof *h->cell);
    memmove(h->row + i, h->row + i + 1, (size_t)(h->n - i) * sizeof *h->row);
}

static bool all_ones(const uint8_t *x, size_t n)
{
    size_t i = 0;
    while (i < n && x[i] == 0xff)
        i++;
    return i == n;
}

/* Lists the entries of a rectangular layer. keys: its rows, or NULL where none has a part of a dropped entry. */
static int list_all(struct wnw__bridge_layer *l, const uint8_t *keys)
{
    const size_t bytes = head_bytes(l, false);
    for (int32_t s = 0; s < l->k.n_stream; s++)
        for (int32_t ih = 0; ih < l->n_head; ih++) {
            struct wnw__wrap_head *h = &l->wrap->heads[s * l->n_head + ih];
            for (int32_t cell = 0; cell < l->k.n_cell; cell++) {
                const int64_t at = (int64_t)s * l->k.n_cell + cell, row = at * l->n_head + ih;
                if (!l->written[at] || at >= l->wrap->rows ||
                    (keys && all_ones(keys + (size_t)row * bytes, bytes)))
                    continue;
                WNW_TRY(insert(h, h->n, cell, row));
            }
        }
    return WNW_OK;
}

static void free_lists(struct wnw__bridge_layer *l)
{
    for (int32_t i = 0; i < n_heads(l); i++) {
        free(l->wrap->heads[i].cell);
        free(l->wrap->heads[i].row);
    }
    free(l->wrap->heads);
    l->wrap->heads = NULL;
}

int wnw__wrap_rows_begin(struct wnw__bridge_layer *l)
{
    struct wnw__wrap_layer *w = l->wrap;
    uint8_t *keys = NULL;
    if (w->ragged)
        return WNW_OK;
    WNW_TRY(wnw__wrap_layer_note(l));
    w->heads = calloc((size_t)n_heads(l), sizeof *w->heads);
    if (!w->heads)
        return wnw__fail(WNW_E_NOMEM, "no memory for the heads of layer %d", (int)l->il);
    int rc = w->holes ? wnw__wrap_rows_fetch(l, false, &keys) : WNW_OK;
    if (rc == WNW_OK)
        rc = list_all(l, keys);
    free(keys);
    if (rc != WNW_OK) {
        free_lists(l);
        return rc;
    }
    w->ragged = true;
    w->holes = false;
    return WNW_OK;
}

int wnw__wrap_find_holes(struct wnw__bridge_layer *l)
{
    return l->wrap->holes || l->cache->tight ? wnw__wrap_rows_begin(l) : WNW_OK;
}

void wnw__wrap_rows_cut(struct wnw__bridge_layer *l, int32_t stream, int32_t n_cell)
{
    for (int32_t ih = 0; ih < l->n_head; ih++) {
        struct wnw__wrap_head *h = &l->wrap->heads[stream * l->n_head + ih];
        const int32_t n = wnw__wrap_find(h, n_cell);
        l->wrap->stale = l->wrap->stale || n < h->n;
        h->n = n;
    }
}

int wnw__wrap_rows_drop(struct wnw__bridge_layer *l, int32_t stream, int32_t ih, const int32_t *cell,
                        int32_t n)
{
    WNW_TRY(wnw__wrap_rows_begin(l));
    struct wnw__wrap_head *h = &l->wrap->heads[stream * l->n_head + ih];
    int32_t kept = 0, j = 0;
    for (int32_t i = 0; i < h->n; i++) {
        while (j < n && cell[j] < h->cell[i])
            j++;
        if (j < n && cell[j] == h->cell[i])
            continue;
        h->cell[kept] = h->cell[i];
        h->row[kept++] = h->row[i];
    }
    h->n = kept;
    l->wrap->stale = true;
    return WNW_OK;
}

/* ---- Moving rows on X ---- */

/* Where rows are and go to. */
struct move {
    struct wnw__wrap *w;
    ggml_backend_t x;
    ggml_backend_buffer_t from, to, index;
    uint8_t *from_at, *to_at, *index_at;
    size_t bytes; /* of one row */
    int64_t n_from, n;
};

/* As rows of whole words: then X copies the bits of every type. */
static int move_words(const struct move *m)
{
    enum { N_TENSOR = 3, N_NODE = 1 };
    const size_t size = N_TENSOR * ggml_tensor_overhead() + ggml_graph_overhead_custom(N_NODE, false);
    void *memory = malloc(size);
    struct ggml_context *ctx =
        memory
            ? ggml_init((struct ggml_init_params){.mem_size = size, .mem_buffer = memory, .no_alloc = true})
            : NULL;
    if (!ctx) {
        free(memory);
        return wnw__fail(WNW_E_NOMEM, "no memory for a graph that moves rows");
    }
    struct ggml_tensor *from = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, (int64_t)(m->bytes / 4), m->n_from);
    struct ggml_tensor *index = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, m->n);
    struct ggml_tensor *to = ggml_get_rows(ctx, from, index);
    ggml_backend_tensor_alloc(m->from, from, m->from_at);
    ggml_backend_tensor_alloc(m->index, index, m->index_at);
    ggml_backend_tensor_alloc(m->to, to, m->to_at);
    struct ggml_cgraph *graph = ggml_new_graph_custom(ctx, N_NODE, false);
    to->flags |= GGML_TENSOR_FLAG_COMPUTE;
    ggml_graph_add_node(graph, to);
    const enum ggml_status status = wnw__wrap_compute(m->w, m->x, graph, 0);
    ggml_backend_synchronize(m->x);
    ggml_free(ctx);
    free(memory);
    return status == GGML_STATUS_SUCCESS
               ? WNW_OK
               : wnw__fail(WNW_E_BACKEND, "%s did not move rows of a cache", wnw__wrap_x_name(m->w));
}

/* Through the host, where a row is no whole number of words. */
static int move_bytes(const struct move *m, const int32_t *index)
{
    struct ggml_tensor t;
    const size_t n_from = (size_t)m->n_from * m->bytes, n_to = (size_t)m->n * m->bytes;
    uint8_t *from = malloc(n_from), *to = malloc(n_to);
    const int rc = from && to ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory to move rows of a cache");
    if (rc == WNW_OK) {
        wnw__wrap_bytes_at(&t, m->from, m->from_at, n_from);
        ggml_backend_tensor_get(&t, from, 0, n_from);
        for (int64_t i = 0; i < m->n; i++)
            memcpy(to + (size_t)i * m->bytes, from + (size_t)index[i] * m->bytes, m->bytes);
        wnw__wrap_bytes_at(&t, m->to, m->to_at, n_to);
        ggml_backend_tensor_set(&t, to, 0, n_to);
    }
    free(from);
    free(to);
    return rc;
}

/* A layer's new buffer. */
struct place {
    ggml_backend_buffer_t buffer;
    size_t v_at, c_at; /* c_at 0: it has no numbers of rows */
    int64_t rows;      /* of one head */
};

/* Where X finds the list of rows: where their numbers will be, which are as large, since a buffer of a server takes two round trips. */
static int place_index(struct move *m, const struct place *p, size_t size)
{
    m->index = p->buffer;
    if (p->c_at == 0)
        WNW_TRY(wnw__wrap_buffer_new(&m->index, m->w, size));
    m->index_at = (uint8_t *)ggml_backend_buffer_get_base(m->index) + p->c_at;
    return WNW_OK;
}

/* Fills it: row i of keys and values becomes row index[i] of what the layer has. */
static int move_layer(struct wnw__bridge_layer *l, const struct place *p, const int32_t *index)
{
    struct wnw__wrap_layer *w = l->wrap;
    struct ggml_tensor t;
    struct move m = {.w = w->w, .from = w->buffer, .to = p->buffer, .n_from = rows_there(l), .n = p->rows};
    if (!w->mover)
        w->mover = wnw__wrap_mover(w->w);
    if (!w->mover)
        return wnw__fail(WNW_E_BACKEND, "%s cannot be used", wnw__wrap_x_name(w->w));
    m.x = w->mover;
    wnw__wrap_layer_wait(w);
    WNW_TRY(place_index(&m, p, (size_t)p->rows * sizeof *index));
    wnw__wrap_bytes_at(&t, m.index, m.index_at, (size_t)p->rows * sizeof *index);
    ggml_backend_tensor_set(&t, index, 0, (size_t)p->rows * sizeof *index);
    int rc = WNW_OK;
    for (int is_v = 0; is_v < 2 && rc == WNW_OK; is_v++) {
        m.bytes = head_bytes(l, is_v);
        if (m.bytes == 0)
            continue;
        m.from_at = wnw__wrap_layer_at(w, is_v);
        m.to_at = (uint8_t *)ggml_backend_buffer_get_base(p->buffer) + (is_v ? p->v_at : 0);
        rc = m.bytes % 4 == 0 ? move_words(&m) : move_bytes(&m, index);
    }
    if (m.index != p->buffer)
        wnw__wrap_buffer_drop(w->w, m.index);
    return rc;
}

/* Makes *p the layer's buffer. */
static void take_place(struct wnw__bridge_layer *l, const struct place *p, bool settled)
{
    struct wnw__wrap_layer *w = l->wrap;
    wnw__wrap_layer_wait(w);
    wnw__wrap_buffer_drop(w->w, w->buffer);
    w->buffer = p->buffer;
    w->n_made++;
    w->v_at = p->v_at;
    w->c_at = p->c_at;
    w->rows = p->rows;
    w->settled = settled;
}

/* ---- The ragged form ---- */

/* Rows that a head gets with room for n more. */
static int64_t cap_of(const struct wnw__bridge_layer *l, int32_t i, int32_t from, int32_t to, int32_t n)
{
    const int32_t pad = l->wrap->w->pad, stream = i / l->n_head, entries = l->wrap->heads[i].n;
    const bool grows = stream >= from && stream < to;
    int64_t room = grows ? n : 0;
    if ((grows || entries > 0) && !l->cache->tight)
        room += wnw__device_spare(entries, pad);
    const int64_t rows = entries + room > 0 ? entries + room : 1;
    return wnw__room_in_steps(rows, pad);
}

/* Whether a move is due: to the ragged form, for room, or because an eighth of the memory would come back, in a tight cache any. */
static bool is_due(const struct wnw__bridge_layer *l, int32_t from, int32_t to, int32_t n, int64_t rows)
{
    const struct wnw__wrap_layer *w = l->wrap;
    const int64_t spare = l->cache->tight ? 1 : w->rows / 8;
    bool due = !w->settled || rows <= w->rows - spare;
    for (int32_t i = from * l->n_head; i < to * l->n_head && !due; i++)
        due = w->heads[i].used + n > w->heads[i].cap;
    return due;
}

/* A row of an entry; -1: there is none. Rows of entries that were dropped elsewhere, in a state that was set, are no numbers. */
static int64_t finite_row(const struct wnw__bridge_layer *l)
{
    for (int32_t i = 0; i < n_heads(l); i++)
        if (l->wrap->heads[i].n > 0)
            return l->wrap->heads[i].row[0];
    return -1;
}

/* Moves the layer to a buffer of `rows` rows. index[rows] is room. */
static int settle(struct wnw__bridge_layer *l, const struct wnw__wrap_head *next, int64_t rows,
                  int32_t *index)
{
    struct wnw__wrap_layer *w = l->wrap;
    struct place p = {.rows = rows};
    const int64_t spare =
        finite_row(l); /* what nothing sees is finite, too, since a weight of 0 does not hide a NaN */
    for (int32_t i = 0; i < n_heads(l) && spare >= 0; i++) {
        const struct wnw__wrap_head *h = &w->heads[i];
        for (int32_t j = 0; j < next[i].cap; j++)
            index[next[i].off + j] = (int32_t)(j < h->n ? h->row[j] : spare);
    }
    p.v_at = wnw__wrap_place_bytes(w->w, &l->k, l->d_k, rows);
    p.c_at = p.v_at + wnw__wrap_place_bytes(w->w, &l->v, l->d_v, rows);
    WNW_TRY(wnw__wrap_buffer_new(&p.buffer, w->w, p.c_at + (size_t)rows * sizeof(float)));
    const int rc = w->buffer && spare >= 0 ? move_layer(l, &p, index) : WNW_OK; /* a new buffer has zeros */
    if (rc != WNW_OK) {
        wnw__wrap_buffer_drop(w->w, p.buffer);
        return rc;
    }
    take_place(l, &p, true);
    for (int32_t i = 0; i < n_heads(l); i++) {
        struct wnw__wrap_head *h = &w->heads[i];
        h->off = next[i].off;
        h->cap = next[i].cap;
        h->used = h->n;
        for (int32_t j = 0; j < h->n; j++)
            h->row[j] = h->off + j;
    }
    w->stale = true;
    return WNW_OK;
}

/* next: room for the places of all heads. */
static int settle_if_due(struct wnw__bridge_layer *l, int32_t from, int32_t to, int32_t n,
                         struct wnw__wrap_head *next)
{
    int64_t rows = 0;
    for (int32_t i = 0; i < n_heads(l); i++) {
        next[i].off = rows;
        next[i].cap = (int32_t)cap_of(l, i, from, to, n);
        rows += next[i].cap;
    }
    if (!is_due(l, from, to, n, rows))
        return WNW_OK;
    int32_t *index =
        rows <= INT32_MAX && rows_there(l) <= INT32_MAX ? malloc((size_t)rows * sizeof *index) : NULL;
    if (!index)
        return wnw__fail(WNW_E_NOMEM, "no memory for %lld rows of layer %d", (long long)rows, (int)l->il);
    const int rc = settle(l, next, rows, index);
    free(index);
    return rc;
}

int wnw__wrap_rows_settle(struct wnw__bridge_layer *l, int32_t from, int32_t to, int32_t n)
{
    struct wnw__wrap_head *next = calloc((size_t)n_heads(l), sizeof *next);
    if (!next)
        return wnw__fail(WNW_E_NOMEM, "no memory for the heads of layer %d", (int)l->il);
    const int rc = settle_if_due(l, from, to, n, next);
    free(next);
    return rc == WNW_OK && l->wrap->stale ? wnw__wrap_rows_show(l) : rc;
}

int wnw__wrap_rows_show(struct wnw__bridge_layer *l)
{
    struct wnw__wrap_layer *w = l->wrap;
    struct ggml_tensor t;
    float *number = calloc((size_t)w->rows, sizeof *number);
    if (!number)
        return wnw__fail(WNW_E_NOMEM, "no memory for the numbers of %lld rows", (long long)w->rows);
    for (int32_t i = 0; i < n_heads(l); i++)
        for (int32_t j = 0; j < w->heads[i].n; j++)
            number[w->heads[i].row[j]] = (float)(w->heads[i].cell[j] + 1);
    wnw__wrap_bytes_at(&t, w->buffer, (uint8_t *)ggml_backend_buffer_get_base(w->buffer) + w->c_at,
                       (size_t)w->rows * sizeof *number);
    wnw__wrap_layer_wait(w);
    ggml_backend_tensor_set(&t, number, 0, (size_t)w->rows * sizeof *number);
    free(number);
    w->stale = false;
    return WNW_OK;
}

/* The entry of a cell in one head, made where there is none. */
static int place_in(struct wnw__wrap_head *h, int32_t cell, int64_t *row)
{
    const int32_t i = wnw__wrap_find(h, cell);
    if (!has(h, i, cell)) {
        WNW_TRY(insert(h, i, cell, h->off + h->used));
        h->used++;
    }
    *row = h->row[i];
    return WNW_OK;
}

int wnw__wrap_rows_place(struct wnw__bridge_layer *l, int32_t stream, int32_t cell, int32_t *row)
{
    for (int32_t ih = 0; ih < l->n_head; ih++) {
        int64_t at;
        WNW_TRY(place_in(&l->wrap->heads[stream * l->n_head + ih], cell, &at));
        row[ih] = (int32_t)at;
    }
    l->written[(size_t)stream * (size_t)l->k.n_cell + (size_t)cell] = 1;
    return WNW_OK;
}

int wnw__wrap_rows_spread(struct wnw__bridge_layer *l)
{
    struct wnw__wrap_layer *w = l->wrap;
    const int64_t cells = (int64_t)l->k.n_stream * l->k.n_cell, rows = cells * l->n_head;
    struct place p = {.rows = rows};
    int32_t *index = rows <= INT32_MAX ? calloc((size_t)rows, sizeof *index) : NULL;
    if (!index)
        return wnw__fail(WNW_E_NOMEM, "no memory for %lld rows of layer %d", (long long)rows, (int)l->il);
    for (int32_t i = 0; i < n_heads(l); i++)
        for (int32_t j = 0; j < w->heads[i].n; j++)
            index[((int64_t)(i / l->n_head) * l->k.n_cell + w->heads[i].cell[j]) * l->n_head +
                  i % l->n_head] = (int32_t)w->heads[i].row[j];
    p.v_at = wnw__wrap_place_bytes(w->w, &l->k, l->d_k, rows);
    int rc = wnw__wrap_buffer_new(&p.buffer, w->w, p.v_at + wnw__wrap_place_bytes(w->w, &l->v, l->d_v, rows));
    if (rc == WNW_OK)
        rc = move_layer(l, &p, index);
    free(index);
    if (rc != WNW_OK) {
        wnw__wrap_buffer_drop(w->w, p.buffer);
        return rc;
    }
    p.rows = cells;
    take_place(l, &p, false);
    for (int32_t i = 0; i < n_heads(l); i++)
        for (int32_t j = 0; j < w->heads[i].n; j++)
            w->heads[i].row[j] =
                ((int64_t)(i / l->n_head) * l->k.n_cell + w->heads[i].cell[j]) * l->n_head + i % l->n_head;
    return WNW_OK;
}

int wnw__wrap_rows_put(struct wnw__bridge_layer *l)
{
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    WNW_TRY(wnw__wrap_rows_begin(l));
    WNW_TRY(wnw__wrap_rows_settle(l, 0, 0, 0));
    for (int is_v = 0; is_v < 2; is_v++) {
        const size_t bytes = head_bytes(l, is_v);
        const uint8_t *from = is_v ? kv->v : kv->k;
        struct ggml_tensor t;
        uint8_t *rows;
        if (bytes == 0)
            continue;
        WNW_TRY(wnw__wrap_rows_fetch(l, is_v, &rows));
        for (int32_t i = 0; i < n_heads(l); i++)
            for (int32_t j = 0; j < l->wrap->heads[i].n && j < kv->len[i]; j++)
                memcpy(rows + (size_t)l->wrap->heads[i].row[j] * bytes,
                       from + (size_t)(kv->off[i] + j) * bytes, bytes);
        rows_of(&t, l, is_v);
        ggml_backend_tensor_set(&t, rows, 0, bytes * (size_t)rows_there(l));
        free(rows);
    }
    return WNW_OK;
}

/* ---- As libllama sees it ---- */

/* The head, and in *cell the cell, of part i of a tensor's rows of heads. */
static struct wnw__wrap_head *head_of_part(const struct wnw__bridge_layer *l, size_t i, int32_t *cell)
{
    const size_t at = i / (size_t)l->n_head, stream = at / (size_t)l->k.n_cell;
    *cell = (int32_t)(at % (size_t)l->k.n_cell);
    return &l->wrap->heads[stream * (size_t)l->n_head + i % (size_t)l->n_head];
}

int wnw__wrap_rows_read(const struct wnw__bridge_tensor *t, size_t at, size_t n, uint8_t *dst)
{
    const struct wnw__bridge_layer *l = t->layer;
    const size_t bytes = head_bytes(l, t->is_v);
    uint8_t *rows;
    WNW_TRY(wnw__wrap_rows_fetch(l, t->is_v, &rows));
    for (size_t end = at + n; at < end;) {
        const size_t i = at / bytes, in = at % bytes, part = bytes - in < end - at ? bytes - in : end - at;
        int32_t cell;
        const struct wnw__wrap_head *h = head_of_part(l, i, &cell);
        const int32_t entry = wnw__wrap_find(h, cell);
        if (has(h, entry, cell))
            memcpy(dst, rows + (size_t)h->row[entry] * bytes + in, part);
        else
            memset(dst, l->written[i / (size_t)l->n_head] ? 0xff : 0, part);
        at += part;
        dst += part;
    }
    free(rows);
    return WNW_OK;
}

/* Writes part `number`. Keys come before values, and decide what is there. */
static int write_part(struct wnw__bridge_tensor *t, size_t number, const uint8_t *part, uint8_t *rows)
{
    struct wnw__bridge_layer *l = t->layer;
    const size_t bytes = head_bytes(l, t->is_v);
    int32_t cell;
    int64_t row;
    struct wnw__wrap_head *h = head_of_part(l, number, &cell);
    const int32_t entry = wnw__wrap_find(h, cell);
    const bool is_hole = all_ones(part, bytes);
    if (is_hole && !t->is_v && has(h, entry, cell))
        take_out(h, entry);
    if (!t->is_v)
        l->written[number / (size_t)l->n_head] = 1;
    if (is_hole || (t->is_v && !has(h, entry, cell)))
        return WNW_OK;
    WNW_TRY(place_in(h, cell, &row));
    memcpy(rows + (size_t)row * bytes, part, bytes);
    return WNW_OK;
}

/* Writes whole parts of heads, from part `first` on. */
static int write_parts(struct wnw__bridge_tensor *t, size_t first, size_t n, const uint8_t *src)
{
    struct wnw__bridge_layer *l = t->layer;
    struct ggml_tensor x;
    uint8_t *rows;
    const size_t bytes = head_bytes(l, t->is_v), n_cell = n / (size_t)l->n_head + 2;
    WNW_TRY(wnw__wrap_rows_settle(l, 0, l->k.n_stream, n_cell < INT32_MAX ? (int32_t)n_cell : INT32_MAX / 2));
    WNW_TRY(wnw__wrap_rows_fetch(l, t->is_v, &rows));
    int rc = WNW_OK;
    for (size_t i = 0; i < n && rc == WNW_OK; i++)
        rc = write_part(t, first + i, src + i * bytes, rows);
    if (rc == WNW_OK) {
        rows_of(&x, l, t->is_v);
        ggml_backend_tensor_set(&x, rows, 0, bytes * (size_t)rows_there(l));
    }
    l->wrap->stale = true;
    free(rows);
    return rc;
}

int wnw__wrap_rows_write(struct wnw__bridge_tensor *t, size_t at, size_t n, const uint8_t *src)
{
    const size_t bytes = head_bytes(t->layer, t->is_v);
    const size_t first = at / bytes, last = n > 0 ? (at + n - 1) / bytes : first;
    if (n == 0)
        return WNW_OK;
    if (at % bytes == 0 && n % bytes == 0)
        return write_parts(t, first, n / bytes, src);
    uint8_t *whole = malloc((last + 1 - first) * bytes);
    if (!whole)
        return wnw__fail(WNW_E_NOMEM, "no memory to write %zu bytes of a cache", n);
    int rc = wnw__wrap_rows_read(t, first * bytes, (last + 1 - first) * bytes, whole);
    if (rc == WNW_OK) {
        memcpy(whole + (at - first * bytes), src, n);
        rc = write_parts(t, first, last + 1 - first, whole);
    }
    free(whole);
    return rc;
}

/* ---- As programs see it ---- */

static int64_t n_written(const struct wnw__bridge_layer *l, int64_t from, int64_t n)
{
    int64_t sum = 0;
    for (int64_t i = 0; l->written && i < n; i++)
        sum += l->written[from + i];
    return sum;
}

int64_t wnw__wrap_entries(const struct wnw__bridge_layer *l)
{
    int64_t n = 0;
    if (!l->wrap->ragged)
        return l->n_head * n_written(l, 0, (int64_t)l->k.n_stream * l->k.n_cell);
    for (int32_t i = 0; i < n_heads(l); i++)
        n += l->wrap->heads[i].n;
    return n;
}

/* Whether the layer has no entry left. */
static bool is_empty(const struct wnw__bridge_layer *l)
{
    return wnw__wrap_entries(l) == 0;
}

static int forget_head(struct wnw__bridge_layer *l, int32_t ih, const bool *dead)
{
    const struct wnw__wrap_head *h = &l->wrap->heads[ih];
    int32_t n = 0, *out = malloc(((size_t)h->n + 1) * sizeof *out);
    if (!out)
        return wnw__fail(WNW_E_NOMEM, "no memory to free entries of layer %d", (int)l->il);
    for (int32_t i = 0; i < h->n; i++)
        if (dead[h->cell[i]])
            out[n++] = h->cell[i];
    const int rc = n > 0 ? wnw__wrap_rows_drop(l, 0, ih, out, n) : WNW_OK;
    free(out);
    return rc;
}

int wnw__wrap_forget(struct wnw__bridge_layer *l, const bool *dead)
{
    for (int32_t ih = 0; l->wrap->ragged && ih < l->n_head; ih++)
        WNW_TRY(forget_head(l, ih, dead));
    for (int32_t cell = 0; l->written && !l->wrap->ragged && cell < l->k.n_cell; cell++)
        l->written[cell] = l->written[cell] && !dead[cell];
    if (is_empty(l))
        wnw__wrap_layer_clear(l);
    else if (l->wrap->settled) /* the next graph settles a layer that is not */
        return wnw__wrap_rows_settle(l, 0, 0, 0);
    return WNW_OK;
}

uint64_t wnw__wrap_bytes(const struct wnw__bridge_layer *l)
{
    return l->wrap && l->wrap->buffer ? ggml_backend_buffer_get_size(l->wrap->buffer) : 0;
}

int32_t wnw__wrap_room_entries(const struct wnw__bridge_layer *l)
{
    return l->wrap->w->pad;
}

int wnw__wrap_list(const struct wnw__bridge_layer *l, int32_t stream, int32_t ih, int32_t **out, int32_t *n)
{
    const int64_t first = (int64_t)stream * l->k.n_cell;
    const struct wnw__wrap_head *h = l->wrap->ragged ? &l->wrap->heads[stream * l->n_head + ih] : NULL;
    *n = h ? h->n : (int32_t)n_written(l, first, l->k.n_cell);
    *out = malloc(((size_t)*n + 1) * sizeof **out);
    if (!*out)
        return wnw__fail(WNW_E_NOMEM, "no memory for a list of %d cells", (int)*n);
    if (h && h->n > 0)
        memcpy(*out, h->cell, (size_t)h->n * sizeof **out);
    for (int32_t cell = 0, i = 0; !h && l->written && cell < l->k.n_cell; cell++)
        if (l->written[first + cell])
            (*out)[i++] = cell;
    return WNW_OK;
}
