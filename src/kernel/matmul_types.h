/* SPDX-License-Identifier: MIT */
/* This converts the types of GGUF files to the forms that products read: w = d u + m with an unsigned byte u.
 * Every kernel includes it, so that it is compiled for the instructions that the kernel may use. */
#ifndef WNW_MATMUL_TYPES_H
#define WNW_MATMUL_TYPES_H

#include "kernel/matmul.h"

#include <string.h>
#if defined(__F16C__) || defined(__AVX2__)
#include <immintrin.h>
#endif

enum { B = 32 };

/* These convert one half-precision number, or n of them, to float. */
#ifdef __F16C__
static inline float half(uint16_t h)
{
    return _cvtsh_ss(h);
}

static inline void halves(const uint16_t *h, int n, float *x)
{
    for (int i = 0; i < n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(h + i))));
}
#else
static inline float half(uint16_t h)
{
    /* Exponent and mantissa are moved to their places and scaled by 2^112: exact, denormals included. */
    const uint32_t bits = (uint32_t)(h & 0x7fff) << 13,
                   big = (uint32_t)(h & 0x7c00) == 0x7c00 ? 0x7f800000u : 0u;
    float x;
    memcpy(&x, &bits, sizeof x);
    x *= 0x1p112f;
    uint32_t out;
    memcpy(&out, &x, sizeof out);
    out |= big | (uint32_t)(h & 0x8000) << 16;
    memcpy(&x, &out, sizeof x);
    return x;
}

static inline void halves(const uint16_t *h, int n, float *x)
{
    for (int i = 0; i < n; i++)
        x[i] = half(h[i]);
}
#endif

static inline uint16_t raw_half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

/* ---- Values: 32 columns in two halves ---- */

/* 16 bytes that are converted together, as a vector type that GCC and clang have for every machine. If bytes
 * were written one by one and then read back as vectors, the processor would have to wait. */
typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t shorts8 __attribute__((vector_size(16)));

static inline bytes16 get(const uint8_t *p)
{
    bytes16 x;
    memcpy(&x, p, sizeof x);
    return x;
}

static inline void put(uint8_t *p, bytes16 x)
{
    memcpy(p, &x, sizeof x);
}

/* Shifts every byte right by `by` bits and applies the mask, which clears the bits that came from the
 * neighbour: processors shift 16 bits, not 8. */
static inline bytes16 bits_from(bytes16 x, int by, uint8_t mask)
{
    return (bytes16)((shorts8)x >> by) & mask;
}

