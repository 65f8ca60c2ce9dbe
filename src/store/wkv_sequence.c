/* SPDX-License-Identifier: MIT */
/*
 * A stored session as libllama saves a sequence: a mark, 0 (its number), then for each of its caches, which is one, or one of the
 * layers without a sliding window and one of those with,
 *
 *     1 (streams), tokens, and of each token: position, 1 (sequences), 0 (its number)
 *     0 (values are not transposed), layers
 *     of each layer: type of keys, bytes of a token, its keys of all heads, token after token
 *     of each layer: the same of values
 */
#include "base/bytes.h"
#include "base/kv_types.h"
#include "base/sizes.h"
#include "base/system.h"
#include "session/timeline/state.h"
#include "store/wkv.h"

#include <ggml.h>
#include <stdlib.h>
#include <string.h>

/* ---- What fits ---- */

/* Size of the blocks in which libllama rotates keys, or values, of a quantised cache: none where a head is no multiple of
 * the smallest of them. */
static int32_t libllama_block(int32_t d, wnw_kv_type type, enum wnw__stored what)
{
    enum { SMALLEST = 64 };
    const int32_t largest = d & -d;
    const bool quantised = type == WNW_KV_Q8_0 || type == WNW_KV_Q4_0;
    if (!quantised || d % SMALLEST != 0)
        return 0;
    return what == WNW_KEYS ? largest : SMALLEST;
}

static int check_rotation(const struct wnw__wkv_meta *m)
{
    const int32_t k = libllama_block(m->n_embd_head, m->kv_type, WNW_KEYS),
                  v = libllama_block(m->n_embd_head, m->kv_type, WNW_VALUES);
    if (m->k_block == k && m->v_block == v)
        return WNW_OK;
    return wnw__fail(
        WNW_E_UNSUPPORTED,
        "its keys and values are rotated in blocks of %d and %d elements, those of libllama in %d "
        "and %d (0: not at all)%s",
        (int)m->k_block, (int)m->v_block, (int)k, (int)v, k == 0 ? "; store it with --kv-rotate off" : "");
}

bool wnw__wkv_has_new_positions(const struct wnw_stored *st)
{
    const struct wnw__session_state *s = &st->meta.state;
    bool has = s->pos_shift > 0 || s->n_ambiguous > 0;
    for (int32_t il = 0; il < st->meta.n_layer; il++)
        has = has || wnw__wkv_counts(st, il).n_ambiguous > 0;
    return has;
}

#ifndef WNW_SEQUENCE_VERSION
#error "the build says in which version libllama saves sequences: WNW_SEQUENCE_VERSION"
#endif

/* The version of libllama's form that is written here. */
enum { WRITTEN_VERSION = 3 };

static int check_version(void)
{
    if (WNW_SEQUENCE_VERSION == WRITTEN_VERSION)
        return WNW_OK;
    return wnw__fail(
        WNW_E_UNSUPPORTED,
        "this libllama saves sequences in version %d of its form, and winnow writes version %d: use "
        "a libllama that has this one (docs/internals/upstream.md)",
        WNW_SEQUENCE_VERSION, (int)WRITTEN_VERSION);
}

static int check_fit(const struct wnw_stored *st)
{
    const struct wnw__wkv_meta *m = &st->meta;
    if (m->kv_tail > 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "its newest entries are f16 (--kv-tail), and libllama's cache has one type");
    if (wnw__wkv_has_new_positions(st))
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "its entries have new positions (+rerotate), which libllama has not in every head");
    if (m->aux_planes[WNW_AUX_BIAS] > 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "its entries have biases, which attention under libllama does not add");
    if (m->state.recurrent)
        return wnw__fail(WNW_E_UNSUPPORTED, "it has a state of recurrent layers, which is not moved");
    return check_rotation(m);
}

/* ---- Writing ---- */

/* What states of sequences begin with. */
#define SEQUENCE_MARK 0xaf143cd8u

static void put(uint8_t **at, const void *bytes, size_t n)
{
    memcpy(*at, bytes, n);
    *at += n;
}

