/* SPDX-License-Identifier: MIT */
/*
 * Products with few tokens read the rows of the file where they are: eight rows at a time, over all columns,
 * with vectors of 256 bits. A vector holds 16 columns of two rows, so that the sums of eight rows become one vector
 * without crossing its halves. The order of its lanes is the one in which numbers of the rows come from memory most
 * cheaply: rows 0, 1, 4, 5 in the lower half, 2, 3, 6, 7 in the upper one. Nothing is unpacked to memory, and up to
 * four tokens share what is unpacked into registers.
 *
 * Sums of a block are integers, and what follows is computed in the order of the other forms, so the result is
 * theirs bit for bit. Without a dot product of bytes (WNW_DOT), sums stay in 16 bits as long as they fit.
 */
#ifndef WNW_MATMUL_FEW_H
#define WNW_MATMUL_FEW_H

#include "kernel/matmul.h"
#include "kernel/matmul_types.h"

#include <immintrin.h>

#define ALWAYS static inline __attribute__((always_inline))

/* The most tokens that share one pass over eight rows, and how far ahead of them memory is asked. */
enum { FEW_TOKENS = 4, FEW_AHEAD = 8192 };

/* ---- Reading eight rows ---- */

/* The four bytes at p in each of four rows. Lanes are picked from loads of 16 bytes, which never reach outside of the rows if
 * the four bytes lie within them: those of row r begin 4 r bytes before p. */
ALWAYS __m128i words4(const uint8_t *p, size_t stride)
{
#define AT(r) _mm_loadu_si128((const __m128i *)(const void *)(p + (r)*stride - 4 * (r)))
    __m128i x = AT(0);
    x = _mm_blend_epi32(x, AT(1), 1 << 1);
    x = _mm_blend_epi32(x, AT(2), 1 << 2);
    return _mm_blend_epi32(x, AT(3), 1 << 3);
#undef AT
}

/* The four bytes at p in each of eight rows, in the order of lanes. */
ALWAYS __m256i words8(const uint8_t *p, size_t stride)
{
    const __m128i a = words4(p, stride), b = words4(p + 4 * stride, stride);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi64(a, b)), _mm_unpackhi_epi64(a, b),
                                   1);
}

/* The half-precision numbers at p and at p + 2 in each of eight rows, in the order of lanes. */
ALWAYS void halves8(const uint8_t *p, size_t stride, __m256 *first, __m256 *second)
{
    const __m256 a = _mm256_cvtph_ps(words4(p, stride)), b = _mm256_cvtph_ps(words4(p + 4 * stride, stride));
    *first = _mm256_shuffle_ps(a, b, 0x88);
    *second = _mm256_shuffle_ps(a, b, 0xdd);
}

/* 16 bytes at p and 16 bytes at p + 2 * stride. */
ALWAYS __m256i pair(const uint8_t *p, size_t stride)
{
    const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a),
                                   _mm_loadu_si128((const __m128i *)(const void *)(p + 2 * stride)), 1);
}

/* As bits_from, for 32 bytes. */
ALWAYS __m256i bits8(__m256i x, int by, char mask)
{
    return _mm256_and_si256(_mm256_srli_epi16(x, by), _mm256_set1_epi8(mask));
}

/* Asks for eight short streams at once, which are more than processors foresee: for the unit that is `next` in the same place
 * of the next eight rows. It comes into the first-level cache, which holds few requests at a time, so what lies FEW_AHEAD bytes
 * after it comes into the second level before. What lies after the last rows is asked for in vain. */
ALWAYS void fetch_ahead(uintptr_t next, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64) {
        _mm_prefetch((const char *)(next + at), _MM_HINT_T0);
        _mm_prefetch((const char *)(next + FEW_AHEAD + at), _MM_HINT_T1);
    }
}

/* ---- Types: numbers of a unit, and values of 32 columns ---- */

/* A unit of eight rows: its first byte in row 0, and what `numbers` found there. */
struct few_unit {
    const uint8_t *p;
    size_t stride;
    __m256 d[16], m[16];
    __m256i fifth; /* of Q5_0 and Q5_1: the fifth bits of 32 columns of each row */
};

ALWAYS void few_numbers_q4_1(struct few_unit *u)
{
    halves8(u->p, u->stride, &u->d[0], &u->m[0]);
}

