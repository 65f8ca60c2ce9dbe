/* SPDX-License-Identifier: MIT */
/* The types of GGUF files as strips: w = d u + m with u an unsigned byte. */
#include "kernel/matmul.h"

#include <ggml.h>
#include <string.h>

enum { B = 32 };

static float half(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    /* Exponent and mantissa in place, then scaled by 2^112: exact, denormal halves included. */
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

/* The 32 values of a block: low half-bytes first, then high ones. */
static void nibbles(const uint8_t *p, uint8_t *u)
{
    for (int i = 0; i < B / 2; i++) {
        u[i] = p[i] & 15;
        u[i + B / 2] = p[i] >> 4;
    }
}

/* Bit i of 32 becomes bit 4 of byte i: each byte of p is repeated eight times, keeps one bit per copy, and a copy that is
 * not 0 carries into its highest bit. */
static void fifth_bits(const uint8_t *p, uint8_t *u)
{
    for (int i = 0; i < 4; i++) {
        uint64_t x, bit = (p[i] * 0x0101010101010101u) & 0x8040201008040201u;
        bit = ((bit + 0x7f7f7f7f7f7f7f7fu) >> 3) & 0x1010101010101010u;
        memcpy(&x, u + 8 * i, sizeof x);
        x |= bit;
        memcpy(u + 8 * i, &x, sizeof x);
    }
}

/* One row's block of 32 columns: u[32], and d, m of its one or two blocks. */
typedef void (*block_fn)(const uint8_t *row, int32_t col, uint8_t *u, float *d, float *m);

static inline __attribute__((always_inline)) void unpack(block_fn read, int32_t block, const uint8_t *rows,
                                                         size_t stride, int32_t n, int32_t from,
                                                         int32_t n_col, struct wnw__strip *out)
{
    const int32_t per = B / block;
    n = n < WNW_STRIP ? n : WNW_STRIP;
    for (int32_t c = 0; c < n_col; c += B) {
        uint8_t u[WNW_STRIP][B];
        float d[2], m[2];
        for (int32_t r = 0; r < n; r++) {
            read(rows + (size_t)r * stride, from + c, u[r], d, m);
            for (int32_t i = 0; i < per; i++) {
                out->d[c / block + i][r] = d[i];
                out->m[c / block + i][r] = m[i];
            }
        }
        for (int32_t r = n; r < WNW_STRIP; r++) {
            memset(u[r], 0, B);
            for (int32_t i = 0; i < per; i++)
                out->d[c / block + i][r] = out->m[c / block + i][r] = 0.0f;
        }
        for (int32_t g = 0; g < B / 4; g++)
            for (int32_t r = 0; r < WNW_STRIP; r++)
                memcpy(out->u[c / 4 + g][r], u[r] + 4 * g, 4);
    }
}

static inline void read_q4_0(const uint8_t *row, int32_t col, uint8_t *u, float *d, float *m)
{
    const uint8_t *p = row + (size_t)(col / B) * 18;
    *d = half(p);
    *m = -8.0f * *d;
    nibbles(p + 2, u);
}

static inline void read_q4_1(const uint8_t *row, int32_t col, uint8_t *u, float *d, float *m)
{
    const uint8_t *p = row + (size_t)(col / B) * 20;
    *d = half(p);
    *m = half(p + 2);
    nibbles(p + 4, u);
}

static inline void read_q5_0(const uint8_t *row, int32_t col, uint8_t *u, float *d, float *m)
{
    const uint8_t *p = row + (size_t)(col / B) * 22;
    *d = half(p);
    *m = -16.0f * *d;
    nibbles(p + 6, u);
    fifth_bits(p + 2, u);
}

static inline void read_q5_1(const uint8_t *row, int32_t col, uint8_t *u, float *d, float *m)
{
    const uint8_t *p = row + (size_t)(col / B) * 24;
    *d = half(p);
    *m = half(p + 2);
    nibbles(p + 8, u);
    fifth_bits(p + 4, u);
}

static inline void read_q8_0(const uint8_t *row, int32_t col, uint8_t *u, float *d, float *m)
{
    const uint8_t *p = row + (size_t)(col / B) * 34;
    *d = half(p);
    *m = -128.0f * *d;
    for (int i = 0; i < B; i++)
        u[i] = p[2 + i] ^ 0x80;
}

/* Six bits of scale and of minimum of sub-block j, packed in 12 bytes. */
static inline void scale_and_min(const uint8_t *s, int32_t j, float *scale, float *min)
{
    *scale = (float)(j < 4 ? s[j] & 63 : (s[j + 4] & 15) | s[j - 4] >> 6 << 4);
    *min = (float)(j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | s[j] >> 6 << 4);
}

static inline void read_k(const uint8_t *p, int32_t col, const uint8_t *low, uint8_t *u, float *d, float *m)
{
    const int32_t j = col % 256 / B;
    float scale, min;
    scale_and_min(p + 4, j, &scale, &min);
    *d = half(p) * scale;
    *m = -half(p + 2) * min;
    low += j / 2 * B;
    for (int i = 0; i < B; i++)
        u[i] = j % 2 ? low[i] >> 4 : low[i] & 15;
}

static inline void read_q4_k(const uint8_t *row, int32_t col, uint8_t *u, float *d, float *m)
{
    const uint8_t *p = row + (size_t)(col / 256) * 144;
    read_k(p, col, p + 16, u, d, m);
}

static inline void read_q5_k(const uint8_t *row, int32_t col, uint8_t *u, float *d, float *m)
{
    const uint8_t *p = row + (size_t)(col / 256) * 176;
    const int32_t j = col % 256 / B;
    read_k(p, col, p + 48, u, d, m);
    for (int i = 0; i < B; i++)
        u[i] |= (uint8_t)((p[16 + i] >> j & 1) << 4);
}

static inline void read_q6_k(const uint8_t *row, int32_t col, uint8_t *u, float *d, float *m)
{
    const uint8_t *p = row + (size_t)(col / 256) * 210;
    const int32_t half_block = col % 256 / 128, part = col % 128 / B; /* 32 of four interleaved in each 128 */
    const uint8_t *low = p + half_block * 64 + part % 2 * B, *high = p + 128 + half_block * B;
    for (int i = 0; i < B; i++)
        u[i] = (uint8_t)((part < 2 ? low[i] & 15 : low[i] >> 4) | (high[i] >> 2 * part & 3) << 4);
    for (int i = 0; i < 2; i++) {
        d[i] = half(p + 208) * (float)(int8_t)p[192 + col % 256 / 16 + i];
        m[i] = -32.0f * d[i];
    }
}

#define TYPE(name, size)                                                                                  \
    static void unpack_##name(const uint8_t *rows, size_t stride, int32_t n, int32_t from, int32_t n_col, \
                              struct wnw__strip *out)                                                     \
    {                                                                                                     \
        unpack(read_##name, size, rows, stride, n, from, n_col, out);                                     \
    }
TYPE(q4_0, 32)
TYPE(q4_1, 32)
TYPE(q5_0, 32)
TYPE(q5_1, 32)
TYPE(q8_0, 32)
TYPE(q4_k, 32)
TYPE(q5_k, 32)
TYPE(q6_k, 16)

static const struct wnw__weight_type types[] = {
    {GGML_TYPE_Q4_0, 32, 32, 15, 18, unpack_q4_0},   {GGML_TYPE_Q4_1, 32, 32, 15, 20, unpack_q4_1},
    {GGML_TYPE_Q5_0, 32, 32, 31, 22, unpack_q5_0},   {GGML_TYPE_Q5_1, 32, 32, 31, 24, unpack_q5_1},
    {GGML_TYPE_Q8_0, 32, 32, 255, 34, unpack_q8_0},  {GGML_TYPE_Q4_K, 256, 32, 15, 144, unpack_q4_k},
    {GGML_TYPE_Q5_K, 256, 32, 31, 176, unpack_q5_k}, {GGML_TYPE_Q6_K, 256, 16, 63, 210, unpack_q6_k},
};

const struct wnw__weight_type *wnw__weight_type(int32_t ggml_type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].ggml_type == ggml_type)
            return &types[i];
    return NULL;
}
