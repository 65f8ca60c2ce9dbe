/* SPDX-License-Identifier: MIT */
/* Products with AVX-512 VNNI take 64 rows in four vectors, three tokens at a time; 24 registers hold sums. */
#include "kernel/matmul.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#define WNW_DOT(sum, u, q) _mm256_dpbusd_epi32(sum, u, q)
#include "kernel/kernel_avx512.h"
#include "kernel/matmul_act.h"
#include "kernel/matmul_few.h"
#include "kernel/matmul_types.h"

#include <string.h>

enum { VECS = WNW_STRIP / 16, TOKENS = 3 };

static inline __m512i four(const int8_t *q)
{
    int32_t x;
    memcpy(&x, q, sizeof x);
    return _mm512_set1_epi32(x);
}

/* Computes the results of n tokens; n and block are constants where the function is inlined. The groups of a block
 * are unrolled, or else gcc copies sums from register to register. */
static inline __attribute__((always_inline)) void tile(const struct wnw__strip *s, const int32_t block,
                                                       int32_t n_block, const struct wnw__act *act,
                                                       const int n, const float *before, float *y, int64_t ld)
{
    __m512 f[TOKENS][VECS];
    const int32_t groups = block / 4;
    for (int t = 0; t < n; t++)
        for (int r = 0; r < VECS; r++)
            f[t][r] = before ? _mm512_loadu_ps(before + t * WNW_STRIP + 16 * r) : _mm512_setzero_ps();
    for (int32_t b = 0; b < n_block; b++) {
        __m512i sum[TOKENS][VECS];
        for (int t = 0; t < n; t++)
            for (int r = 0; r < VECS; r++)
                sum[t][r] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int32_t i = 0; i < groups; i++) {
            const int32_t g = b * groups + i;
            __m512i w[VECS];
            for (int r = 0; r < VECS; r++)
                w[r] = held(_mm512_loadu_si512(s->u[g][16 * r]));
            for (int t = 0; t < n; t++) {
                const __m512i q = four(act[t].q + 4 * g);
                for (int r = 0; r < VECS; r++)
                    sum[t][r] = _mm512_dpbusd_epi32(sum[t][r], w[r], q);
            }
        }
        for (int t = 0; t < n; t++) {
            const __m512 a = _mm512_set1_ps(act[t].scale[b * block / 32]);
            const __m512 rest = _mm512_set1_ps(block == 32 ? act[t].sum32[b] : act[t].sum16[b]);
            for (int r = 0; r < VECS; r++) {
                const __m512 d = _mm512_mul_ps(a, _mm512_loadu_ps(s->d[b] + 16 * r));
                f[t][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t][r]), d, f[t][r]);
                f[t][r] = _mm512_fmadd_ps(rest, _mm512_loadu_ps(s->m[b] + 16 * r), f[t][r]);
            }
        }
    }
    for (int t = 0; t < n; t++)
        for (int r = 0; r < VECS; r++)
            _mm512_storeu_ps(y + t * ld + 16 * r, f[t][r]);
}

static inline __attribute__((always_inline)) void blocks_of(const struct wnw__strip *s, const int32_t block,
                                                            int32_t n_col, const struct wnw__act *act,
                                                            int32_t n_tok, const float *before, float *y,
                                                            int64_t ld)
{
    const int32_t n_block = n_col / block;
    for (int32_t t = 0; t < n_tok; t += TOKENS) {
        const float *sums = before ? before + t * WNW_STRIP : NULL;
        if (n_tok - t >= TOKENS)
            tile(s, block, n_block, act + t, TOKENS, sums, y + t * ld, ld);
        else if (n_tok - t == 2)
            tile(s, block, n_block, act + t, 2, sums, y + t * ld, ld);
        else
            tile(s, block, n_block, act + t, 1, sums, y + t * ld, ld);
    }
}

static void strip(const struct wnw__strip *s, const struct wnw__weight_type *type, int32_t n_col,
                  const struct wnw__act *act, int32_t n_tok, const float *before, float *y, int64_t ld)
{
    if (type->block == 32)
        blocks_of(s, 32, n_col, act, n_tok, before, y, ld);
    else
        blocks_of(s, 16, n_col, act, n_tok, before, y, ld);
}

/* Multiplies 16 bytes of 16 rows with 16 bytes of a token and adds four sums per row to sum[4]. */
static inline void add_half(const uint8_t u[WNW_ROWS][16], const int8_t *q, __m512i sum[4])
{
    const __m512i x = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)q));
    for (int g = 0; g < 4; g++)
        sum[g] = _mm512_dpbusd_epi32(sum[g], _mm512_loadu_si512(u[4 * g]), x);
}

/* Adds up the four sums of each row; lane r is the result of row r. */
static inline __m512 row_sums(const __m512i s[4])
{
    const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(s[0], s[1]), _mm512_unpackhi_epi32(s[0], s[1]));
    const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(s[2], s[3]), _mm512_unpackhi_epi32(s[2], s[3]));
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)));
}

static void rows(const struct wnw__rows *s, const struct wnw__weight_type *type, int32_t n_col,
                 const struct wnw__act *act, int32_t n_tok, bool first, int32_t n_row, float *y, int64_t ld)
{
    const __mmask16 mask = (__mmask16)((1u << n_row) - 1);
    const bool wide = type->block == 32;
    for (int32_t t = 0; t < n_tok; t++) {
        __m512 f = first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(mask, y + t * ld);
        for (int32_t b = 0; b < n_col / type->block; b++) {
            __m512i sum[4];
            for (int g = 0; g < 4; g++)
                sum[g] = _mm512_setzero_si512();
            add_half(s->u[wide ? 2 * b : b], act[t].q + b * type->block, sum);
            if (wide)
                add_half(s->u[2 * b + 1], act[t].q + b * 32 + 16, sum);
            const __m512 a = _mm512_set1_ps(act[t].scale[b * type->block / 32]);
            const __m512 rest = _mm512_set1_ps(wide ? act[t].sum32[b] : act[t].sum16[b]);
            f = _mm512_fmadd_ps(row_sums(sum), _mm512_mul_ps(a, _mm512_loadu_ps(s->d[b])), f);
            f = _mm512_fmadd_ps(rest, _mm512_loadu_ps(s->m[b]), f);
        }
        _mm512_mask_storeu_ps(y + t * ld, mask, f);
    }
}

const struct wnw__matmul_kernel *wnw__matmul_avx512vnni(void)
{
    static const struct wnw__matmul_kernel k = {"avx512-vnni", wnw__act_row, WNW_MATMUL_UNPACK,
                                                strip,         rows,         WNW_MATMUL_FEW};
    return &k;
}

#else
const struct wnw__matmul_kernel *wnw__matmul_avx512vnni(void)
{
    return NULL;
}
#endif
