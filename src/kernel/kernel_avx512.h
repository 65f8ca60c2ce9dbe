/* SPDX-License-Identifier: MIT */
/* What the AVX-512 kernels share. */
#ifndef WNW_KERNEL_AVX512_H
#define WNW_KERNEL_AVX512_H

#include "kernel/unroll.h"

#include <immintrin.h>
#include <stdint.h>

/* Defines a function that folds four vectors with OP; lane i of the result is that of the i-th. The vectors are folded to one
 * first, whose i-th 128 bits hold four partial results of the i-th vector. */
#define WNW_FOLD4(name, OP)                                                                       \
    static inline __m128 name(__m512 a, __m512 b, __m512 c, __m512 d)                             \
    {                                                                                             \
        const __m512 ab = OP(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee)); \
        const __m512 cd = OP(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee)); \
        __m512 s = OP(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));    \
        s = OP(s, _mm512_permute_ps(s, 0xb1));                                                    \
        s = OP(s, _mm512_permute_ps(s, 0x4e));                                                    \
        const __m512i lanes = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);  \
        return _mm512_castps512_ps128(_mm512_permutexvar_ps(lanes, s));                           \
    }
WNW_FOLD4(sum4, _mm512_add_ps)

/* x itself, hidden from the optimiser. Otherwise gcc loads a value from memory again for every use, and copies the register
 * of a sum before it adds a product of bytes to it. */
INLINE __m512i held(__m512i x)
{
    __asm__("" : "+v"(x));
    return x;
}

static inline __m512 v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* Transposes 16 x 16 words in four steps. Each step doubles the side of the squares that are done. */
INLINE void transpose16(__m512i r[16])
{
    __m512i t[16];
    UNROLL
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 16; i += 4) { /* r[i + k] has words k, k + 4, k + 8 and k + 12 of rows i .. i + 3 */
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    UNROLL
    for (int k = 0; k < 4; k++) {
        t[k] = _mm512_shuffle_i32x4(r[k], r[k + 4], 0x88);
        t[k + 4] = _mm512_shuffle_i32x4(r[k], r[k + 4], 0xdd);
        t[k + 8] = _mm512_shuffle_i32x4(r[k + 8], r[k + 12], 0x88);
        t[k + 12] = _mm512_shuffle_i32x4(r[k + 8], r[k + 12], 0xdd);
    }
    UNROLL
    for (int k = 0; k < 4; k++) {
        r[k] = _mm512_shuffle_i32x4(t[k], t[k + 8], 0x88);
        r[k + 4] = _mm512_shuffle_i32x4(t[k + 4], t[k + 12], 0x88);
        r[k + 8] = _mm512_shuffle_i32x4(t[k], t[k + 8], 0xdd);
        r[k + 12] = _mm512_shuffle_i32x4(t[k + 4], t[k + 12], 0xdd);
    }
}

#endif