/* d, and m = -zero d. */
ALWAYS void numbers_from_zero(struct few_unit *u, float zero)
{
    halves8(u->p, u->stride, &u->d[0], &u->m[0]);
    u->m[0] = _mm256_mul_ps(_mm256_set1_ps(-zero), u->d[0]);
}

ALWAYS void few_numbers_q4_0(struct few_unit *u)
{
    numbers_from_zero(u, 8.0f);
}

ALWAYS void few_numbers_q8_0(struct few_unit *u)
{
    numbers_from_zero(u, 128.0f);
}

ALWAYS void few_numbers_q5_0(struct few_unit *u)
{
    numbers_from_zero(u, 16.0f);
    u->fifth = words8(u->p + 2, u->stride);
}

ALWAYS void few_numbers_q5_1(struct few_unit *u)
{
    few_numbers_q4_1(u);
    u->fifth = words8(u->p + 4, u->stride);
}

/* The unit in the row of lane r, r < 4. The row of lane r + 4 is two further on. */
ALWAYS const uint8_t *pair_at(const struct few_unit *u, int r)
{
    return u->p + (size_t)(r < 2 ? r : r + 2) * u->stride;
}

/* Byte i of the lanes, as numbers. */
ALWAYS __m256 bytes_of(__m256i words, int i)
{
    return _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(words, 8 * i), _mm256_set1_epi32(255)));
}

/* Scales and minima as scales_and_mins reads them, of eight rows at once. */
ALWAYS void few_numbers_q4_k(struct few_unit *u)
{
    const __m256i a = words8(u->p + 4, u->stride), b = words8(u->p + 8, u->stride),
                  c = words8(u->p + 12, u->stride);
    const __m256i six = _mm256_set1_epi32(0x3f3f3f3f);
    __m256i scale[2], min[2];
    scale[0] = _mm256_and_si256(a, six);
    min[0] = _mm256_and_si256(b, six);
    scale[1] = _mm256_or_si256(bits8(c, 0, 15), _mm256_slli_epi32(bits8(a, 6, 3), 4));
    min[1] = _mm256_or_si256(bits8(c, 4, 15), _mm256_slli_epi32(bits8(b, 6, 3), 4));
    __m256 by, less;
    halves8(u->p, u->stride, &by, &less);
    less = _mm256_xor_ps(less, _mm256_set1_ps(-0.0f));
    for (int i = 0; i < 8; i++) {
        u->d[i] = _mm256_mul_ps(by, bytes_of(scale[i / 4], i % 4));
        u->m[i] = _mm256_mul_ps(less, bytes_of(min[i / 4], i % 4));
    }
}

ALWAYS void few_numbers_q5_k(struct few_unit *u)
{
    few_numbers_q4_k(u);
}

ALWAYS void few_numbers_q6_k(struct few_unit *u)
{
    __m256 unused, by;
    halves8(u->p + 206, u->stride, &unused, &by); /* 208 is the row's last number */
    for (int i = 0; i < 4; i++) {
        const __m256i four = words8(u->p + 192 + 4 * i, u->stride);
        for (int j = 0; j < 4; j++) {
            const __m256i scale = _mm256_srai_epi32(_mm256_slli_epi32(four, 24 - 8 * j), 24);
            u->d[4 * i + j] = _mm256_mul_ps(by, _mm256_cvtepi32_ps(scale));
            u->m[4 * i + j] = _mm256_mul_ps(_mm256_set1_ps(-32.0f), u->d[4 * i + j]);
        }
    }
}

ALWAYS void nibbles(const uint8_t *p, size_t stride, __m256i *low, __m256i *high)
{
    const __m256i x = pair(p, stride);
    *low = bits8(x, 0, 15);
    *high = bits8(x, 4, 15);
}

/* The values of the rows of lanes r and r + 4, 32 columns from col on: the first 16 columns in `low`. For Q8_0
 * they are the signed bytes of the file. */
ALWAYS void few_values_q4_0(const struct few_unit *u, int r, int col, __m256i *low, __m256i *high)
{
    (void)col;
    nibbles(pair_at(u, r) + 2, u->stride, low, high);
}

