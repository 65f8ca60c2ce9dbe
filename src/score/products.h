/* SPDX-License-Identifier: MIT */
/* Products of many rows with a few: tiles of the few, panels of the many. */
#ifndef WNW_SCORE_PRODUCTS_H
#define WNW_SCORE_PRODUCTS_H

#include "kernel/kernel.h"

/* Floats of scratch for products with nb rows of d elements. */
#define WNW_PRODUCT_ROOM(nb, d) (WNW_TILE_FLOATS(nb, d) + (size_t)WNW_PANEL_MOST * (size_t)(d))

/* What wnw__mul_nt does, but for rounding, and faster from some dozen rows a on: out[i * ld + j] = scale * a[i] . b[j] of
 * a[na][d] and b[nb][d]. */
void wnw__product(const float *a, int32_t na, const float *b, int32_t nb, int32_t d, float scale, float *room,
                  float *out, int64_t ld);
/* The same with b as its tiles, which lie at the beginning of the room. */
void wnw__product_tiles(const float *a, int32_t na, int32_t nb, int32_t d, float scale, float *room,
                        float *out, int64_t ld);

#endif
