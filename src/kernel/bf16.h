/* SPDX-License-Identifier: MIT */
/*
 * Products of bf16 values with sums in float32, for the attention of many queries (decision 039). Two values whose
 * products are added up together share a 32-bit word, a pair, the first of them in its lower half. All functions are
 * pure and thread-safe. They round to the nearest bf16, ties to even, and take subnormal numbers for 0, so that every
 * version has the same results, bit for bit, except for exponentials.
 */
#ifndef WNW_BF16_H
#define WNW_BF16_H

#include "kernel/kernel_impl.h"

struct wnw__bf16 {
    const char *name;
    int32_t panel_rows; /* query rows per panel of mul_panels */

    /* dst[i][j] = the pair src[2 * i][j], src[2 * i + 1][j] for 2 * i < n and j < ld; row n counts as zeros. dst may
     * be where src is. */
    void (*pair_rows)(const float *src, int32_t n, int32_t ld, uint32_t *dst);
    /* Keys in f16, n <= WNW_TILE rows of d values, d a multiple of 32, with the same result as pair_rows of the
     * transposed keys: dst[i][j] = the pair src[j][2 * i], src[j][2 * i + 1]. Columns j >= n of dst[d / 2][WNW_TILE] are
     * not defined. */
    void (*keys_f16)(const uint16_t *src, int32_t n, int32_t d, uint32_t *dst);
    /* pair_rows of values in f16, n rows of d values, d a multiple of 32 */
    void (*values_f16)(const uint16_t *src, int32_t n, int32_t d, uint32_t *dst);
    /* wnw__vec's softmax_tile, but exp(s - m) becomes pairs[rows][WNW_TILE / 2], and s if `keep`. It is exact but for
     * 1e-5 of itself, before it is rounded to bf16. Up to three more rows are read and written. */
    void (*softmax_tile)(float *s, int32_t rows, float *m, float *l, float *corr, bool keep, uint32_t *pairs);
    /* s[n_panel * panel_rows][WNW_TILE] = q . kt; q[n_panel][n_pair][panel_rows], kt[n_pair][WNW_TILE] */
    void (*mul_panels)(const uint32_t *q, int32_t n_panel, int32_t n_pair, const uint32_t *kt, float *s);
    /* o[rows][ld] = o * corr[rows] + p . v; p[rows][WNW_TILE / 2], v[n_pair][ld]; ld a multiple of WNW_TILE_PAD */
    void (*accumulate)(const uint32_t *p, int32_t rows, const float *corr, const uint32_t *v, int32_t n_pair,
                       int32_t ld, float *o);
};

/* Static. The scalar version is the reference, too slow to be used; the other is NULL if the compiler was not asked for
 * the instruction set. */
const struct wnw__bf16 *wnw__bf16_scalar(void);
const struct wnw__bf16 *wnw__bf16_avx512(void);

/* The i-th best version that this CPU can run; the last is the scalar one, NULL past it. Static. */
const struct wnw__bf16 *wnw__bf16_at(int i);
/* The version for this CPU, NULL if it has none that is faster than float32. Static. */
const struct wnw__bf16 *wnw__bf16_best(void);

#endif