ALWAYS void few_values_q4_1(const struct few_unit *u, int r, int col, __m256i *low, __m256i *high)
{
    (void)col;
    nibbles(pair_at(u, r) + 4, u->stride, low, high);
}

/* Byte i is 16 if bit i of the two bytes at `from` in lane r of its half is set, otherwise 0. */
ALWAYS __m256i fifth_bits8(__m256i words, int r, int from)
{
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const int64_t first = 0x0101010101010101 * (4 * r + from), second = first + 0x0101010101010101;
    const __m256i spread = _mm256_shuffle_epi8(words, _mm256_setr_epi64x(first, second, first, second));
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit), _mm256_set1_epi8(16));
}

ALWAYS void values_fifth(const struct few_unit *u, int r, size_t at, __m256i *low, __m256i *high)
{
    nibbles(pair_at(u, r) + at, u->stride, low, high);
    *low = _mm256_or_si256(*low, fifth_bits8(u->fifth, r, 0));
    *high = _mm256_or_si256(*high, fifth_bits8(u->fifth, r, 2));
}

ALWAYS void few_values_q5_0(const struct few_unit *u, int r, int col, __m256i *low, __m256i *high)
{
    (void)col;
    values_fifth(u, r, 6, low, high);
}

ALWAYS void few_values_q5_1(const struct few_unit *u, int r, int col, __m256i *low, __m256i *high)
{
    (void)col;
    values_fifth(u, r, 8, low, high);
}

ALWAYS void few_values_q8_0(const struct few_unit *u, int r, int col, __m256i *low, __m256i *high)
{
    (void)col;
    *low = pair(pair_at(u, r) + 2, u->stride);
    *high = pair(pair_at(u, r) + 18, u->stride);
}

/* 16 bytes of the rows of lanes r and r + 4 at p + at, and the same 16 bytes further on: `by` bits shifted, `mask`ed. */
ALWAYS void bits_pairs(const struct few_unit *u, int r, int at, int by, char mask, __m256i *low,
                       __m256i *high)
{
    const uint8_t *p = pair_at(u, r) + at;
    *low = bits8(pair(p, u->stride), by, mask);
    *high = bits8(pair(p + 16, u->stride), by, mask);
}

ALWAYS void few_values_q4_k(const struct few_unit *u, int r, int col, __m256i *low, __m256i *high)
{
    bits_pairs(u, r, 16 + col / 64 * B, col / B % 2 * 4, 15, low, high);
}

/* low and high get further bits above the ones they have. */
ALWAYS void add_bits(const struct few_unit *u, int r, int at, int by, char mask, __m256i *low, __m256i *high)
{
    __m256i l, h;
    bits_pairs(u, r, at, by, mask, &l, &h);
    *low = _mm256_or_si256(*low, _mm256_slli_epi16(l, 4));
    *high = _mm256_or_si256(*high, _mm256_slli_epi16(h, 4));
}

ALWAYS void few_values_q5_k(const struct few_unit *u, int r, int col, __m256i *low, __m256i *high)
{
    bits_pairs(u, r, 48 + col / 64 * B, col / B % 2 * 4, 15, low, high);
    add_bits(u, r, 16, col / B, 1, low, high);
}

ALWAYS void few_values_q6_k(const struct few_unit *u, int r, int col, __m256i *low, __m256i *high)
{
    const int part = col % 128 / B;
    bits_pairs(u, r, col / 128 * 64 + part % 2 * B, part / 2 * 4, 15, low, high);
    add_bits(u, r, 128 + col / 128 * B, 2 * part, 3, low, high);
}

/* ---- Sums ---- */

ALWAYS __m256i lanes16(const int8_t *q)
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)q));
}

#ifdef WNW_DOT
enum { FEW_DOT = 1 };
#else
enum { FEW_DOT = 0 };
#endif

/* Sums of pairs of products in 16 bits become sums of four in 32 bits. */
ALWAYS __m256i wide(__m256i x)
{
    return _mm256_madd_epi16(x, _mm256_set1_epi16(1));
}

/* Adds the lanes of a with each other, and those of b, in numbers of 16 or 32 bits: lanes of 32 bits of the
 * result belong to a, b, a, b. */