/* Byte i is 16 if bit i of the two bytes at p is set, otherwise 0. */
static inline bytes16 fifth_bits(const uint8_t *p)
{
    const bytes16 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
#ifdef __SSSE3__
    const __m128i two = _mm_set1_epi16((short)raw_half(p));
    const __m128i spread =
        _mm_shuffle_epi8(two, _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
    const __m128i mask = _mm_loadu_si128((const __m128i *)(const void *)&bit);
    const __m128i set = _mm_cmpeq_epi8(_mm_and_si128(spread, mask), mask);
    return (bytes16)_mm_and_si128(set, _mm_set1_epi8(16));
#else
    bytes16 spread;
    for (int i = 0; i < 16; i++)
        spread[i] = p[i / 8];
    return (bytes16)((spread & bit) == bit) & 16;
#endif
}

typedef void (*values_fn)(const uint8_t *unit, int32_t col, uint8_t *low, uint8_t *high);

static inline void values_nibbles(const uint8_t *p, uint8_t *low, uint8_t *high)
{
    const bytes16 x = get(p);
    put(low, x & 15);
    put(high, bits_from(x, 4, 15));
}

static inline void values_q4_0(const uint8_t *p, int32_t col, uint8_t *low, uint8_t *high)
{
    (void)col;
    values_nibbles(p + 2, low, high);
}

static inline void values_q4_1(const uint8_t *p, int32_t col, uint8_t *low, uint8_t *high)
{
    (void)col;
    values_nibbles(p + 4, low, high);
}

static inline void values_q5(const uint8_t *bits, const uint8_t *p, uint8_t *low, uint8_t *high)
{
    const bytes16 x = get(p);
    put(low, (x & 15) | fifth_bits(bits));
    put(high, bits_from(x, 4, 15) | fifth_bits(bits + 2));
}

static inline void values_q5_0(const uint8_t *p, int32_t col, uint8_t *low, uint8_t *high)
{
    (void)col;
    values_q5(p + 2, p + 6, low, high);
}

static inline void values_q5_1(const uint8_t *p, int32_t col, uint8_t *low, uint8_t *high)
{
    (void)col;
    values_q5(p + 4, p + 8, low, high);
}

static inline void values_q8_0(const uint8_t *p, int32_t col, uint8_t *low, uint8_t *high)
{
    (void)col;
    put(low, get(p + 2) ^ 128);
    put(high, get(p + 18) ^ 128);
}

/* Two sub-blocks share 32 bytes: the first has the half-bytes from bit 0, the second those from bit 4. */
static inline void values_q4_k(const uint8_t *p, int32_t col, uint8_t *low, uint8_t *high)
{
    const int32_t j = col / B;
    const uint8_t *q = p + 16 + j / 2 * B;
    put(low, bits_from(get(q), j % 2 * 4, 15));
    put(high, bits_from(get(q + 16), j % 2 * 4, 15));
}

static inline void values_q5_k(const uint8_t *p, int32_t col, uint8_t *low, uint8_t *high)
{
    const int32_t j = col / B;
    const uint8_t *q = p + 48 + j / 2 * B;
    put(low, bits_from(get(q), j % 2 * 4, 15) | bits_from(get(p + 16), j, 1) << 4);
    put(high, bits_from(get(q + 16), j % 2 * 4, 15) | bits_from(get(p + 32), j, 1) << 4);
}

/* Four sub-blocks of each 128 columns are interleaved. */
static inline void values_q6_k(const uint8_t *p, int32_t col, uint8_t *low, uint8_t *high)
{
    const int32_t part = col % 128 / B;
    const uint8_t *q = p + col / 128 * 64 + part % 2 * B, *upper = p + 128 + col / 128 * B;
    put(low, bits_from(get(q), part / 2 * 4, 15) | bits_from(get(upper), 2 * part, 3) << 4);
    put(high, bits_from(get(q + 16), part / 2 * 4, 15) | bits_from(get(upper + 16), 2 * part, 3) << 4);
}

/* ---- Numbers: d and m of the blocks of a chunk, d[block * ld + row] ---- */

typedef void (*numbers_fn)(const uint8_t *units, size_t stride, int32_t n, int32_t n_unit, int32_t ld,
                           float *d, float *m);

/* A unit begins with d as a half-precision number. If `zero` is 0, m follows in the same form; otherwise m is
 * -zero d. */
static inline __attribute__((always_inline)) void numbers_plain(const uint8_t *units, size_t stride,
                                                                int32_t n, int32_t n_unit, int32_t ld,
                                                                float *d, float *m, const size_t unit_bytes,
                                                                const float zero)
{
    uint16_t raw[WNW_CHUNK / B][WNW_STRIP], raw_m[WNW_CHUNK / B][WNW_STRIP];
    for (int32_t b = 0; b < n_unit; b++) {
        const uint8_t *p = units + (size_t)b * unit_bytes;
        for (int32_t r = 0; r < n; r++, p += stride) {
            raw[b][r] = raw_half(p);
            if (zero == 0.0f)
                raw_m[b][r] = raw_half(p + 2);
        }
        for (int32_t r = n; r < ld; r++)
            raw[b][r] = raw_m[b][r] = 0;
        halves(raw[b], ld, d + b * ld);
        if (zero == 0.0f)
            halves(raw_m[b], ld, m + b * ld);
        for (int32_t r = 0; r < ld && zero != 0.0f; r++)
            m[b * ld + r] = -zero * d[b * ld + r];
    }
}

#define PLAIN(name, unit_bytes, zero)                                                                   \
    static inline __attribute__((always_inline)) void numbers_##name(                                   \
        const uint8_t *units, size_t stride, int32_t n, int32_t n_unit, int32_t ld, float *d, float *m) \
    {                                                                                                   \
        numbers_plain(units, stride, n, n_unit, ld, d, m, unit_bytes, zero);                            \
    }
PLAIN(q4_0, 18, 8.0f)
PLAIN(q4_1, 20, 0.0f)
PLAIN(q5_0, 22, 16.0f)
PLAIN(q5_1, 24, 0.0f)
PLAIN(q8_0, 34, 128.0f)

