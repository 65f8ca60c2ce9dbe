/* SPDX-License-Identifier: MIT */
#include "cache/cache_impl.h"
#include "kernel/kernel.h"
#include "winnow_tools.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void free_rows(struct wnw__kv_layer *l)
{
    if (l->k)
        munmap(l->k, l->mapped_bytes);
    if (l->v)
        munmap(l->v, l->v_mapped_bytes);
    free(l->pos);
    l->k = l->v = NULL;
    l->pos = NULL;
    l->n_rows = 0;
    l->mapped_bytes = l->v_mapped_bytes = 0;
    l->of_file = false;
}

void wnw__cache_layer_free(struct wnw__kv_layer *l)
{
    free_rows(l);
    wnw__cache_tail_free(&l->tail);
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        free(l->aux[kind]);
    free(l->off);
    free(l->cap);
    free(l->len);
    *l = (struct wnw__kv_layer){.n_swa = l->n_swa};
}

/* The value that a number of the kind has before it is known. */
static float aux_empty(int kind)
{
    if (kind >= WNW_AUX_PROJ)
        return -1.0f;
    if (kind == WNW_AUX_GATE || kind == WNW_AUX_NOTE)
        return NAN;
    return 0.0f;
}

/* Allocates [n_plane][n_rows] empty values and one more, so that NULL always means that memory ran out. */
static float *aux_new(int kind, int32_t n_plane, int64_t n_rows)
{
    const size_t n = (size_t)n_plane * (size_t)n_rows;
    float *aux = malloc((n + 1) * sizeof *aux);
    for (size_t i = 0; aux && i <= n; i++)
        aux[i] = aux_empty(kind);
    return aux;
}

/* ---- Layers of a given capacity ---- */

struct wnw__kv_caps wnw__cache_caps_new(const struct wnw__cache *c)
{
    const size_t n = (size_t)c->n_head_kv;
    struct wnw__kv_caps caps = {.entry = calloc(3 * n, sizeof *caps.entry)};
    caps.quantised = caps.entry ? caps.entry + n : NULL;
    caps.tail = caps.entry ? caps.entry + 2 * n : NULL;
    return caps;
}

/* Sets off[n_head_kv] to the first rows of heads with the given capacities; returns the sum of those. */
static int64_t place(int32_t n_head_kv, const int32_t *cap, int64_t *off)
{
    int64_t n = 0;
    for (int32_t ih = 0; ih < n_head_kv; ih++) {
        off[ih] = n;
        n += cap[ih];
    }
    return n;
}

static uint64_t arena_bytes(const struct wnw__cache *c, const int32_t *cap, size_t row_bytes)
{
    int64_t n = 0;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        n += cap[ih];
    return wnw__cache_page_round((size_t)n * row_bytes);
}

uint64_t wnw__cache_caps_bytes(const struct wnw__cache *c, const struct wnw__kv_caps *caps)
{
    if (c->n_tail == 0)
        return arena_bytes(c, caps->entry, c->row_bytes) + arena_bytes(c, caps->entry, c->v_row_bytes);
    return 2 *
           (arena_bytes(c, caps->quantised, c->row_bytes) + arena_bytes(c, caps->tail, c->tail_row_bytes));
}

/* Maps the arenas of a layer whose heads have their offsets and capacities. n: rows of one arena. */
static int map_arenas(const struct wnw__cache *c, struct wnw__kv_layer *l, int64_t n)
{
    if (n == 0)
        return WNW_OK;
    l->mapped_bytes = wnw__cache_page_round((size_t)n * c->row_bytes);
    l->v_mapped_bytes = wnw__cache_page_round((size_t)n * c->v_row_bytes);
    l->k = wnw__cache_map_pages(l->mapped_bytes);
    if (l->v_mapped_bytes > 0)
        l->v = wnw__cache_map_pages(l->v_mapped_bytes);
    return l->k && (l->v || l->v_mapped_bytes == 0) ? WNW_OK : WNW_E_NOMEM;
}

static int no_layer(struct wnw__kv_layer *l)
{
    const long long n = (long long)l->n_rows;
    wnw__cache_layer_free(l);
    return wnw__fail(WNW_E_NOMEM, "no memory for a cache layer of %lld entries", n);
}

