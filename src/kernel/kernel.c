/* SPDX-License-Identifier: MIT */
#include "kernel/bf16.h"
#include "kernel/cpu.h"
#include "kernel/kernel_impl.h"

#include <ggml-cpu.h>
#include <ggml.h>
#include <string.h>

const struct wnw__vec *wnw__vec_at(int i)
{
    const struct wnw__vec *usable[3];
    int n = 0;
#if defined(__x86_64__) || defined(__i386__)
    if (wnw__vec_avx512() && !wnw__cpu_lacks_avx512())
        usable[n++] = wnw__vec_avx512();
    if (wnw__vec_avx2() && !wnw__cpu_lacks_avx2())
        usable[n++] = wnw__vec_avx2();
#endif
    if (wnw__vec_neon()) /* every CPU of its architecture has it */
        usable[n++] = wnw__vec_neon();
    usable[n++] = wnw__vec_scalar();
    return i >= 0 && i < n ? usable[i] : NULL;
}

const char *wnw_kernel_name(void)
{
    return wnw__bf16_best() ? wnw__bf16_best()->name : wnw__vec_at(0)->name;
}

void wnw__rows_to_f32(wnw_kv_type type, const void *src, int64_t n, int32_t d, float *dst)
{
    wnw__vec_at(0)->to_f32(type, src, n, d, dst, d);
}

void wnw__rows_from_f32(wnw_kv_type type, const float *src, int64_t n, int32_t d, void *dst)
{
    switch (type) {
    case WNW_KV_F16:
        ggml_cpu_fp32_to_fp16(src, dst, n * d);
        return;
    case WNW_KV_F32:
        memcpy(dst, src, (size_t)n * (size_t)d * sizeof *src);
        return;
    case WNW_KV_Q8_0:
        ggml_get_type_traits_cpu(GGML_TYPE_Q8_0)->from_float(src, dst, n * d);
        return;
    case WNW_KV_Q4_0:
        ggml_get_type_traits_cpu(GGML_TYPE_Q4_0)->from_float(src, dst, n * d);
        return;
    }
}

void wnw__hadamard(float *x, int64_t n, int32_t block)
{
    if (block > 0)
        wnw__vec_at(0)->hadamard(x, n, block);
}

void wnw__mul_nt(const float *a, int32_t na, const float *b, int32_t nb, int32_t d, float scale, float *out,
                 int64_t ld)
{
    wnw__vec_at(0)->mul_rows(WNW_KV_F32, a, na, b, (size_t)d * sizeof *b, nb, d, scale, out, ld);
}

void wnw__tiles_of(const float *b, int32_t n, int32_t d, float *tiles)
{
    const struct wnw__vec *vec = wnw__vec_at(0);
    int32_t j = 0;
    for (; j + WNW_TILE <= n; j += WNW_TILE)
        vec->transpose(b + (int64_t)j * d, d, tiles + (int64_t)j * d);
    if (j == n)
        return;
    float *last = tiles + (int64_t)j * d;
    memset(last, 0, WNW_TILE * (size_t)d * sizeof *last);
    for (int32_t k = j; k < n; k++)
        for (int32_t c = 0; c < d; c++)
            last[(int64_t)c * WNW_TILE + k - j] = b[(int64_t)k * d + c];
}

int32_t wnw__panel_rows(void)
{
    return wnw__vec_at(0)->panel_rows;
}

void wnw__panel_of(const float *a, int32_t na, int32_t d, float scale, float *panel)
{
    const int32_t rows = wnw__panel_rows();
    for (int32_t c = 0; c < d; c++)
        for (int32_t i = 0; i < rows; i++)
            panel[(int64_t)c * rows + i] = i < na ? scale * a[(int64_t)i * d + c] : 0;
}

void wnw__mul_tiles(const float *panel, int32_t na, int32_t d, const float *tiles, int32_t first, int32_t end,
                    float *out, int64_t ld)
{
    const struct wnw__vec *vec = wnw__vec_at(0);
    float s[WNW_PANEL_MOST * WNW_TILE];
    for (int32_t at = first / WNW_TILE * WNW_TILE; at < end; at += WNW_TILE) {
        const int32_t from = at < first ? first : at, to = end - at < WNW_TILE ? end : at + WNW_TILE;
        vec->mul_panels(panel, 1, d, tiles + (int64_t)at * d, s);
        for (int32_t i = 0; i < na; i++)
            memcpy(out + i * ld + (from - first), s + i * WNW_TILE + (from - at),
                   (size_t)(to - from) * sizeof *out);
    }
}

void wnw__mul_square(const float *x, int32_t n, int32_t d, float scale, float *room, float *out)
{
    const int32_t most = wnw__panel_rows();
    float *panel = room + WNW_TILE_FLOATS(d, d);
    for (int32_t i = 0; i < n; i += most) {
        const int32_t m = n - i < most ? n - i : most;
        wnw__panel_of(x + (int64_t)i * d, m, d, scale, panel);
        wnw__mul_tiles(panel, m, d, room, 0, d, out + (int64_t)i * d, d);
    }
}

void wnw__softmax(float *x, int32_t n)
{
    wnw__vec_at(0)->softmax(x, n);
}