ALWAYS __m256i fold(__m256i a, __m256i b, const bool narrow)
{
    const __m256i x = _mm256_unpacklo_epi32(a, b), y = _mm256_unpackhi_epi32(a, b);
    return narrow ? _mm256_add_epi16(x, y) : _mm256_add_epi32(x, y);
}

/* Lane i of the result is the sum of the lanes of s[i]'s lower half, lane i + 4 that of its upper one. Their 16-bit numbers can be added up `folds` times before they must become 32 bits; -1: they have
 * 32 bits already. */
ALWAYS __m256i sums8(const __m256i s[4], const int folds)
{
    __m256i a[4];
    for (int i = 0; i < 4; i++)
        a[i] = folds == 0 ? wide(s[i]) : s[i];
    __m256i x = fold(a[0], a[1], folds > 0), y = fold(a[2], a[3], folds > 0);
    if (folds == 1) {
        x = wide(x);
        y = wide(y);
    }
    const __m256i l = _mm256_unpacklo_epi64(x, y), h = _mm256_unpackhi_epi64(x, y);
    return folds == 2 ? wide(_mm256_add_epi16(l, h)) : _mm256_add_epi32(l, h);
}

/* How often sums of n products u q may be added to each other in pairs before they need more than 16 bits: 0 to 2, or -1
 * where no sum of 16 bits is used. */
ALWAYS int folds_of(int u_max, int n)
{
    const int most = u_max * 127 * n;
    if (FEW_DOT || u_max > 63)
        return -1;
    return (2 * most <= 32767) + (4 * most <= 32767);
}

/* Products of 16 columns with a token. */
ALWAYS __m256i products16(__m256i w, const int8_t *q, const bool bytes)
{
    const __m256i x = lanes16(q);
#ifdef WNW_DOT
    return WNW_DOT(_mm256_setzero_si256(), bytes ? _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80)) : w, x);
#else
    return bytes ? wide(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)))
                 : _mm256_maddubs_epi16(w, x);
#endif
}

/* Adds one block's part to f: its sums, which are integers, and the numbers of its rows. */
ALWAYS __m256 add_block(__m256 f, __m256i sums, float scale, float rest, __m256 d, __m256 m)
{
    f = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_mul_ps(_mm256_set1_ps(scale), d), f);
    return _mm256_fmadd_ps(_mm256_set1_ps(rest), m, f);
}

/* What 32 columns of eight rows need, col columns after the beginning of the unit. */
typedef void (*few_values_fn)(const struct few_unit *, int, int, __m256i *, __m256i *);
typedef void (*few_numbers_fn)(struct few_unit *);

struct few_type {
    few_values_fn values;
    few_numbers_fn numbers;
    int32_t k_unit, block, u_max;
    size_t unit_bytes;
};

/* 32 columns of one token. `c` is the column within the chunk, b the first block within the unit. */
ALWAYS __m256 add_columns(const struct few_type t, const struct few_unit *u, const __m256i low[4],
                          const __m256i high[4], const struct wnw__act *act, int32_t c, int32_t b, __m256 f)
{
    const bool bytes = t.u_max > 63;
    const int8_t *q = act->q + c;
    __m256i l[4], h[4];
    for (int r = 0; r < 4; r++) {
        l[r] = products16(low[r], q, bytes);
        h[r] = products16(high[r], q + 16, bytes);
    }
    if (t.block == 16) {
        const int folds = folds_of(t.u_max, 2);
        f = add_block(f, sums8(l, folds), act->scale[c / B], act->sum16[c / 16], u->d[b], u->m[b]);
        return add_block(f, sums8(h, folds), act->scale[c / B], act->sum16[c / 16 + 1], u->d[b + 1],
                         u->m[b + 1]);
    }
    const int folds = folds_of(t.u_max, 4);
    for (int r = 0; r < 4; r++)
        l[r] = folds < 0 ? _mm256_add_epi32(l[r], h[r]) : _mm256_add_epi16(l[r], h[r]);
    return add_block(f, sums8(l, folds), act->scale[c / B], act->sum32[c / B], u->d[b], u->m[b]);
}

