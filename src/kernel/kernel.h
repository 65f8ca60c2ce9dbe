/* SPDX-License-Identifier: MIT */
/*
 * The arithmetic of attention on plain memory, without ggml graphs. There are a scalar reference and vector
 * versions, chosen at run time by the instructions that the CPU has. All functions are pure and thread-safe.
 */
#ifndef WNW_KERNEL_H
#define WNW_KERNEL_H

#include "winnow.h"

/* Bytes of one row of d elements; 0 if d does not fit the type's block size (32 for q8_0 and q4_0). */
static inline size_t wnw__row_bytes(wnw_kv_type type, int32_t d)
{
    if (d <= 0)
        return 0;
    switch (type) {
    case WNW_KV_F16:
        return (size_t)d * 2;
    case WNW_KV_F32:
        return (size_t)d * 4;
    case WNW_KV_Q8_0:
        return d % 32 ? 0 : (size_t)d / 32 * 34;
    case WNW_KV_Q4_0:
        return d % 32 ? 0 : (size_t)d / 32 * 18;
    }
    return 0;
}

/* These convert n rows of d elements, tightly packed in `type`, to float[n][d], and back. Quantisation is
 * ggml's, bit for bit, so that both attention implementations store the same cache. */
void wnw__rows_to_f32(wnw_kv_type type, const void *src, int64_t n, int32_t d, float *dst);
void wnw__rows_from_f32(wnw_kv_type type, const float *src, int64_t n, int32_t d, void *dst);

/* Multiplies every `block` elements of x[n] by the orthonormal Hadamard matrix H of that size, H[i][j] =
 * (-1)^(number of bits that i and j share) / sqrt(block), in place. H is symmetric and its own inverse, so that products of
 * two rows stay what they are and twice changes nothing, but for rounding. block is a power of two from 16 on, and n a multiple of it. The same
 * bits on every CPU. block = 0: nothing happens. */
void wnw__hadamard(float *x, int64_t n, int32_t block);

/* out[i * ld + j] = scale * sum_c a[i][c] * b[j][c]; a float[na][d], b float[nb][d]. */
void wnw__mul_nt(const float *a, int32_t na, const float *b, int32_t nb, int32_t d, float scale, float *out,
                 int64_t ld);

/* The same for many b: they are transposed once, in tiles of 64 rows, and a goes through them in panels of at most
 * WNW_PANEL_MOST rows. Both are faster than wnw__mul_nt from some dozen rows on. */
#define WNW_PANEL_MOST        16
#define WNW_TILE_FLOATS(n, d) (((size_t)(n) + 63) / 64 * 64 * (size_t)(d))
/* b[n][d] -> tiles[WNW_TILE_FLOATS(n, d)] */
void wnw__tiles_of(const float *b, int32_t n, int32_t d, float *tiles);
/* The number of rows of a panel on this CPU. */
int32_t wnw__panel_rows(void);
/* scale * a[na][d], na <= wnw__panel_rows() -> panel[d * WNW_PANEL_MOST] */
void wnw__panel_of(const float *a, int32_t na, int32_t d, float scale, float *panel);
/* out[i * ld + j - first] = row i of the panel . row j of the tiles, i < na, first <= j < end */
void wnw__mul_tiles(const float *panel, int32_t na, int32_t d, const float *tiles, int32_t first, int32_t end,
                    float *out, int64_t ld);
/* out[i][j] = scale * x[i] . b[j] for x[n][d] and a square matrix b[d][d], whose tiles begin the room of WNW_SQUARE_ROOM(d)
 * floats; a panel follows them. */
#define WNW_SQUARE_ROOM(d) (WNW_TILE_FLOATS(d, d) + (size_t)WNW_PANEL_MOST * (size_t)(d))
void wnw__mul_square(const float *x, int32_t n, int32_t d, float scale, float *room, float *out);

/* Softmax of x[n] in place: x = exp(x - max) / sum. Elements of -INFINITY become exactly 0. */
void wnw__softmax(float *x, int32_t n);

#endif
