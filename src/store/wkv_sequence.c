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
#include "base/sizes.h"
#include "base/system.h"
#include "store/wkv.h"

#include <ggml.h>
#include <stdlib.h>
#include <string.h>

/* ---- What fits ---- */

/* Size of the blocks in which libllama rotates keys, or values, of a quantised cache: none where a head is no multiple of
 * the smallest of them. */
static int32_t libllama_block(const struct wnw__wkv_meta *m, enum wnw__stored what)
{
    enum { SMALLEST = 64 };
    const int32_t d = m->n_embd_head, largest = d & -d;
    const bool quantised = m->kv_type == WNW_KV_Q8_0 || m->kv_type == WNW_KV_Q4_0;
    if (!quantised || d % SMALLEST != 0)
        return 0;
    return what == WNW_KEYS ? largest : SMALLEST;
}

static int check_rotation(const struct wnw__wkv_meta *m)
{
    const int32_t k = libllama_block(m, WNW_KEYS), v = libllama_block(m, WNW_VALUES);
    if (m->k_block == k && m->v_block == v)
        return WNW_OK;
    return wnw__fail(
        WNW_E_UNSUPPORTED,
        "its keys and values are rotated in blocks of %d and %d elements, those of libllama in %d "
        "and %d (0: not at all)%s",
        (int)m->k_block, (int)m->v_block, (int)k, (int)v, k == 0 ? "; store it with --kv-rotate off" : "");
}

static bool has_new_positions(const struct wnw_stored *st)
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
    return wnw__fail(WNW_E_UNSUPPORTED,
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
    if (has_new_positions(st))
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

static int32_t ggml_type_of(wnw_kv_type type)
{
    return (int32_t)(type == WNW_KV_F16    ? GGML_TYPE_F16
                     : type == WNW_KV_F32  ? GGML_TYPE_F32
                     : type == WNW_KV_Q8_0 ? GGML_TYPE_Q8_0
                                           : GGML_TYPE_Q4_0);
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
    const int32_t type = ggml_type_of(st->meta.kv_type);
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
    rc = rc == WNW_OK ? wnw__wkv_unchanged(st) : rc; /* nor while it was read */
    if (rc != WNW_OK) {
        free(*bytes);
        *bytes = NULL;
    }
    return rc;
}
