/* SPDX-License-Identifier: MIT */
/* The choice of a version, and the reference. */
#include "kernel/score8.h"

#include "kernel/cpu.h"

#include <math.h>
#include <string.h>

enum { ROWS = 3 };

const struct wnw__score8 *wnw__score8_at(int i)
{
    const struct wnw__score8 *usable[2];
    int n = 0;
#if defined(__x86_64__) || defined(__i386__)
    if (wnw__score8_avx512() && !wnw__cpu_lacks_avx512() && !wnw__cpu_lacks_avx512vnni())
        usable[n++] = wnw__score8_avx512();
#endif
    usable[n++] = wnw__score8_scalar();
    return i >= 0 && i < n ? usable[i] : NULL;
}

const struct wnw__score8 *wnw__score8_best(void)
{
    return wnw__score8_at(1) ? wnw__score8_at(0) : NULL;
}

/* What elements are multiplied with to become bytes if `top` is the largest. */
static float to_bytes_by(float top)
{
    return top > 0.0f ? 127.0f / top : 0.0f;
}

/* Sets byte `at` of a word. */
static void put(uint32_t *word, int at, uint8_t byte)
{
    memcpy((uint8_t *)word + at, &byte, 1);
}

static int32_t to_byte(float x)
{
    return isfinite(x) ? (int32_t)lrintf(x) : 0;
}

static void queries(const float *panels, int32_t n_panel, int32_t d, uint32_t *dst, float *scale,
                    float *square, int32_t *first)
{
    for (int32_t i = 0; i < n_panel * ROWS; i++) {
        const float *x = panels + (int64_t)(i / ROWS) * d * ROWS + i % ROWS;
        uint32_t *to = dst + (int64_t)(i / ROWS) * (d / 4) * ROWS + i % ROWS;
        float top = 0.0f;
        int32_t sum = 0;
        for (int32_t c = 0; c < d; c++)
            top = wnw__score8_larger(fabsf(x[(int64_t)c * ROWS]), top);
        const float by = to_bytes_by(top);
        scale[i] = top / 127.0f;
        square[i] = 0.0f;
        for (int32_t c = 0; c < d; c++) {
            const int32_t a = to_byte(x[(int64_t)c * ROWS] * by);
            put(to + (int64_t)(c / 4) * ROWS, c % 4, (uint8_t)a);
            sum += a;
            square[i] = fmaf(x[(int64_t)c * ROWS], x[(int64_t)c * ROWS], square[i]);
        }
        first[i] = -128 * sum;
    }
}

static struct wnw__score8_size keys(const uint16_t *src, int32_t d, uint32_t *dst, float *scale)
{
    struct wnw__score8_size size = {0};
    for (int32_t j = 0; j < WNW_TILE; j++) {
        float x[32], top = 0.0f;
        int32_t square = 0;
        for (int32_t c = 0; c < d; c += 32) {
            wnw__vec_scalar()->to_f32(WNW_KV_F16, src + (int64_t)j * d + c, 1, 32, x, 32);
            for (int32_t i = 0; i < 32; i++)
                top = wnw__score8_larger(fabsf(x[i]), top);
        }
        const float by = to_bytes_by(top);
        scale[j] = top / 127.0f;
        for (int32_t c = 0; c < d; c += 32) {
            wnw__vec_scalar()->to_f32(WNW_KV_F16, src + (int64_t)j * d + c, 1, 32, x, 32);
            for (int32_t i = 0; i < 32; i++) {
                const int32_t b = to_byte(x[i] * by);
                put(dst + (int64_t)((c + i) / 4) * WNW_TILE + j, i % 4, (uint8_t)(b + 128));
                square += b * b;
            }
        }
        size.scale = wnw__score8_larger(scale[j], size.scale);
        size.square = wnw__score8_larger((float)square * (scale[j] * scale[j]), size.square);
    }
    return size;
}

static void mul_panels(const uint32_t *q, const float *q_scale, const int32_t *q_first, int32_t n_panel,
                       int32_t d, const uint32_t *k, const float *k_scale, float *s)
{
    for (int32_t i = 0; i < n_panel * ROWS; i++)
        for (int32_t j = 0; j < WNW_TILE; j++) {
            int32_t sum = q_first[i];
            for (int32_t g = 0; g < d / 4; g++) {
                int8_t a[4];
                uint8_t b[4];
                memcpy(a, q + (int64_t)(i / ROWS * (d / 4) + g) * ROWS + i % ROWS, sizeof a);
                memcpy(b, k + (int64_t)g * WNW_TILE + j, sizeof b);
                for (int e = 0; e < 4; e++)
                    sum += a[e] * b[e];
            }
            s[(int64_t)i * WNW_TILE + j] = (float)sum * k_scale[j] * q_scale[i];
        }
}

const struct wnw__score8 *wnw__score8_scalar(void)
{
    static const struct wnw__score8 table = {
        .name = "scalar",
        .panel_rows = ROWS,
        .queries = queries,
        .keys = keys,
        .mul_panels = mul_panels,
    };
    return &table;
}