/* 32 columns of n tokens, col columns after the beginning of a unit and `from + col` after that of the rows. */
ALWAYS void add_tokens(const struct few_type t, const struct few_unit *u, int32_t col, int32_t from,
                       const struct wnw__act *act, const int n, __m256 f[FEW_TOKENS])
{
    __m256i low[4], high[4];
    for (int r = 0; r < 4; r++)
        t.values(u, r, col, &low[r], &high[r]);
    for (int i = 0; i < n; i++)
        f[i] = add_columns(t, u, low, high, &act[i], from + col, col / t.block, f[i]);
}

/* The vector's lanes in the order of the rows. */
ALWAYS __m256 by_rows(__m256 f)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(f), 0xd8));
}

/* Adds the products of one unit, whose first column is `from` within the chunk of act, to f. */
ALWAYS void add_unit(const struct few_type t, struct few_unit *u, int32_t from, const struct wnw__act *act,
                     const int n, __m256 f[FEW_TOKENS])
{
    t.numbers(u);
    if (!FEW_DOT && t.u_max > 63) /* values are signed, see matmul_256.h */
        u->m[0] = _mm256_fmadd_ps(u->d[0], _mm256_set1_ps(128.0f), u->m[0]);
    /* The columns of a part, which share bytes of the file, are constants to the compiler. */
    const int large = t.block == 16 ? 4 * B : 2 * B, part = t.k_unit == B ? B : large;
    for (int32_t first = 0; first < t.k_unit; first += part)
#pragma GCC unroll 4
        for (int32_t c = 0; c < part; c += B)
            add_tokens(t, u, first + c, from, act, n, f);
}

/* y[t] of n tokens, n at most FEW_TOKENS and a constant; n_tok is the distance of their records. */
ALWAYS void eight_rows(const struct few_type t, const uint8_t *rows, size_t stride, int32_t k,
                       const struct wnw__act *act, int32_t n_tok, const int n, float *y, int64_t ld)
{
    const size_t bytes = WNW_FEW * t.unit_bytes;
    struct few_unit u = {.p = rows, .stride = stride};
    uintptr_t next = (uintptr_t)rows + WNW_FEW * stride;
    __m256 f[FEW_TOKENS];
    for (int i = 0; i < n; i++)
        f[i] = _mm256_setzero_ps();
    for (; k > 0; k -= WNW_CHUNK, act += n_tok) {
        const int32_t n_col = k < WNW_CHUNK ? k : WNW_CHUNK;
        for (int32_t from = 0; from < n_col; from += t.k_unit, u.p += t.unit_bytes, next += bytes) {
            fetch_ahead(next, bytes);
            add_unit(t, &u, from, act, n, f);
        }
    }
    for (int i = 0; i < n; i++)
        _mm256_storeu_ps(y + i * ld, by_rows(f[i]));
}

ALWAYS void few_tokens(const struct few_type t, const uint8_t *rows, size_t stride, int32_t k,
                       const struct wnw__act *act, int32_t n_tok, float *y, int64_t ld)
{
    int32_t i = 0;
    for (; n_tok - i >= FEW_TOKENS; i += FEW_TOKENS)
        eight_rows(t, rows, stride, k, act + i, n_tok, FEW_TOKENS, y + i * ld, ld);
    for (; n_tok - i >= 2; i += 2)
        eight_rows(t, rows, stride, k, act + i, n_tok, 2, y + i * ld, ld);
    if (i < n_tok)
        eight_rows(t, rows, stride, k, act + i, n_tok, 1, y + i * ld, ld);
}

#define FEW_FUNCTION(id, name, k_unit, block, u_max, bytes)                                             \
    static void name##_few(const uint8_t *rows, size_t stride, int32_t k, const struct wnw__act *act,   \
                           int32_t n_tok, float *y, int64_t ld)                                         \
    {                                                                                                   \
        const struct few_type t = {few_values_##name, few_numbers_##name, k_unit, block, u_max, bytes}; \
        few_tokens(t, rows, stride, k, act, n_tok, y, ld);                                              \
    }
WNW_WEIGHT_TYPES(FEW_FUNCTION)
#undef FEW_FUNCTION

/* For wnw__matmul_kernel. */
#define FEW_ENTRY(id, name, k_unit, block, u_max, bytes) [WNW_WEIGHT_##id] = name##_few,
#define WNW_MATMUL_FEW              \
    {                               \
        WNW_WEIGHT_TYPES(FEW_ENTRY) \
    }

#undef ALWAYS
#endif
