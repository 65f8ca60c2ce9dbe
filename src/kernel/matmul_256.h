/* SPDX-License-Identifier: MIT */
/*
 * Products with vectors of 256 bits take 16 rows in two vectors at a time. If the CPU has no dot product of
 * bytes (WNW_DOT), products of pairs are added up in 16 bits for a run of groups that cannot overflow, then
 * widened:
 *
 *     u <= 15    8 groups (a whole block of 32)
 *     u <= 31    4 groups
 *     u <= 63    2 groups
 *     u <= 255   1 group, as the product of |w| with q under the sign of w, where w = u - 128
 */
#ifndef WNW_MATMUL_256_H
#define WNW_MATMUL_256_H

#include "kernel/matmul_act.h"
#include "kernel/matmul_few.h"
#include "kernel/matmul_types.h"

#include <string.h>

enum { TILE_ROWS = 16 };

static inline __m256i four(const int8_t *q)
{
    int32_t x;
    memcpy(&x, q, sizeof x);
    return _mm256_set1_epi32(x);
}

static inline __m256i load_u(const struct wnw__strip *s, int32_t g, int32_t r)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)s->u[g][r]);
}

/* Computes sum[t][v] of n tokens and two vectors of rows over groups from .. from + n_group - 1. */
static inline __attribute__((always_inline)) void dot(const struct wnw__strip *s, const int run,
                                                      const bool bytes, int32_t r0, int32_t from,
                                                      const int n_group, const struct wnw__act *act,
                                                      const int n, __m256i sum[][2])
{
    for (int t = 0; t < n; t++)
        sum[t][0] = sum[t][1] = _mm256_setzero_si256();
#ifdef WNW_DOT
    (void)run;
    (void)bytes;
    for (int32_t g = from; g < from + n_group; g++) {
        const __m256i w0 = load_u(s, g, r0), w1 = load_u(s, g, r0 + 8);
        for (int t = 0; t < n; t++) {
            const __m256i q = four(act[t].q + 4 * g);
            sum[t][0] = WNW_DOT(sum[t][0], w0, q);
            sum[t][1] = WNW_DOT(sum[t][1], w1, q);
        }
    }
#else
    const __m256i one = _mm256_set1_epi16(1), flip = _mm256_set1_epi8((char)0x80);
    for (int32_t g = from; g < from + n_group; g += run) {
        __m256i part[4][2];
        for (int i = 0; i < run; i++) {
            __m256i w0 = load_u(s, g + i, r0), w1 = load_u(s, g + i, r0 + 8);
            if (bytes) {
                w0 = _mm256_xor_si256(w0, flip);
                w1 = _mm256_xor_si256(w1, flip);
            }
            for (int t = 0; t < n; t++) {
                const __m256i q = four(act[t].q + 4 * (g + i));
                const __m256i p0 = bytes ? _mm256_maddubs_epi16(_mm256_abs_epi8(w0), _mm256_sign_epi8(q, w0))
                                         : _mm256_maddubs_epi16(w0, q);
                const __m256i p1 = bytes ? _mm256_maddubs_epi16(_mm256_abs_epi8(w1), _mm256_sign_epi8(q, w1))
                                         : _mm256_maddubs_epi16(w1, q);
                part[t][0] = i == 0 ? p0 : _mm256_add_epi16(part[t][0], p0);
                part[t][1] = i == 0 ? p1 : _mm256_add_epi16(part[t][1], p1);
            }
        }
        for (int t = 0; t < n; t++)
            for (int v = 0; v < 2; v++)
                sum[t][v] = _mm256_add_epi32(sum[t][v], _mm256_madd_epi16(part[t][v], one));
    }
#endif
}

static inline __attribute__((always_inline)) void tile(const struct wnw__strip *s, const int block,
                                                       const int run, const bool bytes, int32_t r0,
                                                       int32_t n_block, const struct wnw__act *act,
                                                       const int n, const float *before, float *y, int64_t ld)
{
    for (int32_t b = 0; b < n_block; b++) {
        __m256i sum[4][2];
        dot(s, run, bytes, r0, b * (block / 4), block / 4, act, n, sum);
        for (int v = 0; v < 2; v++) {
            const __m256 d = _mm256_loadu_ps(s->d[b] + r0 + 8 * v);
            __m256 m = _mm256_loadu_ps(s->m[b] + r0 + 8 * v);
#ifndef WNW_DOT
            if (bytes)
                m = _mm256_fmadd_ps(d, _mm256_set1_ps(128.0f), m);
#endif
            for (int t = 0; t < n; t++) {
                const __m256 a = _mm256_set1_ps(act[t].scale[b * block / 32]);
                const __m256 rest = _mm256_set1_ps(block == 32 ? act[t].sum32[b] : act[t].sum16[b]);
                float *out = y + t * ld + r0 + 8 * v;
                __m256 f = _mm256_setzero_ps();
                if (b > 0)
                    f = _mm256_loadu_ps(out);
                else if (before)
                    f = _mm256_loadu_ps(before + t * WNW_STRIP + r0 + 8 * v);
                f = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[t][v]), _mm256_mul_ps(a, d), f);
                _mm256_storeu_ps(out, _mm256_fmadd_ps(rest, m, f));
            }
        }
    }
}

