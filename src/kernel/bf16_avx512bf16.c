/* SPDX-License-Identifier: MIT */
/* A register block is 12 rows of two vectors, as in kernel_body.h; a step multiplies a pair of each lane. */
#include "kernel/bf16.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512BF16__)
#include "kernel/kernel_avx512.h"
#include "kernel/unroll.h"

enum { VW = 16, ROWS = 12 };

/* ---- Pairs ---- */

/* Words with the lower half from a and the upper half from b. */
INLINE __m512i interleave(__m512 a, __m512 b)
{
    static const uint16_t from[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(from), (__m512i)_mm512_cvtne2ps_pbh(b, a));
}

static void pair_rows(const float *src, int32_t n, int32_t ld, uint32_t *dst)
{
    for (int32_t i = 0; i < n; i += 2, src += 2 * (int64_t)ld, dst += ld)
        for (int32_t j = 0; j < ld; j += VW) {
            const __mmask16 mask = (__mmask16)(ld - j < VW ? (1u << (ld - j)) - 1 : 0xffffu);
            const __m512 a = _mm512_maskz_loadu_ps(mask, src + j);
            const __m512 b = i + 1 < n ? _mm512_maskz_loadu_ps(mask, src + ld + j) : _mm512_setzero_ps();
            _mm512_mask_storeu_epi32(dst + j, mask, interleave(a, b));
        }
}

static void values_f16(const uint16_t *src, int32_t n, int32_t d, uint32_t *dst)
{
    for (int32_t i = 0; i < n; i += 2, src += 2 * (int64_t)d, dst += d)
        for (int32_t c = 0; c < d; c += VW) {
            const __m512 b = i + 1 < n ? v_load_f16(src + d + c) : _mm512_setzero_ps();
            _mm512_storeu_si512(dst + c, interleave(v_load_f16(src + c), b));
        }
}

static void keys_f16(const uint16_t *src, int32_t n, int32_t d, uint32_t *dst)
{
    for (int32_t j = 0; j < n; j += VW)
        for (int32_t c = 0; c < d; c += 2 * VW) {
            __m512i r[VW];
            UNROLL
            for (int32_t i = 0; i < VW; i++) {
                const uint16_t *row = src + (int64_t)(j + i < n ? j + i : n - 1) * d + c;
                r[i] = (__m512i)_mm512_cvtne2ps_pbh(v_load_f16(row + VW), v_load_f16(row));
            }
            transpose16(r);
            UNROLL
            for (int32_t i = 0; i < VW; i++)
                _mm512_storeu_si512(dst + (int64_t)(c / 2 + i) * WNW_TILE + j, r[i]);
        }
}

/* ---- Softmax ---- */

/* 2^t for t <= 0 as 2^(t - floor(t)), a polynomial, times 2^floor(t); 0 from -126 down. The polynomial is 1 at 0 and
 * differs from the power by 1.6e-7 of it at most, rounding included. */
INLINE __m512 power(__m512 t)
{
    const __m512 r = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_set1_ps(1.86713017e-3f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.01702978e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.57999127e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.240164444f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693151295f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(t, _mm512_set1_ps(-126.0f), _CMP_GT_OQ), p, t);
}

WNW_FOLD4(max4, _mm512_max_ps)

/* Four rows. `keep` is known at compile time. */
INLINE void softmax_rows(float *s, float *m, float *l, float *corr, const bool keep, uint32_t *pairs)
{
    const __m512 log2e = _mm512_set1_ps(1.44269504f);
    __m512 x[4][4], v[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        UNROLL
        for (int j = 0; j < 4; j++)
            x[i][j] = _mm512_loadu_ps(s + i * WNW_TILE + j * VW);
        v[i] = _mm512_max_ps(_mm512_max_ps(x[i][0], x[i][1]), _mm512_max_ps(x[i][2], x[i][3]));
    }
    const __m128 before = _mm_loadu_ps(m), top = _mm_max_ps(max4(v[0], v[1], v[2], v[3]), before);
    const __m512 gone = _mm512_castps128_ps512(_mm_sub_ps(before, top));
    const __m128 c = _mm512_castps512_ps128(power(_mm512_mul_ps(gone, log2e)));
    _mm_storeu_ps(m, top);
    _mm_storeu_ps(corr, c);
    UNROLL
    for (int i = 0; i < 4; i++) {
        const __m512 t = _mm512_set1_ps(m[i]);
        __m512 *e = x[i];
        UNROLL
        for (int j = 0; j < 4; j++) {
            e[j] = power(_mm512_mul_ps(_mm512_sub_ps(e[j], t), log2e));
            if (keep)
                _mm512_storeu_ps(s + i * WNW_TILE + j * VW, e[j]);
        }
        v[i] = _mm512_add_ps(_mm512_add_ps(e[0], e[1]), _mm512_add_ps(e[2], e[3]));
        _mm512_storeu_si512(pairs + i * (WNW_TILE / 2), (__m512i)_mm512_cvtne2ps_pbh(e[1], e[0]));
        _mm512_storeu_si512(pairs + i * (WNW_TILE / 2) + VW, (__m512i)_mm512_cvtne2ps_pbh(e[3], e[2]));
    }
    _mm_storeu_ps(l, _mm_fmadd_ps(_mm_loadu_ps(l), c, sum4(v[0], v[1], v[2], v[3])));
}