static void put_u32(uint8_t **at, uint32_t x)
{
    put(at, &x, sizeof x);
}

/* Writes the keys or values of a layer, those of a token after those of the one before. */
static int put_rows(uint8_t **at, const struct wnw_stored *st, int32_t il, enum wnw__stored what)
{
    const struct wnw__stored_counts counts = wnw__wkv_counts(st, il);
    const int32_t n_head = st->meta.n_head_kv;
    const size_t each = what == WNW_KEYS ? st->form.row_bytes : st->form.v_row_bytes;
    const uint64_t row_bytes = (uint64_t)n_head * each;
    uint64_t from = st->layer[il]->at + wnw__cache_stored_front(&st->form, &counts);
    uint8_t *rows = malloc((size_t)st->n_tokens * each); /* of one head */
    int rc = rows ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for %d rows", (int)st->n_tokens);
    const int32_t type = (int32_t)wnw__ggml_kv_type(st->meta.kv_type);
    put(at, &type, sizeof type);
    put(at, &row_bytes, sizeof row_bytes);
    memset(*at, 0xff, (size_t)st->n_tokens * row_bytes);
    for (int32_t ih = 0; rc == WNW_OK && ih < n_head; ih++) {
        const int32_t *pos, n = wnw_stored_head(st, il, ih, &pos);
        const uint64_t keys = wnw__cache_stored_rows(&st->form, &counts, WNW_KEYS, ih);
        rc = wnw__read_at(st->fd, rows, (size_t)n * each, what == WNW_KEYS ? from : from + keys);
        from += keys + wnw__cache_stored_rows(&st->form, &counts, WNW_VALUES, ih);
        for (int32_t i = 0; rc == WNW_OK && i < n; i++)
            memcpy(*at + (size_t)pos[i] * row_bytes + (size_t)ih * each, rows + (size_t)i * each, each);
    }
    free(rows);
    *at += (size_t)st->n_tokens * row_bytes;
    return rc;
}

/* Number of layers that have a sliding window, or have none. */
static uint32_t count_layers(const struct wnw_stored *st, bool slides)
{
    uint32_t n = 0;
    for (int32_t il = 0; il < st->meta.n_layer; il++)
        n += (st->form.layers[il].n_swa > 0) == slides;
    return n;
}

/* Bytes of one of the caches, n_layer layers; WNW_SIZE_TOO_LARGE where they have more than 64 bits. */
static uint64_t cache_bytes(const struct wnw_stored *st, uint32_t n_layer)
{
    const uint64_t n = (uint64_t)st->n_tokens, of_rows = sizeof(int32_t) + sizeof(uint64_t);
    const uint64_t each =
        wnw__size_mul((uint64_t)st->meta.n_head_kv, st->form.row_bytes + st->form.v_row_bytes);
    const uint64_t of_layer = wnw__size_add(2 * of_rows, wnw__size_mul(n, each));
    return wnw__size_add((4 + 3 * n) * sizeof(uint32_t), wnw__size_mul(n_layer, of_layer));
}

/* Bytes of the sequence. What is dropped takes as much of it as what is kept, so that a small file can ask for any size. */
static int sequence_bytes(size_t *bytes, const struct wnw_stored *st)
{
    const uint32_t n_slides = count_layers(st, true);
    uint64_t sum = wnw__size_add(2 * sizeof(uint32_t), cache_bytes(st, count_layers(st, false)));
    if (n_slides > 0)
        sum = wnw__size_add(sum, cache_bytes(st, n_slides));
    if (sum > PTRDIFF_MAX)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "%d tokens in %d layers of %d heads of %d elements are more bytes than memory can have",
            (int)st->n_tokens, (int)st->meta.n_layer, (int)st->meta.n_head_kv, (int)st->meta.n_embd_head);
    *bytes = (size_t)sum;
    return WNW_OK;
}

