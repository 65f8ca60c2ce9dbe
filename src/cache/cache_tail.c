/* SPDX-License-Identifier: MIT */
/* The f16 tail of a quantised cache, see cache.h and decision 035. */
#include "cache/cache_impl.h"
#include "kernel/kernel.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- Storage ---- */

static void unmap(struct wnw__kv_tail *t)
{
    if (t->k)
        munmap(t->k, t->mapped_bytes);
    if (t->v)
        munmap(t->v, t->mapped_bytes);
    t->k = t->v = NULL;
    t->mapped_bytes = 0;
}

void wnw__cache_tail_free(struct wnw__kv_tail *t)
{
    unmap(t);
    free(t->off);
    free(t->quantised_off);
    free(t->cap);
    free(t->quantised_cap);
    free(t->n_first);
    free(t->n_quantised);
    *t = (struct wnw__kv_tail){0};
}

static int32_t n_first_of(int32_t n_swa)
{
    return n_swa > 0 ? 0 : WNW_CACHE_FIRST;
}

int wnw__cache_tail_new(const struct wnw__cache *c, struct wnw__kv_tail *t, int32_t n_swa)
{
    const size_t n = (size_t)c->n_head_kv;
    *t = (struct wnw__kv_tail){.off = calloc(n, sizeof *t->off),
                               .quantised_off = calloc(n, sizeof *t->quantised_off),
                               .cap = calloc(n, sizeof *t->cap),
                               .quantised_cap = calloc(n, sizeof *t->quantised_cap),
                               .n_first = calloc(n, sizeof *t->n_first),
                               .n_quantised = calloc(n, sizeof *t->n_quantised)};
    if (!t->off || !t->quantised_off || !t->cap || !t->quantised_cap || !t->n_first || !t->n_quantised) {
        wnw__cache_tail_free(t);
        return wnw__fail(WNW_E_NOMEM, "no memory for the tails of %d heads", (int)c->n_head_kv);
    }
    for (size_t ih = 0; ih < n; ih++)
        t->n_first[ih] = n_first_of(n_swa);
    return WNW_OK;
}

int wnw__cache_tail_map(const struct wnw__cache *c, struct wnw__kv_tail *t, const int32_t *cap)
{
    int64_t n = 0;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        t->off[ih] = n;
        t->cap[ih] = cap[ih];
        n += cap[ih];
    }
    if (n == 0)
        return WNW_OK;
    t->mapped_bytes = wnw__cache_page_round((size_t)n * c->tail_row_bytes);
    t->k = wnw__cache_map_pages(t->mapped_bytes);
    t->v = wnw__cache_map_pages(t->mapped_bytes);
    if (t->k && t->v)
        return WNW_OK;
    unmap(t);
    return wnw__fail(WNW_E_NOMEM, "no memory for tails of %lld entries", (long long)n);
}

void wnw__cache_tail_clear(const struct wnw__cache *c, struct wnw__kv_layer *l)
{
    struct wnw__kv_tail *t = &l->tail;
    unmap(t);
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        t->off[ih] = t->quantised_off[ih] = 0;
        t->cap[ih] = t->quantised_cap[ih] = t->n_quantised[ih] = 0;
        t->n_first[ih] = n_first_of(l->n_swa);
    }
}

int wnw__cache_set_tail(struct wnw__cache *c, int32_t n_tail)
{
    int rc = WNW_OK;
    for (int32_t il = 0; rc == WNW_OK && il < c->n_layer; il++)
        rc = wnw__cache_tail_new(c, &c->layers[il].tail, c->layers[il].n_swa);
    for (int32_t il = 0; rc != WNW_OK && il < c->n_layer; il++)
        wnw__cache_tail_free(&c->layers[il].tail);
    c->n_tail = rc == WNW_OK ? n_tail : 0;
    c->tail_row_bytes = wnw__row_bytes(WNW_KV_F16, c->d);
    return rc;
}

int wnw__cache_release_tail(struct wnw__cache *c, int32_t il)
{
    struct wnw__kv_layer *l = &c->layers[il];
    struct wnw__kv_tail *t = &l->tail, tight;
    bool loose = false;
    if (c->n_tail == 0)
        return WNW_OK;
    WNW_TRY(wnw__cache_tail_new(c, &tight, l->n_swa));
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        tight.cap[ih] = (int32_t)wnw__cache_round_up(l->len[ih] - t->n_quantised[ih], c->growth);
        loose = loose || tight.cap[ih] < t->cap[ih];
    }
    const int rc = loose ? wnw__cache_tail_map(c, &tight, tight.cap) : WNW_OK;
    if (!loose || rc != WNW_OK) {
        wnw__cache_tail_free(&tight);
        return rc;
    }
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        const size_t rb = c->tail_row_bytes, n = (size_t)(l->len[ih] - t->n_quantised[ih]) * rb;
        if (n > 0) {
            memcpy(tight.k + (size_t)tight.off[ih] * rb, t->k + (size_t)t->off[ih] * rb, n);
            memcpy(tight.v + (size_t)tight.off[ih] * rb, t->v + (size_t)t->off[ih] * rb, n);
        }
        tight.quantised_off[ih] = t->quantised_off[ih];
        tight.quantised_cap[ih] = t->quantised_cap[ih];
        tight.n_first[ih] = t->n_first[ih];
        tight.n_quantised[ih] = t->n_quantised[ih];
    }
    wnw__cache_tail_free(t);
    *t = tight;
    return WNW_OK;
}

