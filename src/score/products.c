/* SPDX-License-Identifier: MIT */
#include "score/products.h"

void wnw__product_tiles(const float *a, int32_t na, int32_t nb, int32_t d, float scale, float *room,
                        float *out, int64_t ld)
{
    const int32_t most = wnw__panel_rows();
    float *panel = room + WNW_TILE_FLOATS(nb, d);
    for (int32_t i = 0; i < na; i += most) {
        const int32_t n = na - i < most ? na - i : most;
        wnw__panel_of(a + (int64_t)i * d, n, d, scale, panel);
        wnw__mul_tiles(panel, n, d, room, 0, nb, out + i * ld, ld);
    }
}

void wnw__product(const float *a, int32_t na, const float *b, int32_t nb, int32_t d, float scale, float *room,
                  float *out, int64_t ld)
{
    wnw__tiles_of(b, nb, d, room);
    wnw__product_tiles(a, na, nb, d, scale, room, out, ld);
}
