/* SPDX-License-Identifier: MIT */
#include "observe/token_rows.h"

#include "base/err.h"
#include "kernel/kernel.h"

#include <stdlib.h>
#include <string.h>

/* Frees the rows of layers from .. to - 1. */
static void drop(struct wnw__token_rows *k, int32_t from, int32_t to)
{
    for (int32_t il = from; il < to; il++) {
        free(k->layers[il].q);
        k->layers[il] = (struct wnw__token_rows_layer){0};
    }
}

void wnw__token_rows_close(void *rec)
{
    struct wnw__token_rows *k = rec;
    if (!k)
        return;
    drop(k, 0, k->layers ? k->n_layer : 0);
    free(k->layers);
    free(k);
}

int wnw__token_rows_open(struct wnw__token_rows **out, int32_t n_layer, size_t row, wnw_kv_type type)
{
    struct wnw__token_rows *k = *out = calloc(1, sizeof *k);
    if (k)
        k->layers = calloc((size_t)n_layer, sizeof *k->layers);
    if (!k || !k->layers) {
        free(k);
        *out = NULL;
        return wnw__fail(WNW_E_NOMEM, "no memory for what is recorded of %d layers", (int)n_layer);
    }
    k->n_layer = n_layer;
    k->row = row;
    k->type = type;
    return WNW_OK;
}

static size_t bytes_of(const struct wnw__token_rows *k)
{
    return k->row * (k->type == WNW_KV_F16 ? sizeof(uint16_t) : sizeof(float));
}

static uint8_t *row_at(const struct wnw__token_rows *k, int32_t il, int64_t i)
{
    return (uint8_t *)k->layers[il].q + (size_t)i * bytes_of(k);
}

const void *wnw__token_rows_at(const struct wnw__token_rows *k, int32_t il, int32_t i)
{
    return row_at(k, il, i);
}

/* Makes room for n more rows: exactly n for a first prompt, with slack after it, when tokens come in small
 * pieces. */
static int reserve_layer(const struct wnw__token_rows *k, struct wnw__token_rows_layer *l, int32_t n)
{
    if (n <= l->cap - l->n)
        return WNW_OK;
    const int64_t need = (int64_t)l->n + n, more = l->n > 0 ? (int64_t)l->cap + l->cap / 8 : need;
    const int64_t slack = more < INT32_MAX ? more : INT32_MAX;
    const int32_t cap = (int32_t)(need > more ? need : slack);
    void *q = realloc(l->q, (size_t)cap * bytes_of(k));
    if (!q)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d rows of a layer", (int)cap);
    l->q = q;
    l->cap = cap;
    return WNW_OK;
}

/* Is called at the beginning of a prompt for all of it, and again for each pass. */
int wnw__token_rows_reserve(void *rec, const struct wnw__record_pass *pass)
{
    struct wnw__token_rows *k = rec;
    for (int32_t il = pass->from; !pass->generated && il < pass->to; il++) {
        if (k->layers[il].end != pass->n_past)
            k->layers[il].n = 0; /* only rows of consecutive positions are kept together */
        WNW_TRY(reserve_layer(k, &k->layers[il], pass->n));
    }
    return WNW_OK;
}

int wnw__token_rows_copy(void **rec, const void *from, const struct wnw__record_shape *shape)
{
    const struct wnw__token_rows *f = from;
    struct wnw__token_rows *k;
    (void)shape;
    *rec = NULL;
    WNW_TRY(wnw__token_rows_open(&k, f->n_layer, f->row, f->type));
    int rc = WNW_OK;
    for (int32_t il = 0; rc == WNW_OK && il < f->n_layer; il++) {
        struct wnw__token_rows_layer *to = &k->layers[il];
        const struct wnw__token_rows_layer *l = &f->layers[il];
        to->end = l->end;
        rc = l->n > 0 ? reserve_layer(k, to, l->n) : WNW_OK;
        if (rc != WNW_OK || l->n == 0)
            continue;
        memcpy(to->q, l->q, (size_t)l->n * bytes_of(k));
        to->n = l->n;
    }
    if (rc == WNW_OK)
        *rec = k;
    else
        wnw__token_rows_close(k);
    return rc;
}

void wnw__token_rows_take(void *rec, const struct wnw__record_rows *r, int ith, int nth)
{
    const struct wnw__token_rows *k = rec;
    const struct wnw__token_rows_layer *l = &k->layers[r->il];
    const int64_t from = (int64_t)r->pass->n * ith / nth, to = (int64_t)r->pass->n * (ith + 1) / nth;
    wnw__rows_from_f32(k->type, r->q + (size_t)from * k->row, to - from, (int32_t)k->row,
                       row_at(k, r->il, l->n + from));
}

void wnw__token_rows_commit(void *rec, const struct wnw__record_pass *pass)
{
    struct wnw__token_rows *k = rec;
    for (int32_t il = pass->from; !pass->generated && il < pass->to; il++) {
        k->layers[il].n += pass->n;
        k->layers[il].end = pass->n_past + pass->n;
    }
}

void wnw__token_rows_told(void *rec, int32_t from, int32_t to, enum wnw__event event)
{
    if (event != WNW_EVENT_PASS_FAILED)
        drop(rec, from, to);
}

void wnw__token_rows_rewound(void *rec, int32_t n_past)
{
    struct wnw__token_rows *k = rec;
    for (int32_t il = 0; il < k->n_layer; il++) {
        struct wnw__token_rows_layer *l = &k->layers[il];
        const int32_t n_cut = l->end > n_past ? l->end - n_past : 0;
        l->n = n_cut < l->n ? l->n - n_cut : 0;
        l->end -= n_cut;
    }
}
