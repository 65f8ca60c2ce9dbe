/* SPDX-License-Identifier: MIT */
/* The choice of a version, and the reference. */
#include "kernel/bf16.h"

#include "kernel/cpu.h"

#include <math.h>
#include <string.h>

enum { ROWS = 3 };

const struct wnw__bf16 *wnw__bf16_at(int i)
{
    const struct wnw__bf16 *usable[2];
    int n = 0;
#if defined(__x86_64__) || defined(__i386__)
    if (wnw__bf16_avx512() && !wnw__cpu_lacks_avx512bf16())
        usable[n++] = wnw__bf16_avx512();
#endif
    usable[n++] = wnw__bf16_scalar();
    return i >= 0 && i < n ? usable[i] : NULL;
}

const struct wnw__bf16 *wnw__bf16_best(void)
{
    return wnw__bf16_at(1) ? wnw__bf16_at(0) : NULL;
}

static uint32_t to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u) /* NaN stays NaN */
        return u >> 16 | 0x40u;
    if ((u & 0x7f800000u) == 0)
        return u >> 16 & 0x8000u;
    return (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}

static float half(uint32_t pair, int second)
{
    const uint32_t u = second ? pair & 0xffff0000u : pair << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static void put(uint32_t *dst, int64_t i, float first, float second)
{
    const uint32_t pair = to_bf16(first) | to_bf16(second) << 16;
    memcpy(dst + i, &pair, sizeof pair); /* dst may be memory of floats */
}

static void pair_rows(const float *src, int32_t n, int32_t ld, uint32_t *dst)
{
    for (int64_t i = 0; 2 * i < n; i++)
        for (int64_t j = 0; j < ld; j++)
            put(dst, i * ld + j, src[2 * i * ld + j], 2 * i + 1 < n ? src[(2 * i + 1) * ld + j] : 0.0f);
}

static float from_f16(uint16_t h)
{
    float x;
    wnw__vec_scalar()->to_f32(WNW_KV_F16, &h, 1, 1, &x, 1);
    return x;
}

static void keys_f16(const uint16_t *src, int32_t n, int32_t d, uint32_t *dst)
{
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < d / 2; i++)
            put(dst, i * WNW_TILE + j, from_f16(src[j * d + 2 * i]), from_f16(src[j * d + 2 * i + 1]));
}

static void values_f16(const uint16_t *src, int32_t n, int32_t d, uint32_t *dst)
{
    for (int64_t i = 0; 2 * i < n; i++)
        for (int64_t c = 0; c < d; c++)
            put(dst, i * d + c, from_f16(src[2 * i * d + c]),
                2 * i + 1 < n ? from_f16(src[(2 * i + 1) * d + c]) : 0.0f);
}

static void softmax_tile(float *s, int32_t rows, float *m, float *l, float *corr, bool keep, uint32_t *pairs)
{
    for (int32_t r = 0; r < rows; r++) {
        float *x = s + (int64_t)r * WNW_TILE, top = m[r], e[WNW_TILE];
        for (int32_t c = 0; c < WNW_TILE; c++)
            top = x[c] > top ? x[c] : top;
        corr[r] = expf(m[r] - top);
        l[r] *= corr[r];
        m[r] = top;
        for (int32_t c = 0; c < WNW_TILE; c++) {
            e[c] = expf(x[c] - top);
            l[r] += e[c];
        }
        for (int32_t c = 0; c < WNW_TILE / 2; c++)
            put(pairs, (int64_t)r * (WNW_TILE / 2) + c, e[2 * c], e[2 * c + 1]);
        if (keep)
            memcpy(x, e, sizeof e);
    }
}

/* A product of two bf16 is exact in float32, so that each step rounds once. The CPU's instruction begins with the second
 * half, too. */
static float add_pair(float sum, uint32_t a, uint32_t b)
{
    sum += half(a, 1) * half(b, 1);
    return sum + half(a, 0) * half(b, 0);
}

static void mul_panels(const uint32_t *q, int32_t n_panel, int32_t n_pair, const uint32_t *kt, float *s)
{
    for (int32_t i = 0; i < n_panel * ROWS; i++) {
        const uint32_t *row = q + (int64_t)(i / ROWS) * n_pair * ROWS + i % ROWS;
        for (int32_t j = 0; j < WNW_TILE; j++) {
            float sum = 0.0f;
            for (int32_t c = 0; c < n_pair; c++)
                sum = add_pair(sum, row[(int64_t)c * ROWS], kt[(int64_t)c * WNW_TILE + j]);
            s[(int64_t)i * WNW_TILE + j] = sum;
        }
    }
}

static void accumulate(const uint32_t *p, int32_t rows, const float *corr, const uint32_t *v, int32_t n_pair,
                       int32_t ld, float *o)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < ld; c++) {
            float sum = o[r * ld + c] * corr[r];
            for (int64_t e = 0; e < n_pair; e++)
                sum = add_pair(sum, p[r * (WNW_TILE / 2) + e], v[e * ld + c]);
            o[r * ld + c] = sum;
        }
}

const struct wnw__bf16 *wnw__bf16_scalar(void)
{
    static const struct wnw__bf16 table = {
        .name = "scalar",
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
