/* SPDX-License-Identifier: MIT */
/*
 * Scores q . k of many queries with keys, both rounded to 8 bits, which takes half the time of bf16 (decision 042). A
 * query and a key have a scale each, its largest element over 127, and their product is
 *
 *     q . k = (scale of q) (scale of k) sum(a b),    with signed bytes a and b
 *
 * Keys are stored as b + 128, because the CPU's products are of unsigned with signed bytes, so sums begin with
 * -128 sum(a). Four elements that follow each other share a 32-bit word. All functions are pure and thread-safe; every
 * version has the same results, bit for bit.
 */
#ifndef WNW_SCORE8_H
#define WNW_SCORE8_H

#include "kernel/kernel_impl.h"

/* What the keys of a tile have at most, from which follows what rounding does to their scores. */
struct wnw__score8_size {
    float scale;  /* NaN or infinite if a key is */
    float square; /* of the length after rounding; undefined if a key is not finite */
};

/* The larger of two numbers; NaN is larger than any. */
static inline float wnw__score8_larger(float a, float b)
{
    return a != a || a > b ? a : b;
}

struct wnw__score8 {
    const char *name;
    int32_t panel_rows; /* query rows per panel */

    /* Rows of panels [n_panel][d][panel_rows], d a multiple of 32, become words dst[n_panel][d / 4][panel_rows]. Each
     * row gets its scale, the square of its length before rounding, and first = -128 sum(a). A row that is not finite
     * has NaN or infinity as its scale, and bytes without meaning. */
    void (*queries)(const float *panels, int32_t n_panel, int32_t d, uint32_t *dst, float *scale,
                    float *square, int32_t *first);
    /* A whole tile of keys in f16, rows of d elements: words dst[d / 4][WNW_TILE] and scale[WNW_TILE]. */
    struct wnw__score8_size (*keys)(const uint16_t *src, int32_t d, uint32_t *dst, float *scale);
    /* s[n_panel * panel_rows][WNW_TILE] */
    void (*mul_panels)(const uint32_t *q, const float *q_scale, const int32_t *q_first, int32_t n_panel,
                       int32_t d, const uint32_t *k, const float *k_scale, float *s);
};

/* Static. The scalar version is the reference, too slow to be used; the other is NULL if the compiler was not asked for
 * the instruction set. */
const struct wnw__score8 *wnw__score8_scalar(void);
const struct wnw__score8 *wnw__score8_avx512(void);

/* The i-th best version that this CPU can run; the last is the scalar one, NULL past it. Static. */
const struct wnw__score8 *wnw__score8_at(int i);
/* The version for this CPU, NULL if it has none that is faster than other scores. Static. */
const struct wnw__score8 *wnw__score8_best(void);

#endif