static inline __attribute__((always_inline)) void all(const struct wnw__strip *s, const int block,
                                                      const int run, const bool bytes, int32_t n_col,
                                                      const struct wnw__act *act, int32_t n_tok,
                                                      const float *before, float *y, int64_t ld)
{
    for (int32_t t = 0; t < n_tok;) {
        const int32_t n = n_tok - t < 4 ? n_tok - t : 4;
        const float *sums = before ? before + t * WNW_STRIP : NULL;
        for (int32_t r0 = 0; r0 < WNW_STRIP; r0 += TILE_ROWS)
            switch (n) {
            case 4:
                tile(s, block, run, bytes, r0, n_col / block, act + t, 4, sums, y + t * ld, ld);
                break;
            case 3:
                tile(s, block, run, bytes, r0, n_col / block, act + t, 3, sums, y + t * ld, ld);
                break;
            case 2:
                tile(s, block, run, bytes, r0, n_col / block, act + t, 2, sums, y + t * ld, ld);
                break;
            default:
                tile(s, block, run, bytes, r0, n_col / block, act + t, 1, sums, y + t * ld, ld);
            }
        t += n;
    }
}

static void strip(const struct wnw__strip *s, const struct wnw__weight_type *type, int32_t n_col,
                  const struct wnw__act *act, int32_t n_tok, const float *before, float *y, int64_t ld)
{
    if (type->block == 16)
        all(s, 16, 2, false, n_col, act, n_tok, before, y, ld);
    else if (type->u_max <= 15)
        all(s, 32, 8, false, n_col, act, n_tok, before, y, ld);
    else if (type->u_max <= 31)
        all(s, 32, 4, false, n_col, act, n_tok, before, y, ld);
    else
        all(s, 32, 1, true, n_col, act, n_tok, before, y, ld);
}

/* Multiplies half a block of two rows with half a block of a token and adds four sums per row to sum. */
static inline __m256i add_half(__m256i sum, const uint8_t *u, const int8_t *q, bool bytes)
{
    const __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)q));
    __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)u);
#ifdef WNW_DOT
    (void)bytes;
    return WNW_DOT(sum, w, x);
#else
    __m256i p;
    if (bytes) {
        w = _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80));
        p = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    } else {
        p = _mm256_maddubs_epi16(w, x);
    }
    return _mm256_add_epi32(sum, _mm256_madd_epi16(p, _mm256_set1_epi16(1)));
#endif
}

/* Adds up the four sums of each row of four pairs of rows; lane r is the result of row r. */
static inline __m256 row_sums(__m256i s0, __m256i s1, __m256i s2, __m256i s3)
{
    const __m256i a = _mm256_add_epi32(_mm256_unpacklo_epi32(s0, s1), _mm256_unpackhi_epi32(s0, s1));
    const __m256i b = _mm256_add_epi32(_mm256_unpacklo_epi32(s2, s3), _mm256_unpackhi_epi32(s2, s3));
    return _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)));
}

static void rows(const struct wnw__rows *s, const struct wnw__weight_type *type, int32_t n_col,
                 const struct wnw__act *act, int32_t n_tok, bool first, int32_t n_row, float *y, int64_t ld)
{
    const bool wide = type->block == 32, bytes = type->u_max > 63;
    for (int32_t t = 0; t < n_tok; t++) {
        float out[WNW_ROWS] = {0};
        if (!first)
            memcpy(out, y + t * ld, (size_t)n_row * sizeof *out);
        __m256 f[2] = {_mm256_loadu_ps(out), _mm256_loadu_ps(out + 8)};
        for (int32_t b = 0; b < n_col / type->block; b++) {
            __m256i sum[8];
            for (int i = 0; i < 8; i++) {
                sum[i] = add_half(_mm256_setzero_si256(), s->u[wide ? 2 * b : b][2 * i],
                                  act[t].q + b * type->block, bytes);
                if (wide)
                    sum[i] = add_half(sum[i], s->u[2 * b + 1][2 * i], act[t].q + b * 32 + 16, bytes);
            }
            const __m256 a = _mm256_set1_ps(act[t].scale[b * type->block / 32]);
            const __m256 rest = _mm256_set1_ps(wide ? act[t].sum32[b] : act[t].sum16[b]);
            for (int v = 0; v < 2; v++) {
                const __m256 d = _mm256_loadu_ps(s->d[b] + 8 * v);
                __m256 m = _mm256_loadu_ps(s->m[b] + 8 * v);
#ifndef WNW_DOT
                if (bytes)
                    m = _mm256_fmadd_ps(d, _mm256_set1_ps(128.0f), m);
#endif
                f[v] = _mm256_fmadd_ps(row_sums(sum[v], sum[v + 2], sum[v + 4], sum[v + 6]),
                                       _mm256_mul_ps(a, d), f[v]);
                f[v] = _mm256_fmadd_ps(rest, m, f[v]);
            }
        }
        _mm256_storeu_ps(out, f[0]);
        _mm256_storeu_ps(out + 8, f[1]);
        memcpy(y + t * ld, out, (size_t)n_row * sizeof *out);
    }
}

#endif
