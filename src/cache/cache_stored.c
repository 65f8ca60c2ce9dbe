/* SPDX-License-Identifier: MIT */
/* Layers as blocks of bytes, and layers whose rows are pages of a file. See cache_stored.h. */
#include "cache/cache_stored.h"

#include "base/sizes.h"
#include "base/system.h"
#include "cache/cache_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Sizes ---- */

struct wnw__stored_counts wnw__cache_stored_counts(const struct wnw__cache *c, int32_t il)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    return (struct wnw__stored_counts){.len = l->len,
                                       .n_first = c->n_tail > 0 ? l->tail.n_first : NULL,
                                       .n_quantised = c->n_tail > 0 ? l->tail.n_quantised : NULL,
                                       .n_settled = l->n_settled,
                                       .n_ambiguous = l->n_ambiguous};
}

/* Rows of the cache's type that head ih has. */
static int32_t n_rows_of(const struct wnw__stored_counts *n, int32_t ih)
{
    return n->n_quantised ? n->n_quantised[ih] : n->len[ih];
}

static int32_t n_tail_rows_of(const struct wnw__stored_counts *n, int32_t ih)
{
    return n->n_quantised ? n->len[ih] - n->n_quantised[ih] : 0;
}

static uint64_t round_to_page(uint64_t bytes)
{
    return wnw__size_round_up(bytes, WNW_STORED_PAGE);
}

static uint64_t entries_of(const struct wnw__cache *c, const struct wnw__stored_counts *n)
{
    uint64_t sum = 0;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        sum += (uint64_t)n->len[ih];
    return sum;
}

/* Bytes before the rows that begin pages, the gap not counted. */
static uint64_t front_bytes(const struct wnw__cache *c, const struct wnw__stored_counts *n)
{
    uint64_t per_entry = sizeof(int32_t), tail_rows = 0;
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        per_entry += (uint64_t)c->aux_planes[kind] * sizeof(float);
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        tail_rows += (uint64_t)n_tail_rows_of(n, ih);
    return wnw__size_add(wnw__size_mul(entries_of(c, n), per_entry),
                         wnw__size_mul(2 * tail_rows, c->tail_row_bytes));
}

uint64_t wnw__cache_stored_front(const struct wnw__cache *c, const struct wnw__stored_counts *counts)
{
    return round_to_page(front_bytes(c, counts));
}

uint64_t wnw__cache_stored_rows(const struct wnw__cache *c, const struct wnw__stored_counts *counts,
                                enum wnw__stored what, int32_t ih)
{
    return round_to_page(
        wnw__size_mul((uint64_t)n_rows_of(counts, ih), what == WNW_KEYS ? c->row_bytes : c->v_row_bytes));
}

uint64_t wnw__cache_stored_bytes(const struct wnw__cache *c, const struct wnw__stored_counts *counts)
{
    uint64_t bytes = wnw__cache_stored_front(c, counts);
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        for (int what = WNW_KEYS; what <= WNW_VALUES; what++)
            bytes = wnw__size_add(bytes, wnw__cache_stored_rows(c, counts, (enum wnw__stored)what, ih));
    return bytes;
}

static int check_tail(const struct wnw__cache *c, int32_t il, int32_t ih, const struct wnw__stored_counts *n)
{
    if (wnw__cache_tail_fits(c, c->layers[il].n_swa, n->len[ih], n->n_first[ih], n->n_quantised[ih]))
        return WNW_OK;
    return wnw__fail(
        WNW_E_FORMAT,
        "layer %d, head %d: %d of %d entries cannot be quantised, the first %d not, with a tail of %d",
        (int)il, (int)ih, (int)n->n_quantised[ih], (int)n->len[ih], (int)n->n_first[ih], (int)c->n_tail);
}