int wnw__cache_layer_new_bare(const struct wnw__cache *c, struct wnw__kv_layer *l,
                              const struct wnw__kv_caps *caps, int32_t n_swa)
{
    const size_t n = (size_t)c->n_head_kv;
    *l = (struct wnw__kv_layer){.n_swa = n_swa};
    l->off = calloc(n, sizeof *l->off);
    l->cap = calloc(n, sizeof *l->cap);
    l->len = calloc(n, sizeof *l->len);
    if (!l->off || !l->cap || !l->len)
        return no_layer(l);
    memcpy(l->cap, caps->entry, n * sizeof *l->cap);
    l->n_rows = place(c->n_head_kv, l->cap, l->off);
    for (int kind = 0; kind < WNW_N_AUX; kind++) {
        if (c->aux_planes[kind] > 0 && !(l->aux[kind] = aux_new(kind, c->aux_planes[kind], l->n_rows)))
            return no_layer(l);
    }
    if (l->n_rows > 0 && !(l->pos = malloc((size_t)l->n_rows * sizeof *l->pos)))
        return no_layer(l);
    return WNW_OK;
}

int wnw__cache_layer_new(const struct wnw__cache *c, struct wnw__kv_layer *l, const struct wnw__kv_caps *caps,
                         int32_t n_swa)
{
    const size_t n = (size_t)c->n_head_kv;
    WNW_TRY(wnw__cache_layer_new_bare(c, l, caps, n_swa));
    int64_t n_row = l->n_rows;
    if (c->n_tail > 0) {
        if (wnw__cache_tail_new(c, &l->tail, n_swa) != WNW_OK)
            return no_layer(l);
        memcpy(l->tail.quantised_cap, caps->quantised, n * sizeof *caps->quantised);
        n_row = place(c->n_head_kv, l->tail.quantised_cap, l->tail.quantised_off);
        if (wnw__cache_tail_map(c, &l->tail, caps->tail) != WNW_OK)
            return no_layer(l);
    }
    return map_arenas(c, l, n_row) == WNW_OK ? WNW_OK : no_layer(l);
}

/* Makes layers without entries, for a cache that has no layers yet. */
static int new_layers(struct wnw__cache *c)
{
    struct wnw__kv_caps caps = wnw__cache_caps_new(c);
    int rc = caps.entry ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for an empty cache");
    for (int32_t il = 0; rc == WNW_OK && il < c->n_layer; il++)
        rc = wnw__cache_layer_new(c, &c->layers[il], &caps, c->layers[il].n_swa);
    free(caps.entry);
    return rc;
}

static int new_cache(struct wnw__cache *c, const int32_t *n_swa)
{
    c->layers = calloc((size_t)c->n_layer, sizeof *c->layers);
    if (!c->layers)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d cache layers", (int)c->n_layer);
    for (int32_t il = 0; il < c->n_layer; il++)
        c->layers[il].n_swa = n_swa ? n_swa[il] : 0;
    const int rc = new_layers(c);
    if (rc != WNW_OK)
        wnw__cache_free(c);
    return rc;
}

int wnw__cache_init(struct wnw__cache *c, int32_t n_layer, int32_t n_head_kv, int32_t d, wnw_kv_type type,
                    int32_t growth, const int32_t *n_swa)
{
    *c = (struct wnw__cache){
        .n_layer = n_layer, .n_head_kv = n_head_kv, .d = d, .type = type, .growth = growth};
    c->row_bytes = c->v_row_bytes = wnw__row_bytes(type, d);
    if (c->row_bytes == 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "KV type %s needs a head size that is a multiple of 32, this model has %d",
                         wnw_kv_type_name(type), (int)d);
    return new_cache(c, n_swa);
}

int wnw__cache_init_rows(struct wnw__cache *c, int32_t n_head_kv, size_t key_bytes, size_t value_bytes)
{
    *c = (struct wnw__cache){.n_layer = 1,
                             .n_head_kv = n_head_kv,
                             .growth = WNW_CACHE_GROWTH,
                             .row_bytes = key_bytes,
                             .v_row_bytes = value_bytes};
    return new_cache(c, NULL);
}

void wnw__cache_free(struct wnw__cache *c)
{
    for (int32_t il = 0; c->layers && il < c->n_layer; il++)
        wnw__cache_layer_free(&c->layers[il]);
    free(c->layers);
    *c = (struct wnw__cache){0};
}

static void drop_aux(struct wnw__cache *c, enum wnw__aux kind)
{
    for (int32_t il = 0; il < c->n_layer; il++) {
        free(c->layers[il].aux[kind]);
        c->layers[il].aux[kind] = NULL;
    }
    c->aux_planes[kind] = 0;
}

void wnw__cache_clear(struct wnw__cache *c)
{
    for (int32_t il = 0; il < c->n_layer; il++) {
        struct wnw__kv_layer *l = &c->layers[il];
        free_rows(l);
        for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
            l->off[ih] = 0;
            l->cap[ih] = l->len[ih] = 0;
        }
        if (c->n_tail > 0)
            wnw__cache_tail_clear(c, l);
        for (int kind = 0; kind < WNW_N_AUX; kind++) {
            float *small = l->aux[kind] ? realloc(l->aux[kind], sizeof *small) : NULL;
            l->aux[kind] = small ? small : l->aux[kind]; /* a block that could not shrink is kept */
        }
        l->n_settled = l->n_ambiguous = 0;
    }
    drop_aux(c, WNW_AUX_BIAS); /* nothing asks for it but entries that have one */
}