static int put_cache(uint8_t **at, const struct wnw_stored *st, bool slides)
{
    put_u32(at, 1);
    put_u32(at, (uint32_t)st->n_tokens);
    for (int32_t i = 0; i < st->n_tokens; i++) {
        put_u32(at, (uint32_t)i);
        put_u32(at, 1);
        put_u32(at, 0);
    }
    put_u32(at, 0);
    put_u32(at, count_layers(st, slides));
    for (int what = WNW_KEYS; what <= WNW_VALUES; what++)
        for (int32_t il = 0; il < st->meta.n_layer; il++)
            if ((st->form.layers[il].n_swa > 0) == slides)
                WNW_TRY(put_rows(at, st, il, (enum wnw__stored)what));
    return WNW_OK;
}

int wnw_stored_sequence(const wnw_stored *st, uint8_t **bytes, size_t *n)
{
    if (bytes)
        *bytes = NULL;
    WNW_REQUIRE(n);
    *n = 0;
    WNW_REQUIRE(st);
    WNW_TRY(check_version());
    WNW_TRY(wnw__wkv_unchanged(st));
    WNW_TRY(check_fit(st));
    size_t size = 0;
    WNW_TRY(sequence_bytes(&size, st));
    *n = size;
    if (!bytes)
        return WNW_OK;
    uint8_t *at = *bytes = malloc(size);
    if (!at)
        return wnw__fail(WNW_E_NOMEM, "no memory for a sequence of %zu bytes", size);
    put_u32(&at, SEQUENCE_MARK);
    put_u32(&at, 0);
    int rc = put_cache(&at, st, false);
    if (rc == WNW_OK && count_layers(st, true) > 0)
        rc = put_cache(&at, st, true);
    if (rc == WNW_OK) /* nor while it was read */
        rc = wnw__wkv_unchanged(st);
    if (rc != WNW_OK) {
        free(*bytes);
        *bytes = NULL;
    }
    return rc;
}

/* ---- Reading ---- */

static int no_state(const char *what)
{
    return wnw__fail(WNW_E_FORMAT, "this is no state of a sequence that libllama has read: %s", what);
}

/* One of libllama's caches in a state. */
struct stored_rows {
    int32_t n_tokens;
    int32_t *cell;           /* [n_tokens] place of the token's row, -1 = it has none; owned */
    const uint8_t **rows[2]; /* [n_layer] keys and values of each layer of the session; owned lists */
    bool slides;
};

static int take_cells(struct wnw__bytes *r, struct stored_rows *c, uint32_t n)
{
    for (int32_t t = 0; t < c->n_tokens; t++)
        c->cell[t] = -1;
    for (uint32_t i = 0; i < n && !r->short_of; i++) {
        const uint32_t pos = wnw__bytes_u32(r), n_seq = wnw__bytes_u32(r);
        (void)wnw__bytes_take(r, (uint64_t)n_seq * sizeof(uint32_t));
        if (pos >= (uint32_t)c->n_tokens || c->cell[pos] >= 0)
            return no_state("a token has a position that was not read, or that another one has");
        c->cell[pos] = (int32_t)i;
    }
    return r->short_of ? no_state("it ends too early") : WNW_OK;
}

/* Finds the keys or values of n cells in all layers of this cache. */
static int find_rows(struct wnw__bytes *r, struct stored_rows *c, const struct wnw__cache *own, uint32_t n,
                     enum wnw__stored what)
{
    const size_t each = what == WNW_KEYS ? own->row_bytes : own->v_row_bytes;
    for (int32_t il = 0; il < own->n_layer; il++) {
        if ((own->layers[il].n_swa > 0) != c->slides)
            continue;
        const int32_t type = (int32_t)wnw__bytes_u32(r);
        const uint64_t row_bytes = wnw__bytes_u64(r);
        if (!r->short_of &&
            (type != (int32_t)wnw__ggml_kv_type(own->type) || row_bytes != each * (size_t)own->n_head_kv))
            return no_state("its rows are of another type or length than those of the session");
        c->rows[what][il] = wnw__bytes_take(r, n * row_bytes);
    }
    return r->short_of ? no_state("it ends too early") : WNW_OK;
}

