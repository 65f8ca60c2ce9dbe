/* SPDX-License-Identifier: MIT */
/* A register block is 12 queries times two vectors of keys, as for bf16; a step multiplies four elements of each lane. */
#include "kernel/score8.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && \
    defined(__AVX512VNNI__)
#include "kernel/kernel_avx512.h"
#include "kernel/unroll.h"

enum { VW = 16, ROWS = 12 };

/* Numbers without their sign, as integers, whose order is that of the numbers: a NaN is the largest of all. */
INLINE __m512i size_bits(__m512 x)
{
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

/* Scales of lanes whose largest elements are given as size_bits, and what those become bytes with. */
INLINE __m512 scales(__m512i top, __m512 *by)
{
    const __m512 t = _mm512_castsi512_ps(top), most = _mm512_set1_ps(127.0f);
    *by = _mm512_maskz_div_ps(_mm512_cmp_ps_mask(t, _mm512_setzero_ps(), _CMP_GT_OQ), most, t);
    return _mm512_div_ps(t, most);
}

INLINE float as_float(int32_t bits)
{
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
}

/* ---- Queries ---- */

static void queries(const float *panels, int32_t n_panel, int32_t d, uint32_t *dst, float *scale,
                    float *square, int32_t *first)
{
    const __mmask16 rows = (__mmask16)((1u << ROWS) - 1);
    for (int32_t p = 0; p < n_panel; p++, panels += (int64_t)d * ROWS) {
        __m512i top = _mm512_setzero_si512(), sum = _mm512_setzero_si512();
        __m512 by, squares = _mm512_setzero_ps();
        for (int32_t c = 0; c < d; c++)
            top = _mm512_max_epi32(top, size_bits(_mm512_maskz_loadu_ps(rows, panels + c * ROWS)));
        _mm512_mask_storeu_ps(scale + p * ROWS, rows, scales(top, &by));
        for (int32_t c = 0; c < d; c += 4, dst += ROWS) {
            __m512i word = _mm512_setzero_si512();
            UNROLL
            for (int i = 0; i < 4; i++) {
                const __m512 x = _mm512_maskz_loadu_ps(rows, panels + (c + i) * ROWS);
                const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(x, by));
                sum = _mm512_add_epi32(sum, a);
                squares = _mm512_fmadd_ps(x, x, squares);
                word = _mm512_or_si512(
                    word, _mm512_slli_epi32(_mm512_and_si512(a, _mm512_set1_epi32(255)), 8u * (unsigned)i));
            }
            _mm512_mask_storeu_epi32(dst, rows, word);
        }
        _mm512_mask_storeu_ps(square + p * ROWS, rows, squares);
        _mm512_mask_storeu_epi32(first + p * ROWS, rows,
                                 _mm512_slli_epi32(_mm512_sub_epi32(_mm512_setzero_si512(), sum), 7));
    }
}

/* ---- Keys ---- */

INLINE __m512i max_bits(__m512i a, __m512i b)
{
    return _mm512_max_epi32(a, b);
}

/* Lane i of the result is the largest lane of v[i]. */
INLINE __m512i largest_of(__m512i v[VW])
{
    transpose16(v);
    UNROLL
    for (int step = VW / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++)
            v[i] = max_bits(v[i], v[i + step]);
    return v[0];
}

/* 64 elements, or 32 and zeros, times `by`, as bytes. Packing works within 128 bits, so word 4 i + j of the result has
 * the elements 16 j + 4 i and the following three. */
