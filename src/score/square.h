/* SPDX-License-Identifier: MIT */
/* Products of many rows with a square matrix, by the tiles and panels of the attention. */
#ifndef WNW_SCORE_SQUARE_H
#define WNW_SCORE_SQUARE_H

#include "kernel/kernel.h"

/* Floats of the room: the matrix as tiles (wnw__tiles_of), and a panel. */
#define WNW_SQUARE_ROOM(d) (WNW_TILE_FLOATS(d, d) + (size_t)WNW_PANEL_MOST * (size_t)(d))

/* out[i][j] = scale * x[i] . b[j] for x[n][d] and the matrix b[d][d], whose tiles begin the room. What wnw__mul_nt does but
 * for rounding, and faster from some dozen rows x on. */
void wnw__mul_square(const float *x, int32_t n, int32_t d, float scale, float *room, float *out);

#endif
