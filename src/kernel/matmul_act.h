/* SPDX-License-Identifier: MIT */
/* Activations are converted to signed bytes with vectors of 256 bits in every kernel for x86. The eight
 * blocks of a chunk are converted together, so that their scales are one vector. */
#ifndef WNW_MATMUL_ACT_H
#define WNW_MATMUL_ACT_H

#include "kernel/matmul.h"

#include <immintrin.h>

/* Lane i of the result is the largest lane of v[i]. */
static inline __m256i wnw__act_tops(const __m256i v[8])
{
    __m256i a[4], b[2];
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_max_epu32(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]),
                                _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        b[i] = _mm256_max_epu32(_mm256_unpacklo_epi64(a[2 * i], a[2 * i + 1]),
                                _mm256_unpackhi_epi64(a[2 * i], a[2 * i + 1]));
    return _mm256_max_epu32(_mm256_permute2x128_si256(b[0], b[1], 0x20),
                            _mm256_permute2x128_si256(b[0], b[1], 0x31));
}

/* The bytes of x[32] times `by`, rounded. */
static inline __m256i wnw__act_bytes(const float *x, __m256 by)
{
    __m256i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), by));
    /* Packing works within halves of a vector, so the last step puts groups of four back in order. */
    const __m256i p = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(p, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Sets a's sums from those of eight bytes each of its eight blocks. */
static inline void wnw__act_sums(const __m256i eights[8], __m256 scale, struct wnw__act *a)
{
    __m256i two[4], four[2]; /* lanes of 128 bits have sums of the first and of the second half of blocks */
    for (int i = 0; i < 4; i++)
        two[i] = _mm256_add_epi64(_mm256_unpacklo_epi64(eights[2 * i], eights[2 * i + 1]),
                                  _mm256_unpackhi_epi64(eights[2 * i], eights[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        four[i] = _mm256_castps_si256(
            _mm256_shuffle_ps(_mm256_castsi256_ps(two[2 * i]), _mm256_castsi256_ps(two[2 * i + 1]), 0x88));
    const __m256i added = _mm256_set1_epi32(16 * 128);
    const __m256i first = _mm256_sub_epi32(_mm256_permute2x128_si256(four[0], four[1], 0x20), added);
    const __m256i second = _mm256_sub_epi32(_mm256_permute2x128_si256(four[0], four[1], 0x31), added);
    const __m256 f = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(first)),
                 s = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(second));
    const __m256 low = _mm256_unpacklo_ps(f, s), high = _mm256_unpackhi_ps(f, s);
    _mm256_storeu_ps(a->sum32, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_add_epi32(first, second))));
    _mm256_storeu_ps(a->sum16, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(a->sum16 + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

/* Converts the first n_block blocks of a chunk. Of the others it sets scales and sums to 0. */
static inline void wnw__act_chunk(const float *x, int32_t n_block, struct wnw__act *a)
{
    const __m256i bits = _mm256_set1_epi32(0x7fffffff);
    __m256i top[8];
    for (int32_t b = 0; b < 8; b++) {
        top[b] = _mm256_setzero_si256();
        for (int i = 0; i < 4 && b < n_block; i++)
            top[b] = _mm256_max_epu32(
                top[b], _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x + 32 * b + 8 * i)), bits));
    }
    /* A block below WNW_ACT_TINY counts as zero, and a block with an infinity or NaN has NaN as its scale. */
    const __m256i tops = wnw__act_tops(top), least = _mm256_set1_epi32(WNW_ACT_TINY - 1);
    const __m256 finite = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(0x7f800000), tops));
    const __m256 some = _mm256_and_ps(finite, _mm256_castsi256_ps(_mm256_cmpgt_epi32(tops, least)));
    const __m256 t = _mm256_castsi256_ps(tops), most = _mm256_set1_ps(127.0f),
                 nan = _mm256_set1_ps(__builtin_nanf(""));
    const __m256 scale =
        _mm256_or_ps(_mm256_and_ps(some, _mm256_div_ps(t, most)), _mm256_andnot_ps(finite, nan));
    float by[8];
    _mm256_storeu_ps(by, _mm256_and_ps(some, _mm256_div_ps(most, t)));
    _mm256_storeu_ps(a->scale, scale);
    /* of eight bytes each; of unsigned ones, so 128 is added to each byte and taken off below */
    __m256i sums[8];
    for (int32_t b = 0; b < 8; b++) {
        const __m256i q = b < n_block && by[b] > 0.0f ? wnw__act_bytes(x + 32 * b, _mm256_set1_ps(by[b]))
                                                      : _mm256_setzero_si256();
        if (b < n_block)
            _mm256_storeu_si256((__m256i *)(void *)(a->q + 32 * b), q);
        sums[b] = _mm256_sad_epu8(_mm256_xor_si256(q, _mm256_set1_epi8((char)0x80)), _mm256_setzero_si256());
    }
    wnw__act_sums(sums, scale, a);
}

static void wnw__act_row(const float *x, int32_t k, int32_t n_tok, struct wnw__act *act)
{
    for (int32_t c = 0; c < k; c += WNW_CHUNK)
        wnw__act_chunk(x + c, (k - c < WNW_CHUNK ? k - c : WNW_CHUNK) / 32,
                       act + (int64_t)(c / WNW_CHUNK) * n_tok);
}

#endif