INLINE __m512i bytes_of(const uint16_t *src, const bool half, __m512 by)
{
    __m512i v[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = half && i >= 2 ? _mm512_setzero_si512()
                              : _mm512_cvtps_epi32(_mm512_mul_ps(v_load_f16(src + i * VW), by));
    return _mm512_packs_epi16(_mm512_packs_epi32(v[0], v[1]), _mm512_packs_epi32(v[2], v[3]));
}

/* 64 elements, or 32, of 16 keys. square[j] gets the sum of squares of the bytes of key j. */
INLINE void convert(const uint16_t *src, int32_t d, const bool half, const float *by, uint32_t *dst,
                    __m512i *square)
{
    __m512i r[VW];
    UNROLL
    for (int i = 0; i < VW; i++)
        r[i] = bytes_of(src + (int64_t)i * d, half, _mm512_set1_ps(by[i]));
    transpose16(r);
    UNROLL
    for (int i = 0; i < VW; i++) {
        const int group = i % 4 * 4 + i / 4; /* of the word that the i-th vector has of every key */
        const __m512i size = _mm512_abs_epi8(r[i]);
        if (half && group >= 8)
            continue;
        *square = _mm512_dpbusd_epi32(*square, size, size);
        _mm512_storeu_si512(dst + group * WNW_TILE, _mm512_xor_si512(r[i], _mm512_set1_epi8((char)0x80)));
    }
}

static struct wnw__score8_size keys(const uint16_t *src, int32_t d, uint32_t *dst, float *scale)
{
    __m512i most = _mm512_setzero_si512();
    __m512 longest = _mm512_setzero_ps();
    for (int32_t j = 0; j < WNW_TILE; j += VW, src += (int64_t)VW * d) {
        __m512i top[VW], square = _mm512_setzero_si512();
        __m512 by_lanes;
        float by[VW];
        UNROLL
        for (int i = 0; i < VW; i++) {
            const uint16_t *row = src + (int64_t)i * d;
            top[i] = _mm512_setzero_si512();
            for (int32_t c = 0; c < d; c += VW)
                top[i] = max_bits(top[i], size_bits(v_load_f16(row + c)));
        }
        const __m512 scale_lanes = scales(largest_of(top), &by_lanes);
        _mm512_storeu_ps(by, by_lanes);
        _mm512_storeu_ps(scale + j, scale_lanes);
        int32_t c = 0;
        for (; c + 64 <= d; c += 64)
            convert(src + c, d, false, by, dst + (int64_t)(c / 4) * WNW_TILE + j, &square);
        if (c < d)
            convert(src + c, d, true, by, dst + (int64_t)(c / 4) * WNW_TILE + j, &square);
        most = max_bits(most, size_bits(scale_lanes));
        longest = _mm512_max_ps(
            longest, _mm512_mul_ps(_mm512_cvtepi32_ps(square), _mm512_mul_ps(scale_lanes, scale_lanes)));
    }
    return (struct wnw__score8_size){.scale = as_float(_mm512_reduce_max_epi32(most)),
                                     .square = _mm512_reduce_max_ps(longest)};
}

/* ---- Products ---- */

static void mul_panels(const uint32_t *q, const float *q_scale, const int32_t *q_first, int32_t n_panel,
                       int32_t d, const uint32_t *k, const float *k_scale, float *s)
{
    const int32_t n = d / 4;
    for (int32_t j = 0; j < WNW_TILE; j += 2 * VW) {
        const __m512 scale0 = _mm512_loadu_ps(k_scale + j), scale1 = _mm512_loadu_ps(k_scale + j + VW);
        for (int32_t p = 0; p < n_panel; p++) {
            const uint32_t *a = q + (int64_t)p * n * ROWS, *b = k + j;
            float *out = s + (int64_t)p * ROWS * WNW_TILE + j;
            __m512i sum[ROWS][2];
            UNROLL
            for (int r = 0; r < ROWS; r++)
                sum[r][0] = sum[r][1] = _mm512_set1_epi32(q_first[p * ROWS + r]);
            for (int32_t g = 0; g < n; g++, a += ROWS, b += WNW_TILE) {
                const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + VW);
                UNROLL
                for (int r = 0; r < ROWS; r++) {
                    const __m512i x = _mm512_set1_epi32((int)a[r]);
                    sum[r][0] = held(_mm512_dpbusd_epi32(sum[r][0], b0, x));
                    sum[r][1] = held(_mm512_dpbusd_epi32(sum[r][1], b1, x));
                }
            }
            UNROLL
            for (int r = 0; r < ROWS; r++) {
                const __m512 scale = _mm512_set1_ps(q_scale[p * ROWS + r]);
                _mm512_storeu_ps(out + r * WNW_TILE,
                                 _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum[r][0]), scale0), scale));
                _mm512_storeu_ps(out + r * WNW_TILE + VW,
                                 _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum[r][1]), scale1), scale));
            }
        }
    }
}

const struct wnw__score8 *wnw__score8_avx512(void)
{
    static const struct wnw__score8 table = {
        .name = "avx512-vnni",
        .panel_rows = ROWS,
        .queries = queries,
        .keys = keys,
        .mul_panels = mul_panels,
    };
    return &table;
}
#else
const struct wnw__score8 *wnw__score8_avx512(void)
{
    return NULL;
}
#endif