int wnw__cache_stored_check(const struct wnw__cache *c, int32_t il, const struct wnw__stored_counts *counts,
                            int32_t n_past)
{
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        const int32_t len = counts->len[ih];
        if (len < 0 || len > n_past)
            return wnw__fail(WNW_E_FORMAT, "layer %d, head %d has %d entries of %d tokens", (int)il, (int)ih,
                             (int)len, (int)n_past);
        if (c->layers[il].n_swa > 0 && len != counts->len[0])
            return wnw__fail(WNW_E_FORMAT, "layer %d has a sliding window and heads of %d and %d entries",
                             (int)il, (int)counts->len[0], (int)len);
        if (c->n_tail > 0)
            WNW_TRY(check_tail(c, il, ih, counts));
        if (counts->n_settled < 0 || counts->n_settled > len)
            return wnw__fail(WNW_E_FORMAT, "layer %d has %d settled entries, head %d has %d entries", (int)il,
                             (int)counts->n_settled, (int)ih, (int)len);
    }
    if (counts->n_ambiguous < 0 || counts->n_ambiguous > n_past)
        return wnw__fail(WNW_E_FORMAT, "layer %d: %d ambiguous positions of %d", (int)il,
                         (int)counts->n_ambiguous, (int)n_past);
    return WNW_OK;
}

int wnw__cache_stored_check_positions(const struct wnw__cache *c, int32_t il,
                                      const struct wnw__stored_counts *counts, const int32_t *pos,
                                      int32_t n_past)
{
    const bool slides = c->layers[il].n_swa > 0;
    for (int32_t ih = 0; ih < c->n_head_kv; pos += counts->len[ih++]) {
        const int32_t len = counts->len[ih];
        for (int32_t i = 0; i < len; i++) {
            const bool ascends = pos[i] >= 0 && pos[i] < n_past && (i == 0 || pos[i] > pos[i - 1]);
            if (!ascends || (slides && pos[i] != n_past - len + i))
                return wnw__fail(WNW_E_FORMAT, "layer %d, head %d: entry %d cannot have position %d of %d",
                                 (int)il, (int)ih, (int)i, (int)pos[i], (int)n_past);
        }
    }
    return WNW_OK;
}

/* ---- Storing ---- */

/* A block that is given away; `n` bytes of it are gone. */
struct giving {
    wnw__put_fn put;
    void *to;
    uint64_t n;
};

static int give(struct giving *g, const void *bytes, size_t n)
{
    g->n += n;
    return n > 0 ? g->put(g->to, bytes, n) : WNW_OK;
}

static int give_page_end(struct giving *g)
{
    static const uint8_t zeros[WNW_STORED_PAGE];
    return give(g, zeros, (size_t)(round_to_page(g->n) - g->n));
}

/* Gives keys or values of entries from .. to-1, which are stored alike. */
static int give_rows(struct giving *g, const struct wnw__cache *c, const struct wnw__kv_layer *l, int32_t ih,
                     const int32_t range[2], enum wnw__stored what)
{
    if (range[0] >= range[1])
        return WNW_OK;
    const struct wnw__kv_rows rows = wnw__cache_rows(c, l, ih, range[0], range[1]);
    const bool own = rows.type == c->type && c->n_tail == 0;
    const size_t each = what == WNW_VALUES && own ? c->v_row_bytes : rows.row_bytes;
    return give(g, what == WNW_KEYS ? rows.k : rows.v, (size_t)rows.n * each);
}

/* Gives the first entries of a head and its last, which are in its tail. */
static int give_tail(struct giving *g, const struct wnw__cache *c, const struct wnw__kv_layer *l, int32_t ih,
                     enum wnw__stored what)
{
    const int32_t n_quantised = l->tail.n_quantised[ih], n_first = n_quantised > 0 ? l->tail.n_first[ih] : 0;
    const int32_t first[2] = {0, n_first}, last[2] = {n_first + n_quantised, l->len[ih]};
    WNW_TRY(give_rows(g, c, l, ih, first, what));
    return give_rows(g, c, l, ih, last, what);
}

static int give_front(struct giving *g, const struct wnw__cache *c, const struct wnw__kv_layer *l)
{
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        WNW_TRY(give(g, l->len[ih] > 0 ? l->pos + l->off[ih] : NULL, (size_t)l->len[ih] * sizeof *l->pos));
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        for (int32_t p = 0; p < c->aux_planes[kind]; p++)
            for (int32_t ih = 0; ih < c->n_head_kv; ih++)
                WNW_TRY(give(g, wnw__cache_aux(l, (enum wnw__aux)kind, p) + l->off[ih],
                             (size_t)l->len[ih] * sizeof(float)));
    for (int32_t ih = 0; c->n_tail > 0 && ih < c->n_head_kv; ih++) {
        WNW_TRY(give_tail(g, c, l, ih, WNW_KEYS));
        WNW_TRY(give_tail(g, c, l, ih, WNW_VALUES));
    }
    return give_page_end(g);
}