void wnw__cache_empty_numbers(const struct wnw__cache *c, struct wnw__kv_layer *l, int64_t row, int32_t n)
{
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        for (int32_t p = 0; p < c->aux_planes[kind]; p++)
            for (int32_t i = 0; i < n; i++)
                wnw__cache_aux(l, (enum wnw__aux)kind, p)[row + i] = aux_empty(kind);
}

void wnw__cache_commit_layer(struct wnw__cache *c, int32_t il, int32_t first, int32_t n)
{
    struct wnw__kv_layer *l = &c->layers[il];
    if (c->n_tail > 0)
        wnw__cache_tail_push(c, l, n);
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        int32_t *pos = l->pos + l->off[ih] + l->len[ih];
        for (int32_t i = 0; i < n; i++)
            pos[i] = first + i;
        l->len[ih] += n;
    }
}

int wnw__cache_set_aux(struct wnw__cache *c, enum wnw__aux kind, int32_t n_plane)
{
    if (n_plane == 0) {
        drop_aux(c, kind);
        return WNW_OK;
    }
    float **fresh = calloc((size_t)c->n_layer, sizeof *fresh);
    bool ok = fresh != NULL;
    for (int32_t il = 0; ok && il < c->n_layer; il++)
        ok = (fresh[il] = aux_new((int)kind, n_plane, c->layers[il].n_rows)) != NULL;
    for (int32_t il = 0; fresh && il < c->n_layer; il++) {
        float *former = ok ? c->layers[il].aux[kind] : fresh[il];
        if (ok)
            c->layers[il].aux[kind] = fresh[il];
        free(former);
    }
    free(fresh);
    if (!ok)
        return wnw__fail(WNW_E_NOMEM, "no memory for numbers of the cached entries");
    c->aux_planes[kind] = n_plane;
    return WNW_OK;
}

/* ---- Rows and floats ---- */

/* The largest power of two that divides x. */
static int32_t power_of_two_in(int32_t x)
{
    return x & -x;
}

enum { MOST_BLOCK = 256, MOST_VALUE_BLOCK = 64 };

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

void wnw__cache_rotate(struct wnw__cache *c)
{
    c->k_block = least(power_of_two_in(c->d), MOST_BLOCK);
    c->v_block = least(c->k_block, MOST_VALUE_BLOCK);
}

void wnw__cache_store(const struct wnw__cache *c, enum wnw__stored what, wnw_kv_type type, const float *x,
                      uint8_t *to)
{
    const int32_t block = wnw__cache_block(c, what);
    float part[MOST_BLOCK]; /* whole blocks, of the rotation and of every type */
    if (block == 0) {
        wnw__rows_from_f32(type, x, 1, c->d, to);
        return;
    }
    for (int32_t at = 0; at < c->d; at += MOST_BLOCK) {
        const int32_t n = least(c->d - at, MOST_BLOCK);
        memcpy(part, x + at, (size_t)n * sizeof *part);
        wnw__hadamard(part, n, block);
        wnw__rows_from_f32(type, part, 1, n, to + wnw__row_bytes(type, at));
    }
}

void wnw__cache_read(const struct wnw__cache *c, int32_t il, enum wnw__stored what, int32_t ih, int32_t i,
                     int32_t n, float *dst)
{
    for (int32_t at = i; at < i + n;) {
        const struct wnw__kv_rows run = wnw__cache_rows(c, &c->layers[il], ih, at, i + n);
        wnw__rows_to_f32(run.type, what == WNW_KEYS ? run.k : run.v, run.n, c->d,
                         dst + (int64_t)(at - i) * c->d);
        at += run.n;
    }
    wnw__hadamard(dst, (int64_t)n * c->d, wnw__cache_block(c, what));
}

void wnw__cache_write(struct wnw__cache *c, int32_t il, enum wnw__stored what, int32_t ih, int32_t i,
                      int32_t n, const float *src)
{
    for (int32_t at = i; at < i + n; at++, src += c->d) {
        const struct wnw__kv_rows rows = wnw__cache_rows(c, &c->layers[il], ih, at, at + 1);
        wnw__cache_store(c, what, rows.type, src, what == WNW_KEYS ? rows.k : rows.v);
    }
}

static uint64_t mapped_bytes(const struct wnw__kv_layer *l)
{
    return (uint64_t)l->mapped_bytes + l->v_mapped_bytes + 2 * (uint64_t)l->tail.mapped_bytes;
}