/* ---- Where an entry is ---- */

static struct wnw__kv_rows in_layer(const struct wnw__cache *c, const struct wnw__kv_layer *l, int64_t row,
                                    int32_t n)
{
    return (struct wnw__kv_rows){.type = c->type,
                                 .row_bytes = c->row_bytes,
                                 .k = l->k + (size_t)row * c->row_bytes,
                                 .v = l->v ? l->v + (size_t)row * c->v_row_bytes : NULL,
                                 .n = n};
}

static struct wnw__kv_rows in_tail(const struct wnw__cache *c, const struct wnw__kv_layer *l, int64_t row,
                                   int32_t n)
{
    const size_t at = (size_t)row * c->tail_row_bytes;
    return (struct wnw__kv_rows){
        .type = WNW_KV_F16, .row_bytes = c->tail_row_bytes, .k = l->tail.k + at, .v = l->tail.v + at, .n = n};
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

struct wnw__kv_rows wnw__cache_rows(const struct wnw__cache *c, const struct wnw__kv_layer *l, int32_t ih,
                                    int32_t from, int32_t to)
{
    if (c->n_tail == 0)
        return in_layer(c, l, l->off[ih] + from, to - from);
    const int32_t n_first = l->tail.n_first[ih], n_quantised = l->tail.n_quantised[ih];
    const int64_t tail = l->tail.off[ih];
    if (n_quantised == 0)
        return in_tail(c, l, tail + from, to - from);
    if (from < n_first)
        return in_tail(c, l, tail + from, least(to, n_first) - from);
    if (from < n_first + n_quantised)
        return wnw__cache_quantised_rows(c, l, ih, from, least(to, n_first + n_quantised));
    return in_tail(c, l, tail + from - n_quantised, to - from);
}

struct wnw__kv_rows wnw__cache_quantised_rows(const struct wnw__cache *c, const struct wnw__kv_layer *l,
                                              int32_t ih, int32_t from, int32_t to)
{
    return in_layer(c, l, l->tail.quantised_off[ih] + from - l->tail.n_first[ih], to - from);
}

/* ---- Leaving the tail ---- */

/* Entries that leave a tail of n entries, the first ones not counted. */
static int32_t n_leaving(const struct wnw__cache *c, int64_t n)
{
    return n > c->n_tail ? (int32_t)((n - c->n_tail) / WNW_CACHE_BLOCK * WNW_CACHE_BLOCK) : 0;
}

int32_t wnw__cache_tail_n_quantised(const struct wnw__cache *c, int32_t n_swa, int32_t n)
{
    return n_leaving(c, (int64_t)n - n_first_of(n_swa));
}

int32_t wnw__cache_most_f16(const struct wnw__cache *c)
{
    return c->n_tail > 0 ? WNW_CACHE_FIRST + c->n_tail + WNW_CACHE_BLOCK - 1 : 0;
}

int32_t wnw__cache_f16_after(const struct wnw__cache *c, int32_t n)
{
    int32_t most = 0;
    for (int32_t il = 0; c->n_tail > 0 && il < c->n_layer; il++) {
        const struct wnw__kv_layer *l = &c->layers[il];
        for (int32_t ih = 0; l->n_swa == 0 && ih < c->n_head_kv; ih++) {
            const int32_t f16 = l->len[ih] + n - (wnw__cache_quantised_to(c, l, ih, n) - l->tail.n_first[ih]);
            most = f16 > most ? f16 : most;
        }
    }
    return most;
}

int32_t wnw__cache_quantised_to(const struct wnw__cache *c, const struct wnw__kv_layer *l, int32_t ih,
                                int32_t t)
{
    if (c->n_tail == 0)
        return INT32_MAX;
    const int32_t border = l->tail.n_first[ih] + l->tail.n_quantised[ih];
    return border + n_leaving(c, (int64_t)l->len[ih] + t - border);
}

void wnw__cache_quantise(const struct wnw__cache *c, const struct wnw__kv_layer *l, int32_t ih, int32_t from,
                         int32_t to)
{
    enum { PIECE = 256 }; /* values at a time, whole blocks of every type */
    float x[PIECE];
    for (int32_t i = from; i < to; i++) {
        const struct wnw__kv_rows src = wnw__cache_rows(c, l, ih, i, i + 1);
        const struct wnw__kv_rows dst = wnw__cache_quantised_rows(c, l, ih, i, i + 1);
        for (int32_t at = 0; at < c->d; at += PIECE) {
            const int32_t n = least(c->d - at, PIECE);
            const size_t from_byte = (size_t)at * 2, to_byte = wnw__row_bytes(c->type, at);
            wnw__rows_to_f32(WNW_KV_F16, src.k + from_byte, 1, n, x);
            wnw__rows_from_f32(c->type, x, 1, n, dst.k + to_byte);
            wnw__rows_to_f32(WNW_KV_F16, src.v + from_byte, 1, n, x);
            wnw__rows_from_f32(c->type, x, 1, n, dst.v + to_byte);
        }
    }
}

void wnw__cache_tail_need(const struct wnw__cache *c, const struct wnw__kv_layer *l, int32_t ih, int32_t n,
                          int32_t n_at_once, int32_t *quantised, int32_t *tail)
{
    const struct wnw__kv_tail *t = &l->tail;
    const int64_t held = (int64_t)l->len[ih] - t->n_quantised[ih];
    const int64_t most = (int64_t)t->n_first[ih] + c->n_tail + WNW_CACHE_BLOCK - 1 + n_at_once;
    *quantised = wnw__cache_quantised_to(c, l, ih, n) - t->n_first[ih];
    *tail = (int32_t)(held + n < most ? held + n : most);
}

/* Norms of projected values belong to the values as they are stored. */
static void forget_norms(const struct wnw__cache *c, struct wnw__kv_layer *l, int32_t ih, int32_t from,
                         int32_t to)
{
    for (int kind = WNW_AUX_PROJ; kind < WNW_N_AUX; kind++)
        for (int32_t p = 0; p < c->aux_planes[kind]; p++)
            for (int32_t i = from; i < to; i++)
                wnw__cache_aux(l, (enum wnw__aux)kind, p)[l->off[ih] + i] = -1.0f;
}

void wnw__cache_tail_push(const struct wnw__cache *c, struct wnw__kv_layer *l, int32_t n)
{
    struct wnw__kv_tail *t = &l->tail;
    for (int32_t ih = 0; n > 0 && ih < c->n_head_kv; ih++) {
        const int32_t border = t->n_first[ih] + t->n_quantised[ih],
                      border_now = wnw__cache_quantised_to(c, l, ih, n);
        if (border_now == border)
            continue;
        wnw__cache_quantise(c, l, ih, wnw__cache_quantised_to(c, l, ih, n - 1), border_now);
        const size_t rb = c->tail_row_bytes, left = (size_t)(l->len[ih] + n - border_now) * rb;
        const size_t from = (size_t)(t->off[ih] + border_now - t->n_quantised[ih]) * rb,
                     to = (size_t)(t->off[ih] + t->n_first[ih]) * rb;
        memmove(t->k + to, t->k + from, left);
        memmove(t->v + to, t->v + from, left);
        t->n_quantised[ih] = border_now - t->n_first[ih];
        forget_norms(c, l, ih, border, border_now < l->len[ih] ? border_now : l->len[ih]);
    }
}

bool wnw__cache_tail_fits(const struct wnw__cache *c, int32_t n_swa, int32_t len, int32_t n_first,
                          int32_t n_quantised)
{
    if (n_first < 0 || n_first > n_first_of(n_swa) || n_quantised < 0 || n_quantised > len)
        return false;
    const int32_t in_tail = len - n_quantised;
    const int64_t last = (int64_t)in_tail - n_first;
    /* Eviction may leave a head without a quantised entry, and with fewer entries than its first ones were. */
    return last < (int64_t)c->n_tail + WNW_CACHE_BLOCK && (n_quantised == 0 || last >= 0);
}

int wnw__cache_tail_check(const struct wnw__cache *c, int32_t il)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    const struct wnw__kv_tail *t = &l->tail;
    int64_t row = 0, quantised_row = 0;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        const int32_t in_tail = l->len[ih] - t->n_quantised[ih];
        if (!wnw__cache_tail_fits(c, l->n_swa, l->len[ih], t->n_first[ih], t->n_quantised[ih]) ||
            t->n_quantised[ih] > t->quantised_cap[ih] || in_tail > t->cap[ih])
            return wnw__fail(WNW_E_RANGE,
                             "cache layer %d head %d: %d of %d entries are quantised, the first %d are not",
                             (int)il, (int)ih, (int)t->n_quantised[ih], (int)l->len[ih], (int)t->n_first[ih]);
        if (t->off[ih] != row || t->quantised_off[ih] != quantised_row)
            return wnw__fail(WNW_E_RANGE, "cache layer %d head %d: its rows are not after those of the last",
                             (int)il, (int)ih);
        row += t->cap[ih];
        quantised_row += t->quantised_cap[ih];
    }
    if ((size_t)row * c->tail_row_bytes > t->mapped_bytes ||
        (size_t)quantised_row * c->row_bytes > l->mapped_bytes)
        return wnw__fail(WNW_E_RANGE, "cache layer %d: heads do not fill the arenas", (int)il);
    return WNW_OK;
}
