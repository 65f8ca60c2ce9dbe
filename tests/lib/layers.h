/* SPDX-License-Identifier: MIT */
/* A cache of one layer that is built by hand. */
#ifndef WNW_TESTS_LAYERS_H
#define WNW_TESTS_LAYERS_H

#include "peek_arrays.h"

/* Makes *c of the layer *l: n_head_kv heads of len[n_head_kv] entries, with room for `room` and 3 more in each. All bytes
 * of rows are 0xff, which is NaN in f16 and f32, so that reading a row too many shows. The caller stores the entries and
 * sets their positions. *l is released with test_layer_free. */
void test_layer_init(struct wnw__cache *c, struct wnw__kv_layer *l, wnw_kv_type type, int32_t n_head_kv,
                     int32_t d, const int32_t *len, int32_t room);
/* Stores k[len][d] and v[len][d] as the entries of head ih. */
void test_layer_store(const struct wnw__cache *c, int32_t ih, const float *k, const float *v);
void test_layer_free(struct wnw__kv_layer *l);

#endif