int wnw__cache_store_layer(const struct wnw__cache *c, int32_t il, wnw__put_fn put, void *to)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    struct giving g = {.put = put, .to = to};
    WNW_TRY(give_front(&g, c, l));
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        const int32_t n_quantised = c->n_tail > 0 ? l->tail.n_quantised[ih] : l->len[ih];
        const int32_t from = c->n_tail > 0 && n_quantised > 0 ? l->tail.n_first[ih] : 0;
        const int32_t range[2] = {from, from + n_quantised};
        for (int what = WNW_KEYS; what <= WNW_VALUES; what++) {
            WNW_TRY(give_rows(&g, c, l, ih, range, (enum wnw__stored)what));
            WNW_TRY(give_page_end(&g));
        }
    }
    return WNW_OK;
}

/* ---- Loading ---- */

/* A block that is read from its start, part by part. */
struct taking {
    const struct wnw__stored_block *block;
    uint64_t at;
};

static int take(struct taking *t, void *to, size_t n)
{
    const uint64_t from = t->block->at + t->at;
    t->at += n;
    return n > 0 ? wnw__read_at(t->block->fd, to, n, from) : WNW_OK;
}

static int take_front(struct taking *t, const struct wnw__cache *c, struct wnw__kv_layer *l,
                      const struct wnw__stored_counts *n)
{
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        if (n->len[ih] > 0)
            WNW_TRY(take(t, l->pos + l->off[ih], (size_t)n->len[ih] * sizeof *l->pos));
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        for (int32_t p = 0; p < c->aux_planes[kind]; p++)
            for (int32_t ih = 0; ih < c->n_head_kv; ih++)
                WNW_TRY(take(t, wnw__cache_aux(l, (enum wnw__aux)kind, p) + l->off[ih],
                             (size_t)n->len[ih] * sizeof(float)));
    for (int32_t ih = 0; c->n_tail > 0 && ih < c->n_head_kv; ih++) {
        const size_t from = (size_t)l->tail.off[ih] * c->tail_row_bytes,
                     bytes = (size_t)n_tail_rows_of(n, ih) * c->tail_row_bytes;
        if (bytes == 0)
            continue;
        WNW_TRY(take(t, l->tail.k + from, bytes));
        WNW_TRY(take(t, l->tail.v + from, bytes));
    }
    t->at = round_to_page(t->at);
    return WNW_OK;
}

/* Puts the next n bytes of the block at `to`. With `map` whole pages there may be replaced by pages of the file. */
static int take_rows(struct taking *t, uint8_t *to, size_t n, bool map)
{
    const struct wnw__stored_block *b = t->block;
    if (n > 0 && map) {
        const size_t bytes = wnw__cache_page_round(n);
        const uint64_t from = b->at + t->at;
        if (mmap(to, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, b->fd,
                 (off_t)from) == MAP_FAILED)
            return wnw__fail(WNW_E_NOMEM, "a part of %zu bytes of the stored cache cannot be mapped", bytes);
        t->at = round_to_page(t->at + n);
        return WNW_OK;
    }
    WNW_TRY(take(t, to, n));
    t->at = round_to_page(t->at);
    return WNW_OK;
}

/* The least number of rows whose bytes are whole pages of the system, which are a power of two. */
static int32_t rows_of_pages(size_t row_bytes)
{
    size_t rows = (size_t)sysconf(_SC_PAGESIZE);
    while (rows > 1 && (rows / 2 * row_bytes) % (size_t)sysconf(_SC_PAGESIZE) == 0)
        rows /= 2;
    return (int32_t)rows;
}

/* Sets the room of every head, in multiples of `unit` for rows of the cache's type; returns how many of those rows there
 * are. */