static int take_cache(struct wnw__bytes *r, struct stored_rows *c, const struct wnw__cache *own)
{
    uint32_t n_layer = 0;
    for (int32_t il = 0; il < own->n_layer; il++)
        n_layer += (own->layers[il].n_swa > 0) == c->slides;
    if (wnw__bytes_u32(r) != 1)
        return no_state("it has several streams, or none");
    const uint32_t n = wnw__bytes_u32(r);
    if (n > (uint32_t)c->n_tokens)
        return no_state("it has more tokens than were read");
    WNW_TRY(take_cells(r, c, n));
    if (wnw__bytes_u32(r) != 0)
        return no_state("its values are transposed, as they are without flash attention");
    if (wnw__bytes_u32(r) != n_layer)
        return no_state("it has other layers than the model's sessions");
    WNW_TRY(find_rows(r, c, own, n, WNW_KEYS));
    return find_rows(r, c, own, n, WNW_VALUES);
}

static bool all_ones(const uint8_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != 0xff)
            return false;
    return true;
}

/* Copies the rows of a head in one layer to the room that was reserved, and lists the tokens that it holds. */
static int32_t take_head(struct wnw__cache *own, const struct stored_rows *c, int32_t il, int32_t ih,
                         int32_t *keep)
{
    const struct wnw__kv_layer *l = &own->layers[il];
    const size_t k = own->row_bytes, v = own->v_row_bytes;
    const int32_t first = wnw__cache_first_seen(own, l, c->n_tokens);
    int32_t n = 0;
    for (int32_t t = 0; t < c->n_tokens; t++) {
        const size_t from = (size_t)(c->cell[t] < 0 ? 0 : c->cell[t]) * (size_t)own->n_head_kv + (size_t)ih;
        const size_t to = (size_t)(l->off[ih] + t);
        const bool there = c->cell[t] >= 0 && (l->n_swa == 0 || t >= first) &&
                           !all_ones(c->rows[WNW_KEYS][il] + from * k, k);
        if (!there)
            continue;
        memcpy(l->k + to * k, c->rows[WNW_KEYS][il] + from * k, k);
        memcpy(l->v + to * v, c->rows[WNW_VALUES][il] + from * v, v);
        keep[n++] = t;
    }
    return n;
}

static int fill_layer(struct wnw__cache *own, const struct stored_rows *c, int32_t il)
{
    const int32_t n_head = own->n_head_kv;
    int32_t *room = malloc((size_t)n_head * (size_t)c->n_tokens * sizeof *room);
    int32_t *n_keep = calloc((size_t)n_head, sizeof *n_keep);
    const int32_t **keep = calloc((size_t)n_head, sizeof *keep);
    int rc = room && n_keep && keep ? wnw__cache_reserve_layer(own, il, c->n_tokens, true)
                                    : wnw__fail(WNW_E_NOMEM, "no memory for %d tokens", (int)c->n_tokens);
    for (int32_t ih = 0; rc == WNW_OK && ih < n_head; ih++) {
        int32_t *const list = room + (size_t)ih * (size_t)c->n_tokens;
        n_keep[ih] = take_head(own, c, il, ih, list);
        keep[ih] = list;
    }
    if (rc == WNW_OK) {
        wnw__cache_commit_layer(own, il, 0, c->n_tokens);
        rc = wnw__cache_keep_layer(own, il, keep, n_keep);
    }
    free(room);
    free(n_keep);
    free(keep);
    return rc;
}

