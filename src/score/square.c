/* SPDX-License-Identifier: MIT */
#include "score/score.h"

void wnw__mul_square(const float *x, int32_t n, int32_t d, float scale, float *room, float *out)
{
    const int32_t most = wnw__panel_rows();
    float *panel = room + WNW_TILE_FLOATS(d, d);
    for (int32_t i = 0; i < n; i += most) {
        const int32_t m = n - i < most ? n - i : most;
        wnw__panel_of(x + (int64_t)i * d, m, d, scale, panel);
        wnw__mul_tiles(panel, m, d, room, 0, d, out + (int64_t)i * d, d);
    }
}