/* Reads eight scales and eight minima of six bits from 12 bytes, four at a time. The bits of those of
 * sub-blocks 4 to 7 are in two places. */
static inline void scales_and_mins(const uint8_t *p, uint8_t scale[8], uint8_t min[8])
{
    uint32_t a, b, c;
    memcpy(&a, p, 4);
    memcpy(&b, p + 4, 4);
    memcpy(&c, p + 8, 4);
    const uint32_t s[2] = {a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4};
    const uint32_t m[2] = {b & 0x3f3f3f3f, (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4};
    memcpy(scale, s, sizeof s);
    memcpy(min, m, sizeof m);
}

static inline __attribute__((always_inline)) void numbers_of_k(const uint8_t *units, size_t stride, int32_t n,
                                                               int32_t n_unit, int32_t ld, float *d, float *m)
{
    for (int32_t r = 0; r < ld; r++) {
        uint8_t scale[8] = {0}, min[8] = {0};
        float by = 0.0f, less = 0.0f;
        if (r < n && n_unit > 0) {
            const uint8_t *p = units + (size_t)r * stride;
            scales_and_mins(p + 4, scale, min);
            by = half(raw_half(p));
            less = -half(raw_half(p + 2));
        }
        for (int i = 0; i < 8; i++) {
            d[i * ld + r] = by * (float)scale[i];
            m[i * ld + r] = less * (float)min[i];
        }
    }
}

static inline __attribute__((always_inline)) void numbers_q4_k(const uint8_t *units, size_t stride, int32_t n,
                                                               int32_t n_unit, int32_t ld, float *d, float *m)
{
    numbers_of_k(units, stride, n, n_unit, ld, d, m);
}

static inline __attribute__((always_inline)) void numbers_q5_k(const uint8_t *units, size_t stride, int32_t n,
                                                               int32_t n_unit, int32_t ld, float *d, float *m)
{
    numbers_of_k(units, stride, n, n_unit, ld, d, m);
}

static inline __attribute__((always_inline)) void numbers_q6_k(const uint8_t *units, size_t stride, int32_t n,
                                                               int32_t n_unit, int32_t ld, float *d, float *m)
{
    for (int32_t r = 0; r < ld; r++) {
        const uint8_t *p = units + (size_t)r * stride;
        const bool there = r < n && n_unit > 0;
        const float by = there ? half(raw_half(p + 208)) : 0.0f;
        for (int i = 0; i < 16; i++) {
            const float x = there ? by * (float)(int8_t)p[192 + i] : 0.0f;
            d[i * ld + r] = x;
            m[i * ld + r] = -32.0f * x;
        }
    }
}

/* ---- Rows of a type in the two forms ---- */

/* The reading of one type, which the macros below put together. */
struct reading {
    values_fn values;
    numbers_fn numbers;
    int32_t k_unit;
    size_t unit_bytes;
};

/* The first unit of the chunk from column `from` on in row r. */
static inline const uint8_t *unit_at(const struct reading *t, const uint8_t *rows, size_t stride, int32_t r,
                                     int32_t from)
{
    return rows + (size_t)r * stride + (size_t)(from / t->k_unit) * t->unit_bytes;
}

static inline __attribute__((always_inline)) void values_at(const struct reading *t, const uint8_t *units,
                                                            int32_t c, uint8_t *low, uint8_t *high)
{
    t->values(units + (size_t)(c / t->k_unit) * t->unit_bytes, c % t->k_unit, low, high);
}

/* out[g][r] = bytes 4 g .. 4 g + 3 of row r */
#ifdef __AVX2__
static inline void fours_together(uint8_t (*u)[B], uint8_t (*out)[WNW_STRIP][4])
{
    for (int32_t r = 0; r < WNW_STRIP; r += 8)
        for (int32_t half = 0; half < 2; half++) {
            __m256i x[4], y[4]; /* x[i]: rows r + i and r + i + 4, whose bytes were written as halves */
            for (int i = 0; i < 4; i++)
                x[i] = _mm256_inserti128_si256(
                    _mm256_castsi128_si256(_mm_loadu_si128((const void *)(u[r + i] + 16 * half))),
                    _mm_loadu_si128((const void *)(u[r + i + 4] + 16 * half)), 1);
            for (int i = 0; i < 4; i += 2) {
                y[i] = _mm256_unpacklo_epi32(x[i], x[i + 1]);
                y[i + 1] = _mm256_unpackhi_epi32(x[i], x[i + 1]);
            }
            for (int i = 0; i < 2; i++) {
                uint8_t(*to)[WNW_STRIP][4] = out + 4 * half + 2 * i;
                _mm256_storeu_si256((void *)to[0][r], _mm256_unpacklo_epi64(y[i], y[i + 2]));
                _mm256_storeu_si256((void *)to[1][r], _mm256_unpackhi_epi64(y[i], y[i + 2]));
            }
        }
}
#else
static inline void fours_together(uint8_t (*u)[B], uint8_t (*out)[WNW_STRIP][4])
{
    for (int32_t g = 0; g < B / 4; g++)
        for (int32_t r = 0; r < WNW_STRIP; r++)
            memcpy(out[g][r], u[r] + 4 * g, 4);
}
#endif

static inline __attribute__((always_inline)) void to_strip(const struct reading t, const uint8_t *rows,
                                                           size_t stride, int32_t n, int32_t from,
                                                           int32_t n_col, struct wnw__strip *out)
{
    t.numbers(unit_at(&t, rows, stride, 0, from), stride, n, n_col / t.k_unit, WNW_STRIP, out->d[0],
              out->m[0]);
    for (int32_t c = 0; c < n_col; c += B) {
        uint8_t u[WNW_STRIP][B];
        for (int32_t r = 0; r < n; r++)
            values_at(&t, unit_at(&t, rows, stride, r, from), c, u[r], u[r] + 16);
        for (int32_t r = n; r < WNW_STRIP; r++)
            memset(u[r], 0, B);
        fours_together(u, out->u + c / 4);
    }
}

static inline __attribute__((always_inline)) void to_rows(const struct reading t, const uint8_t *rows,
                                                          size_t stride, int32_t n, int32_t from,
                                                          int32_t n_col, struct wnw__rows *out)
{
    const uint8_t *units = unit_at(&t, rows, stride, 0, from);
    t.numbers(units, stride, n, n_col / t.k_unit, WNW_ROWS, out->d[0], out->m[0]);
    for (int32_t c = 0; c < n_col; c += B) {
        uint8_t(*low)[16] = out->u[c / 16], (*high)[16] = out->u[c / 16 + 1];
        for (int32_t r = 0; r < n; r++)
            values_at(&t, units + (size_t)r * stride, c, low[wnw__slot_of_row(r)], high[wnw__slot_of_row(r)]);
        for (int32_t r = n; r < WNW_ROWS; r++) {
            memset(low[wnw__slot_of_row(r)], 0, 16);
            memset(high[wnw__slot_of_row(r)], 0, 16);
        }
    }
}

#define WNW_X(id, name, k_unit, block, u_max, bytes)                                                        \
    static const struct reading reading_##name = {values_##name, numbers_##name, k_unit, bytes};            \
    static void name##_to_strip(const uint8_t *rows, size_t stride, int32_t n, int32_t from, int32_t n_col, \
                                struct wnw__strip *out)                                                     \
    {                                                                                                       \
        to_strip(reading_##name, rows, stride, n, from, n_col, out);                                        \
    }                                                                                                       \
    static void name##_to_rows(const uint8_t *rows, size_t stride, int32_t n, int32_t from, int32_t n_col,  \
                               struct wnw__rows *out)                                                       \
    {                                                                                                       \
        if (n == WNW_ROWS) /* nearly always; the compiler unrolls its loops */                              \
            to_rows(reading_##name, rows, stride, WNW_ROWS, from, n_col, out);                              \
        else                                                                                                \
            to_rows(reading_##name, rows, stride, n, from, n_col, out);                                     \
    }
WNW_WEIGHT_TYPES(WNW_X)
#undef WNW_X

/* For wnw__matmul_kernel. */
#define WNW_X(id, name, k_unit, block, u_max, bytes) [WNW_WEIGHT_##id] = {name##_to_strip, name##_to_rows},
#define WNW_MATMUL_UNPACK       \
    {                           \
        WNW_WEIGHT_TYPES(WNW_X) \
    }

#endif
