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

/* out[i] = a[i] . b[i] for n rows of d elements, strides lda and ldb; ldb = 0: one row of b for all */
void wnw__dots(const float *a, int64_t lda, const float *b, int64_t ldb, int32_t n, int32_t d, float *out);

/* ---- Rows in columns ----
 * Rows x[n][d] are turned to tiles of 64 columns, the last one filled up with zeros; a matrix meets 64 of them at once. */
#define WNW_TILE_FLOATS(n, d) (((size_t)(n) + 63) / 64 * 64 * (size_t)(d))
/* x[n][d] -> tiles[WNW_TILE_FLOATS(n, d)] */
void wnw__tiles_of(const float *x, int32_t n, int32_t d, float *tiles);
/* Floats of a lower triangle in the form that is multiplied. */
#define WNW_PANEL_MOST         16
#define WNW_TRIANGLE_FLOATS(d) (((size_t)(d) + WNW_PANEL_MOST) * (size_t)(d))
/* The elements i >= j of lower[d][d] -> triangle; others are not read. */
void wnw__triangle_of(const float *lower, int32_t d, float *triangle);
/* With T the triangle: out[i] = x[i]^T T x[i], and ||T x[i]||^2, for the n rows of the tiles. */
void wnw__triangle_forms(const float *triangle, int32_t d, const float *tiles, int32_t n, float *out);
void wnw__triangle_lengths(const float *triangle, int32_t d, const float *tiles, int32_t n, float *out);

/* The lower triangle of products x^T x, in blocks of 32 columns: element (i, j), j <= i, is at wnw__gram_at. */
#define WNW_GRAM_BLOCK     32
#define WNW_GRAM_FLOATS(d) ((((size_t)(d) + 31) / 32) * 32 * (size_t)(d))
static inline size_t wnw__gram_at(int32_t d, int32_t i, int32_t j)
{
    const size_t block = (size_t)j / WNW_GRAM_BLOCK,
                 before = block * (size_t)d - (block > 0 ? block * (block - 1) / 2 : 0) * WNW_GRAM_BLOCK;
    return (before + (size_t)i - block * WNW_GRAM_BLOCK) * WNW_GRAM_BLOCK + (size_t)j % WNW_GRAM_BLOCK;
}
/* Adds 64 rows more to gram[WNW_GRAM_FLOATS(d)], which begins as 0: x[64][ld], ld a multiple of 32 from d on, elements d .. ld - 1
 * finite, and the same rows as a tile. */
void wnw__gram_add(const float *x, int32_t ld, int32_t d, const float *tile, float *gram);

/* ---- Rows in whole numbers ----
 * Where many rows meet many others, products of 16-bit numbers take half the time of float's. Each row becomes whole numbers
 * times a unit of its own, which is its length / 32000: an element is off by at most half a unit, and sums of products are
 * exact, the same on every CPU. Two elements make a word. */

/* The most rows of a panel; words of a row; words of a tile of 64 rows, and of the panels of as many, with their units. */
#define WNW_PAIR_ROWS      12
#define WNW_PAIRS(d)       (((size_t)(d) + 1) / 2)
#define WNW_PAIR_TILE(d)   (64 * WNW_PAIRS(d))
#define WNW_PAIR_PANELS(d) ((64 + WNW_PAIR_ROWS) * WNW_PAIRS(d))
#define WNW_PAIR_UNITS     (64 + WNW_PAIR_ROWS)
/* Floats of the memory that wnw__pair_tile works in. */
#define WNW_PAIR_ROOM(d) (128 * (size_t)(d))
/* Rows x[n][d], n <= 64, -> tile and unit[64]; rows that are missing become 0. */
void wnw__pair_tile(const float *x, int32_t n, int32_t d, uint32_t *tile, float *unit, float *room);
/* Copies the first n rows of a tile to panels, and scale times their units to panel_unit; returns the number of panels. Rows
 * that a last panel has beyond n are 0. */
int32_t wnw__pair_panels(const uint32_t *tile, const float *unit, int32_t n, int32_t d, float scale,
                         uint32_t *panels, float *panel_unit);
/* out[r * ld + j] = row r of the panels . row j of the tile, for all rows of n_panel panels and 64 of the tile */
void wnw__mul_pairs(const uint32_t *panels, const float *panel_unit, int32_t n_panel, int32_t d,
                    const uint32_t *tile, const float *tile_unit, float *out, int64_t ld);
/* The number of rows of such a panel on this CPU. */
int32_t wnw__pair_rows(void);

/* ---- Exponentials ---- */

/* Sums of exponentials of 64 columns more of s, with stride ld between rows: m[rows] is the largest so far and l[rows] the
 * sum of exp(s - m). They begin as -FLT_MAX and 0. */
void wnw__sum_rows(const float *s, int64_t ld, int32_t rows, float *m, float *l);
/* The same of columns: s[rows][64], m[64], l[64]. */
void wnw__sum_columns(const float *s, int32_t rows, float *m, float *l);
/* best[j] = max(best[j], s[r * ld + j] - less[r]) for r < rows, j < 64 */
void wnw__raise_to(float *best, const float *s, int64_t ld, int32_t rows, const float *less);
/* x[n] = exp(x), n a multiple of 32, x <= 0 but for rounding */
void wnw__exps(float *x, int32_t n);

/* Softmax of x[n] in place: x = exp(x - max) / sum. Elements of -INFINITY become exactly 0. */
void wnw__softmax(float *x, int32_t n);

#endif
