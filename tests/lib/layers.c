/* SPDX-License-Identifier: MIT */
#include "layers.h"

#include "asserts.h"

#include <stdlib.h>
#include <string.h>

void test_layer_init(struct wnw__cache *c, struct wnw__kv_layer *l, wnw_kv_type type, int32_t n_head_kv,
                     int32_t d, const int32_t *len, int32_t room)
{
    const size_t n_kv = (size_t)n_head_kv, row_bytes = wnw__row_bytes(type, d);
    *l = (struct wnw__kv_layer){.off = calloc(n_kv, sizeof *l->off),
                                .cap = calloc(n_kv, sizeof *l->cap),
                                .len = calloc(n_kv, sizeof *l->len)};
    assert_non_null(l->off);
    assert_non_null(l->cap);
    assert_non_null(l->len);
    for (int32_t ih = 0; ih < n_head_kv; ih++) {
        l->off[ih] = l->n_rows;
        l->len[ih] = len[ih];
        l->cap[ih] = len[ih] + room + 3;
        l->n_rows += l->cap[ih];
    }
    l->k = malloc((size_t)l->n_rows * row_bytes);
    l->v = malloc((size_t)l->n_rows * row_bytes);
    l->pos = calloc((size_t)l->n_rows, sizeof *l->pos);
    assert_non_null(l->k);
    assert_non_null(l->v);
    assert_non_null(l->pos);
    memset(l->k, 0xff, (size_t)l->n_rows * row_bytes);
    memset(l->v, 0xff, (size_t)l->n_rows * row_bytes);
    *c = (struct wnw__cache){.n_layer = 1,
                             .n_head_kv = n_head_kv,
                             .d = d,
                             .type = type,
                             .row_bytes = row_bytes,
                             .v_row_bytes = row_bytes,
                             .layers = l};
}

void test_layer_store(const struct wnw__cache *c, int32_t ih, const float *k, const float *v)
{
    const struct wnw__kv_layer *l = c->layers;
    const size_t at = (size_t)l->off[ih] * c->row_bytes;
    wnw__rows_from_f32(c->type, k, l->len[ih], c->d, l->k + at);
    wnw__rows_from_f32(c->type, v, l->len[ih], c->d, l->v + at);
}

void test_layer_free(struct wnw__kv_layer *l)
{
    free(l->k);
    free(l->v);
    free(l->pos);
    free(l->off);
    free(l->cap);
    free(l->len);
}