static int64_t set_caps(const struct wnw__cache *c, const struct wnw__kv_caps *caps,
                        const struct wnw__stored_counts *n, const int32_t room[2], int32_t unit)
{
    int64_t sum = 0;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        const int64_t need = (int64_t)n->len[ih] + room[0];
        caps->entry[ih] = (int32_t)wnw__cache_round_up(need, c->n_tail > 0 ? c->growth : unit);
        if (c->n_tail == 0) {
            sum += caps->entry[ih];
            continue;
        }
        const int64_t most = wnw__cache_most_f16(c) + (int64_t)room[1], held = n_tail_rows_of(n, ih);
        const int64_t pushed =
            room[0] > 0 ? n_rows_of(n, ih) + (int64_t)room[0] + WNW_CACHE_BLOCK : n_rows_of(n, ih);
        caps->tail[ih] =
            (int32_t)wnw__cache_round_up(held + room[0] < most ? held + room[0] : most, c->growth);
        caps->quantised[ih] = (int32_t)wnw__cache_round_up(pushed, unit);
        sum += caps->quantised[ih];
    }
    return sum;
}

/* Sets the room of every head; returns whether rows can be mapped: without many more addresses than rows need. */
static bool choose_caps(const struct wnw__cache *c, const struct wnw__kv_caps *caps,
                        const struct wnw__stored_counts *n, const struct wnw__stored_block *block,
                        const int32_t room[2])
{
    const int32_t unit = rows_of_pages(c->row_bytes) > c->growth ? rows_of_pages(c->row_bytes) : c->growth;
    const int64_t tight = set_caps(c, caps, n, room, c->growth);
    const bool in_pages = WNW_STORED_PAGE % sysconf(_SC_PAGESIZE) == 0 && c->row_bytes == c->v_row_bytes;
    if (block->copied || !in_pages)
        return false;
    if (set_caps(c, caps, n, room, unit) * 4 <= tight * 5)
        return true;
    (void)set_caps(c, caps, n, room, c->growth);
    return false;
}

static int fill(const struct wnw__cache *c, struct wnw__kv_layer *l, const struct wnw__stored_counts *n,
                const struct wnw__stored_block *block, bool map)
{
    struct taking t = {.block = block};
    WNW_TRY(take_front(&t, c, l, n));
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        const int64_t row = c->n_tail > 0 ? l->tail.quantised_off[ih] : l->off[ih];
        const size_t rows = (size_t)n_rows_of(n, ih);
        if (rows > 0) {
            WNW_TRY(take_rows(&t, l->k + (size_t)row * c->row_bytes, rows * c->row_bytes, map));
            WNW_TRY(take_rows(&t, l->v + (size_t)row * c->v_row_bytes, rows * c->v_row_bytes, map));
        }
        l->len[ih] = n->len[ih];
        if (c->n_tail > 0) {
            l->tail.n_first[ih] = n->n_first[ih];
            l->tail.n_quantised[ih] = n->n_quantised[ih];
        }
    }
    l->n_settled = n->n_settled;
    l->n_ambiguous = n->n_ambiguous;
    return WNW_OK;
}

int wnw__cache_load_layer(struct wnw__cache *c, int32_t il, const struct wnw__stored_counts *counts,
                          const struct wnw__stored_block *block, int32_t room, int32_t n_at_once)
{
    struct wnw__kv_layer *l = &c->layers[il], fresh;
    struct wnw__kv_caps caps = wnw__cache_caps_new(c);
    const int32_t rooms[2] = {room, n_at_once < room ? n_at_once : room};
    if (!caps.entry)
        return wnw__fail(WNW_E_NOMEM, "no memory to load cache layer %d", (int)il);
    const bool map = choose_caps(c, &caps, counts, block, rooms);
    int rc = wnw__cache_layer_new(c, &fresh, &caps, l->n_swa);
    free(caps.entry);
    WNW_TRY(rc);
    fresh.of_file = map;
    rc = fill(c, &fresh, counts, block, map);
    if (rc != WNW_OK) {
        wnw__cache_layer_free(&fresh);
        return rc;
    }
    wnw__cache_layer_free(l);
    *l = fresh;
    return WNW_OK;
}