static void softmax_tile(float *s, int32_t rows, float *m, float *l, float *corr, bool keep, uint32_t *pairs)
{
    for (int32_t r = 0; r < rows; r += 4) {
        float *x = s + (int64_t)r * WNW_TILE;
        uint32_t *to = pairs + (int64_t)r * (WNW_TILE / 2);
        if (keep)
            softmax_rows(x, m + r, l + r, corr + r, true, to);
        else
            softmax_rows(x, m + r, l + r, corr + r, false, to);
    }
}

/* ---- Products ---- */

/* acc[r][0..1] += sum_k a[r * rs + k * ks] * (row k of b)[0 .. 2 * VW - 1] */
INLINE void mul_block(const int mr, const uint32_t *a, const int rs, const int ks, int32_t n,
                      const uint32_t *b, int32_t ldb, __m512 acc[ROWS][2])
{
    for (int32_t k = 0; k < n; k++, a += ks, b += ldb) {
        const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + VW);
        UNROLL
        for (int r = 0; r < mr; r++) {
            const __m512bh ar = (__m512bh)_mm512_set1_epi32((int)a[r * rs]);
            acc[r][0] = _mm512_dpbf16_ps(acc[r][0], ar, b0);
            acc[r][1] = _mm512_dpbf16_ps(acc[r][1], ar, b1);
        }
    }
}

static void mul_panels(const uint32_t *q, int32_t n_panel, int32_t n_pair, const uint32_t *kt, float *s)
{
    for (int32_t j = 0; j < WNW_TILE; j += 2 * VW)
        for (int32_t p = 0; p < n_panel; p++) {
            float *out = s + (int64_t)p * ROWS * WNW_TILE + j;
            __m512 acc[ROWS][2];
            UNROLL
            for (int r = 0; r < ROWS; r++)
                acc[r][0] = acc[r][1] = _mm512_setzero_ps();
            mul_block(ROWS, q + (int64_t)p * n_pair * ROWS, 1, ROWS, n_pair, kt + j, WNW_TILE, acc);
            UNROLL
            for (int r = 0; r < ROWS; r++) {
                _mm512_storeu_ps(out + r * WNW_TILE, acc[r][0]);
                _mm512_storeu_ps(out + r * WNW_TILE + VW, acc[r][1]);
            }
        }
}

INLINE void accumulate_block(const int mr, const uint32_t *p, const float *corr, const uint32_t *v,
                             int32_t n_pair, int32_t ld, float *o)
{
    __m512 acc[ROWS][2];
    UNROLL
    for (int r = 0; r < mr; r++) {
        const __m512 f = _mm512_set1_ps(corr[r]);
        acc[r][0] = _mm512_mul_ps(_mm512_loadu_ps(o + (int64_t)r * ld), f);
        acc[r][1] = _mm512_mul_ps(_mm512_loadu_ps(o + (int64_t)r * ld + VW), f);
    }
    mul_block(mr, p, WNW_TILE / 2, 1, n_pair, v, ld, acc);
    UNROLL
    for (int r = 0; r < mr; r++) {
        _mm512_storeu_ps(o + (int64_t)r * ld, acc[r][0]);
        _mm512_storeu_ps(o + (int64_t)r * ld + VW, acc[r][1]);
    }
}

static void accumulate(const uint32_t *p, int32_t rows, const float *corr, const uint32_t *v, int32_t n_pair,
                       int32_t ld, float *o)
{
    for (int32_t c = 0; c < ld; c += 2 * VW)
        for (int32_t r = 0, step; r < rows; r += step) {
            const uint32_t *pr = p + (int64_t)r * (WNW_TILE / 2);
            float *out = o + (int64_t)r * ld + c;
            if (rows - r >= ROWS) {
                step = ROWS;
                accumulate_block(ROWS, pr, corr + r, v + c, n_pair, ld, out);
            } else if (rows - r >= 4) {
                step = 4;
                accumulate_block(4, pr, corr + r, v + c, n_pair, ld, out);
            } else {
                step = 1;
                accumulate_block(1, pr, corr + r, v + c, n_pair, ld, out);
            }
        }
}

const struct wnw__bf16 *wnw__bf16_avx512(void)
{
    static const struct wnw__bf16 table = {
        .name = "avx512-bf16",
        .panel_rows = ROWS,
        .pair_rows = pair_rows,
        .keys_f16 = keys_f16,
        .values_f16 = values_f16,
        .softmax_tile = softmax_tile,
        .mul_panels = mul_panels,
        .accumulate = accumulate,
    };
    return &table;
}
#else
const struct wnw__bf16 *wnw__bf16_avx512(void)
{
    return NULL;
}
#endif
