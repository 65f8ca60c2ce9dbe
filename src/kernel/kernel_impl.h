/* SPDX-License-Identifier: MIT */
/*
 * The vector kernels that kernel.h and attend.h are made of. Each instruction set has one table of functions;
 * kernel_body.h fills all tables. A "tile" is WNW_TILE consecutive entries of one KV head, the unit in which
 * attention reads the cache.
 */
#ifndef WNW_KERNEL_IMPL_H
#define WNW_KERNEL_IMPL_H

#include "kernel/kernel.h"

#define WNW_TILE 64
/* Row strides of value tiles and outputs are multiples of this, so that no kernel needs a remainder loop. */
#define WNW_TILE_PAD 32
/* Arrays with one element per row can be read and written up to a multiple of this. */
#define WNW_ROWS_PAD 48

struct wnw__vec {
    const char *name;
    int32_t panel_rows; /* query rows per panel of mul_panels */
    int32_t pair_rows;  /* rows per panel of mul_pairs, at most WNW_PAIR_ROWS */

    /* n packed rows of `type` -> dst[n][ld], columns d..ld set to 0 */
    void (*to_f32)(wnw_kv_type type, const void *src, int64_t n, int32_t d, float *dst, int32_t ld);
    /* Multiplies every `block` elements of x[n] by the orthonormal Hadamard matrix, see wnw__hadamard. */
    void (*hadamard)(float *x, int64_t n, int32_t block);
    /* src[WNW_TILE][d] -> dst[d][WNW_TILE] */
    void (*transpose)(const float *src, int32_t d, float *dst);
    /* out[i * ld + j] = scale * a[i] . (stored row j of b); a[na][d], rows of b with a stride of `stride` bytes */
    void (*mul_rows)(wnw_kv_type type, const float *a, int32_t na, const void *b, size_t stride, int32_t nb,
                     int32_t d, float scale, float *out, int64_t ld);
    /* s[n_panel * panel_rows][WNW_TILE] = q . kt; q[n_panel][d][panel_rows], kt[d][WNW_TILE] */
    void (*mul_panels)(const float *q, int32_t n_panel, int32_t d, const float *kt, float *s);
    /* sum[WNW_TILE] += sum over the rows of q of |q . kt|, the products of mul_panels. Every column of the
     * tile goes through the same operations. */
    void (*add_abs)(const float *q, int32_t n_panel, int32_t d, const float *kt, float *sum);
    /* Streaming softmax over one more tile: s[rows][WNW_TILE] becomes exp(s - m) with the updated maximum
     * m[rows], sum l[rows], and corr[rows] = exp(old m - m). */
    void (*softmax_tile)(float *s, int32_t rows, float *m, float *l, float *corr);
    /* o[rows][ld] = o * corr[rows] + p . v; p[rows][WNW_TILE], v n stored rows of ld values with a stride of `stride`
     * bytes; ld a multiple of WNW_TILE_PAD */
    void (*accumulate)(wnw_kv_type type, const float *p, int32_t rows, const float *corr, const void *v,
                       size_t stride, int32_t n, int32_t ld, float *o);
    void (*softmax)(float *x, int32_t n);
    /* Sum and maximum of p = exp(s - m[row]) * norm[row] over the rows of s[rows][WNW_TILE], column by
     * column, added to sum[WNW_TILE] and max[WNW_TILE]. s <= m but for rounding. */
    void (*column_tile)(const float *s, int32_t rows, const float *m, const float *norm, float *sum,
                        float *max);
    /* factor[i] = exp(then[i] - m[i]) * norm[i] for n rows, then <= m: what takes a tile of exp(s - then), as softmax_tile
     * leaves it, to probabilities once the softmax of the rows is complete */
    void (*row_factors)(const float *then, const float *m, const float *norm, int32_t n, float *factor);
    /* Sum and maximum of p[i * step][WNW_TILE] * factor[i * step] over i < n, column by column, added to
     * sum[WNW_TILE] and max[WNW_TILE]; max may be NULL. */
    void (*add_columns)(const float *p, int32_t n, int32_t step, const float *factor, float *sum, float *max);
    /* Columns of x[d][WNW_TILE] rounded to whole numbers of 15 bits and a sign, two elements in a word, the even one in the low
     * half: tile[d / 2, rounded up][WNW_TILE], times unit[WNW_TILE]. */
    void (*pairs_of)(const float *x, int32_t d, uint32_t *tile, float *unit);
    /* out[r * ld + j] = panel_unit[r] * tile_unit[j] * sum over the n_pair words of the products of both halves, r <
     * n_panel * pair_rows, j < WNW_TILE; panel[n_panel][n_pair][pair_rows], tile[n_pair][WNW_TILE]. The sums are exact. */
    void (*mul_pairs)(const uint32_t *panel, const float *panel_unit, int32_t n_panel, int32_t n_pair,
                      const uint32_t *tile, const float *tile_unit, float *out, int64_t ld);
    /* Sum of exponentials of WNW_TILE columns more: m[rows] = the new maximum of a row and l[rows] = the sum of exp(s - m).
     * Rows of s have the stride ld. m begins as -FLT_MAX, l as 0. */
    void (*sum_rows)(const float *s, int64_t ld, int32_t rows, float *m, float *l);
    /* The same of columns: `rows` rows more of s[rows][WNW_TILE], m[WNW_TILE] and l[WNW_TILE]. */
    void (*sum_columns)(const float *s, int32_t rows, float *m, float *l);
    /* best[j] = max(best[j], s[r * ld + j] - less[r]) for r < rows, j < WNW_TILE */
    void (*raise_to)(float *best, const float *s, int64_t ld, int32_t rows, const float *less);
    /* x[i] = exp(x[i]) for x <= 0 but for rounding, n a multiple of 32; exactly 0 below -87 */
    void (*exps)(float *x, int32_t n);
    /* out[i] = a[i] . b[i] for n rows of d elements, strides lda and ldb */
    void (*dots)(const float *a, int64_t lda, const float *b, int64_t ldb, int32_t n, int32_t d, float *out);
    /* sum[j] += sum over r < rows of a[r][j] * b[r][j]; rows of WNW_TILE */
    void (*add_products)(const float *a, const float *b, int32_t rows, float *sum);
    /* out[i] = x[i] * w[i] / sqrt(mean of x^2 + eps), n a multiple of 32 */
    void (*rms_norm)(const float *x, const float *w, int32_t n, float eps, float *out);
    /* out[i] = up[i] * gate[i] / (1 + exp(-gate[i])), n a multiple of 32 */
    void (*swiglu)(const float *gate, const float *up, int32_t n, float *out);
};

/* Each returns NULL if the compiler was not asked for the instruction set. Static. */
const struct wnw__vec *wnw__vec_scalar(void);
const struct wnw__vec *wnw__vec_avx2(void);
const struct wnw__vec *wnw__vec_avx512(void);
const struct wnw__vec *wnw__vec_neon(void);

/* The i-th best table that this CPU can run, NULL past the last. Static. */
const struct wnw__vec *wnw__vec_at(int i);

#endif
