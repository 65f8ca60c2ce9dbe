/* SPDX-License-Identifier: MIT */
/* Going back to an earlier state after more tokens were read. New tokens push others out of a tail, whose f16
 * rows are lost with that; so a mark has a copy of all tails, which are short. */
#include "cache/cache_impl.h"

#include <stdlib.h>
#include <string.h>

struct wnw__cache_mark {
    int32_t n_layer;
    int32_t *len, *n_first, *n_quantised;    /* [n_layer][n_head_kv] */
    int32_t *cap, *quantised_cap, *tail_cap; /* the same */
    uint8_t **k, **v; /* [n_layer] rows of the tails, head after head; all NULL without tails */
};

void wnw__cache_mark_free(struct wnw__cache_mark *m)
{
    if (!m)
        return;
    for (int32_t il = 0; m->k && il < 2 * m->n_layer; il++)
        free(m->k[il]);
    free(m->k);
    free(m->len);
    free(m);
}

/* Copies n numbers of a layer to their place in the mark; from may be NULL. */
static void note(int32_t *to, int32_t il, const int32_t *from, size_t n)
{
    if (from)
        memcpy(to + (size_t)il * n, from, n * sizeof *to);
}

static int mark_tail(struct wnw__cache_mark *m, const struct wnw__cache *c, int32_t il)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    const size_t rb = c->tail_row_bytes;
    size_t n = 0, at = 0;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        n += (size_t)(l->len[ih] - l->tail.n_quantised[ih]) * rb;
    m->k[il] = malloc(n + 1);
    m->v[il] = malloc(n + 1);
    if (!m->k[il] || !m->v[il])
        return wnw__fail(WNW_E_NOMEM, "no memory for a copy of the cache's tails");
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        const size_t bytes = (size_t)(l->len[ih] - l->tail.n_quantised[ih]) * rb;
        const size_t from = (size_t)l->tail.off[ih] * rb;
        if (bytes > 0) {
            memcpy(m->k[il] + at, l->tail.k + from, bytes);
            memcpy(m->v[il] + at, l->tail.v + from, bytes);
        }
        at += bytes;
    }
    return WNW_OK;
}

int wnw__cache_mark_new(struct wnw__cache_mark **out, const struct wnw__cache *c)
{
    const size_t n_kv = (size_t)c->n_head_kv, n = (size_t)c->n_layer * n_kv;
    struct wnw__cache_mark *m = *out = calloc(1, sizeof *m);
    int rc = WNW_OK;
    if (m) {
        m->n_layer = c->n_layer;
        m->len = calloc(6 * n, sizeof *m->len);
        m->k = calloc(2 * (size_t)c->n_layer, sizeof *m->k);
    }
    if (!m || !m->len || !m->k) {
        wnw__cache_mark_free(m);
        *out = NULL;
        return wnw__fail(WNW_E_NOMEM, "no memory for the lengths of %zu heads", n);
    }
    m->n_first = m->len + n;
    m->n_quantised = m->len + 2 * n;
    m->cap = m->len + 3 * n;
    m->quantised_cap = m->len + 4 * n;
    m->tail_cap = m->len + 5 * n;
    m->v = m->k + c->n_layer;
    for (int32_t il = 0; rc == WNW_OK && il < c->n_layer; il++) {
        const struct wnw__kv_layer *l = &c->layers[il];
        note(m->len, il, l->len, n_kv);
        note(m->cap, il, l->cap, n_kv);
        note(m->n_first, il, l->tail.n_first, n_kv);
        note(m->n_quantised, il, l->tail.n_quantised, n_kv);
        note(m->quantised_cap, il, l->tail.quantised_cap, n_kv);
        note(m->tail_cap, il, l->tail.cap, n_kv);
        rc = c->n_tail > 0 ? mark_tail(m, c, il) : WNW_OK;
    }
    if (rc == WNW_OK)
        return WNW_OK;
    wnw__cache_mark_free(m);
    *out = NULL;
    return rc;
}

static void return_tail(struct wnw__cache *c, int32_t il, const struct wnw__cache_mark *m)
{
    struct wnw__kv_layer *l = &c->layers[il];
    const size_t rb = c->tail_row_bytes;
    size_t at = 0;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        const size_t i = (size_t)il * (size_t)c->n_head_kv + (size_t)ih;
        const size_t bytes = (size_t)(m->len[i] - m->n_quantised[i]) * rb, to = (size_t)l->tail.off[ih] * rb;
        if (bytes > 0) {
            memcpy(l->tail.k + to, m->k[il] + at, bytes);
            memcpy(l->tail.v + to, m->v[il] + at, bytes);
        }
        at += bytes;
        l->tail.n_first[ih] = m->n_first[i];
        l->tail.n_quantised[ih] = m->n_quantised[i];
    }
}

void wnw__cache_mark_rewind(struct wnw__cache *c, const struct wnw__cache_mark *m)
{
    const size_t n_kv = (size_t)c->n_head_kv;
    for (int32_t il = 0; il < c->n_layer; il++) {
        memcpy(c->layers[il].len, m->len + (size_t)il * n_kv, n_kv * sizeof *m->len);
        if (c->n_tail > 0)
            return_tail(c, il, m);
    }
}

int wnw__cache_mark_release(struct wnw__cache *c, const struct wnw__cache_mark *m)
{
    const size_t n_kv = (size_t)c->n_head_kv, bytes = n_kv * sizeof *m->cap;
    for (int32_t il = 0; il < c->n_layer; il++) {
        const struct wnw__kv_layer *l = &c->layers[il];
        const size_t at = (size_t)il * n_kv;
        const struct wnw__kv_caps caps = {
            .entry = m->cap + at, .quantised = m->quantised_cap + at, .tail = m->tail_cap + at};
        bool same = memcmp(l->cap, caps.entry, bytes) == 0;
        if (c->n_tail > 0)
            same = same && memcmp(l->tail.quantised_cap, caps.quantised, bytes) == 0 &&
                   memcmp(l->tail.cap, caps.tail, bytes) == 0;
        if (!same)
            WNW_TRY(wnw__cache_resize_layer(c, il, &caps));
    }
    return WNW_OK;
}