/* Reads one of the caches and fills the session's layers of its kind. */
static int fill_layers(struct wnw__bytes *r, struct wnw__cache *own, int32_t n_tokens, bool slides)
{
    struct stored_rows c = {.n_tokens = n_tokens, .slides = slides};
    c.cell = malloc((size_t)n_tokens * sizeof *c.cell);
    c.rows[WNW_KEYS] = calloc((size_t)own->n_layer, sizeof *c.rows[0]);
    c.rows[WNW_VALUES] = calloc((size_t)own->n_layer, sizeof *c.rows[0]);
    int rc = c.cell && c.rows[WNW_KEYS] && c.rows[WNW_VALUES]
                 ? take_cache(r, &c, own)
                 : wnw__fail(WNW_E_NOMEM, "no memory for the cells of %d tokens", (int)n_tokens);
    for (int32_t il = 0; rc == WNW_OK && il < own->n_layer; il++)
        if ((own->layers[il].n_swa > 0) == slides)
            rc = fill_layer(own, &c, il);
    free(c.cell);
    free(c.rows[WNW_KEYS]);
    free(c.rows[WNW_VALUES]);
    return rc;
}

/* Notes that the first n entries of every head are settled, or as many as there are. Layers with a sliding window are in no plan. */
static void settle(struct wnw__cache *c, int32_t n)
{
    for (int32_t il = 0; il < c->n_layer; il++) {
        struct wnw__kv_layer *l = &c->layers[il];
        l->n_settled = l->n_swa > 0 ? 0 : n;
        for (int32_t ih = 0; ih < c->n_head_kv; ih++)
            l->n_settled = l->n_settled < l->len[ih] ? l->n_settled : l->len[ih];
    }
}

/* Whether every head has an entry of each token, but for those that have left a sliding window. */
static bool has_all(const struct wnw__cache *c, int32_t n_tokens)
{
    for (int32_t il = 0; il < c->n_layer; il++)
        for (int32_t ih = 0; c->layers[il].n_swa == 0 && ih < c->n_head_kv; ih++)
            if (c->layers[il].len[ih] < n_tokens)
                return false;
    return true;
}

static int check_session(const wnw_session *s)
{
    const struct wnw__cache *c = &s->cache;
    if (s->n_past > 0)
        return wnw__fail(WNW_E_ARG, "the session has read %d tokens: a sequence goes into an empty one",
                         (int)s->n_past);
    if (c->n_tail > 0 || s->recurrent)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "libllama's cache has no tail, and recurrent layers are not moved");
    const int32_t k = libllama_block(c->d, c->type, WNW_KEYS), v = libllama_block(c->d, c->type, WNW_VALUES);
    if (c->k_block == k && c->v_block == v)
        return WNW_OK;
    return wnw__fail(WNW_E_UNSUPPORTED,
                     "sessions rotate keys and values in blocks of %d and %d elements, libllama in %d and "
                     "%d (0: not at all)%s",
                     (int)c->k_block, (int)c->v_block, (int)k, (int)v,
                     k == 0 ? "; take --kv-rotate off" : "");
}

int wnw_session_take_sequence(wnw_session *s, const uint8_t *state, size_t n, const int32_t *tokens,
                              int32_t n_tokens, int32_t n_settled)
{
    WNW_REQUIRE(s);
    WNW_REQUIRE(state);
    WNW_REQUIRE(tokens);
    if (n_settled < 0)
        return wnw__fail(WNW_E_ARG, "%d entries cannot be settled: it is 0 or more", (int)n_settled);
    struct wnw__bytes r = wnw__bytes_of(state, n);
    bool slides = false;
    WNW_TRY(check_version());
    WNW_TRY(check_session(s));
    WNW_TRY(wnw__session_check_tokens(s, tokens, n_tokens));
    if (wnw__bytes_u32(&r) != SEQUENCE_MARK)
        return no_state("it does not begin as one");
    (void)wnw__bytes_u32(&r); /* its number */
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        slides = slides || s->cache.layers[il].n_swa > 0;
    WNW_TRY(fill_layers(&r, &s->cache, n_tokens, false));
    if (slides)
        WNW_TRY(fill_layers(&r, &s->cache, n_tokens, true));
    WNW_TRY(wnw__session_take(s, tokens, n_tokens));
    settle(&s->cache, n_settled);
    if (has_all(&s->cache, n_tokens)) /* nothing was dropped that going back would miss */
        s->n_judged = 0;
    return WNW_OK;
}
