/* SPDX-License-Identifier: MIT */
/* The part that the AVX2 and AVX-512 kernels share. */
#ifndef WNW_KERNEL_X86_H
#define WNW_KERNEL_X86_H

#include <immintrin.h>
#include <stdint.h>

#define TB 8

static inline float f16_to_f32(uint16_t h)
{
    return _cvtsh_ss(h);
}

/* Sums of many rows that have to stay in registers. Left to itself gcc loads all rows of a block before it multiplies the
 * first, and has no register left for the sums; these stay in the order in which they are written. */
#define IN_ORDER(x)        __asm__ volatile("" : "+v"(x))
#define ADD_IN_PLACE(a, p) __asm__ volatile("vpaddd %1, %0, %0" : "+v"(a) : "v"(p))

/* dst[i][j] = src[j][i], 8 x 8 */
static inline void transpose_block(const float *src, int32_t lds, float *dst, int32_t ldd)
{
    const int64_t ls = lds, ld = ldd;
    /* 128-bit halves of rows j and j + 4 share one register, so that only in-lane shuffles remain. */
    __m256 r[8], t[4];
    for (int j = 0; j < 4; j++) {
        const float *lo = src + j * ls, *hi = src + (j + 4) * ls;
        r[j] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(lo)), _mm_loadu_ps(hi), 1);
        r[j + 4] =
            _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(lo + 4)), _mm_loadu_ps(hi + 4), 1);
    }
    for (int h = 0; h < 2; h++) {
        const __m256 *a = r + 4 * h;
        float *out = dst + 4 * h * ld;
        t[0] = _mm256_unpacklo_ps(a[0], a[1]);
        t[1] = _mm256_unpackhi_ps(a[0], a[1]);
        t[2] = _mm256_unpacklo_ps(a[2], a[3]);
        t[3] = _mm256_unpackhi_ps(a[2], a[3]);
        _mm256_storeu_ps(out, _mm256_shuffle_ps(t[0], t[2], 0x44));
        _mm256_storeu_ps(out + ld, _mm256_shuffle_ps(t[0], t[2], 0xee));
        _mm256_storeu_ps(out + 2 * ld, _mm256_shuffle_ps(t[1], t[3], 0x44));
        _mm256_storeu_ps(out + 3 * ld, _mm256_shuffle_ps(t[1], t[3], 0xee));
    }
}

#endif