uint64_t wnw__cache_bytes(const struct wnw__cache *c)
{
    uint64_t bytes = 0;
    for (int32_t il = 0; il < c->n_layer; il++)
        bytes += mapped_bytes(&c->layers[il]);
    return bytes;
}

uint64_t wnw__cache_bytes_swa(const struct wnw__cache *c)
{
    uint64_t bytes = 0;
    for (int32_t il = 0; il < c->n_layer; il++)
        bytes += c->layers[il].n_swa > 0 ? mapped_bytes(&c->layers[il]) : 0;
    return bytes;
}

uint64_t wnw__cache_entry_bytes(const struct wnw__cache *c)
{
    uint64_t bytes = 0;
    for (int32_t il = 0; il < c->n_layer; il++) {
        const struct wnw__kv_layer *l = &c->layers[il];
        for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
            const int32_t n_quantised = c->n_tail > 0 ? l->tail.n_quantised[ih] : l->len[ih];
            bytes += (uint64_t)n_quantised * (c->row_bytes + c->v_row_bytes) +
                     2 * (uint64_t)(l->len[ih] - n_quantised) * c->tail_row_bytes;
        }
    }
    return bytes;
}

uint64_t wnw__cache_meta_bytes(const struct wnw__cache *c)
{
    uint64_t of_entry = sizeof *c->layers->pos, bytes = 0;
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        of_entry += (uint64_t)c->aux_planes[kind] * sizeof **c->layers->aux;
    for (int32_t il = 0; il < c->n_layer; il++)
        bytes += (uint64_t)c->layers[il].n_rows * of_entry;
    return bytes;
}

int64_t wnw__cache_entries(const struct wnw__cache *c)
{
    int64_t n = 0;
    for (int32_t il = 0; il < c->n_layer; il++) {
        for (int32_t ih = 0; ih < c->n_head_kv; ih++)
            n += c->layers[il].len[ih];
    }
    return n;
}

/* Bytes of keys and values of a layer with this number of rows. */
static uint64_t layer_bytes(int64_t rows, size_t row_bytes)
{
    return 2 * (uint64_t)wnw__cache_page_round((size_t)rows * row_bytes);
}

uint64_t wnw_kv_bytes(wnw_kv_type t, int32_t n_embd_head, int32_t n_head_kv, int32_t n_layer, int32_t n)
{
    if ((int)t < WNW_KV_F16 || t > WNW_KV_Q4_0 || n_embd_head < 1 || n_head_kv < 1 || n_layer < 1 || n < 1)
        return 0;
    const int64_t rows = wnw__cache_round_up(n, WNW_CACHE_GROWTH) * n_head_kv;
    return (uint64_t)n_layer * layer_bytes(rows, wnw__row_bytes(t, n_embd_head));
}

uint64_t wnw__cache_bytes_for(const struct wnw__cache *c, int32_t n)
{
    uint64_t bytes = 0;
    for (int32_t il = 0; il < c->n_layer; il++) {
        const int32_t n_swa = c->layers[il].n_swa;
        const int32_t n_held = n_swa > 0 && n_swa < n ? n_swa : n;
        const int32_t n_quantised = c->n_tail > 0 ? wnw__cache_tail_n_quantised(c, n_swa, n_held) : n_held;
        const int64_t rows = wnw__cache_round_up(n_quantised, c->growth) * c->n_head_kv,
                      of_tail = wnw__cache_round_up(n_held - n_quantised, c->growth) * c->n_head_kv;
        bytes += layer_bytes(rows, c->row_bytes) + layer_bytes(of_tail, c->tail_row_bytes);
    }
    return bytes;
}

int wnw__cache_check(const struct wnw__cache *c)
{
    for (int32_t il = 0; il < c->n_layer; il++) {
        const struct wnw__kv_layer *l = &c->layers[il];
        int64_t row = 0;
        for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
            if (l->off[ih] != row || l->len[ih] < 0 || l->len[ih] > l->cap[ih])
                return wnw__fail(WNW_E_RANGE, "cache layer %d head %d: offset, length and capacity disagree",
                                 (int)il, (int)ih);
            row += l->cap[ih];
            for (int32_t i = 1; i < l->len[ih]; i++) {
                if (l->pos[l->off[ih] + i] <= l->pos[l->off[ih] + i - 1])
                    return wnw__fail(WNW_E_RANGE,
                                     "cache layer %d head %d: positions do not ascend at entry %d", (int)il,
                                     (int)ih, (int)i);
            }
        }
        const bool filled = c->n_tail > 0 || (size_t)row * c->row_bytes <= l->mapped_bytes;
        if (row != l->n_rows || !filled)
            return wnw__fail(WNW_E_RANGE, "cache layer %d: heads do not fill the arena", (int)il);
        if (c->n_tail > 0)
            WNW_TRY(wnw__cache_tail_check(c, il));
    }
    return WNW_OK;
}
