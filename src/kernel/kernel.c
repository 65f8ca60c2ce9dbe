/* SPDX-License-Identifier: MIT */
#include "kernel/bf16.h"
#include "kernel/cpu.h"
#include "kernel/kernel_impl.h"
#include "kernel/noise.h"
#include "winnow_tools.h"

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
    wnw__noise("products", out, ld, na, nb);
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

void wnw__dots(const float *a, int64_t lda, const float *b, int64_t ldb, int32_t n, int32_t d, float *out)
{
    wnw__vec_at(0)->dots(a, lda, b, ldb, n, d, out);
    wnw__noise("dots", out, n, 1, n);
}

void wnw__triangle_of(const float *lower, int32_t d, float *triangle)
{
    const int32_t rows = wnw__vec_at(0)->panel_rows;
    for (int32_t first = 0; first < d; first += rows)
        for (int32_t c = 0; c < d; c++)
            for (int32_t r = first; r < first + rows; r++)
                *triangle++ = r < d && c <= r ? lower[(int64_t)r * d + c] : 0;
}

/* Sums over the rows of products with the elements of x, or with themselves. */
static void multiply_triangle(const float *t, int32_t d, const float *tiles, int32_t n, bool own, float *out)
{
    const struct wnw__vec *vec = wnw__vec_at(0);
    const int32_t rows = vec->panel_rows;
    float s[WNW_PANEL_MOST * WNW_TILE];
    for (int32_t at = 0; at < n; at += WNW_TILE, tiles += (int64_t)d * WNW_TILE) {
        float sum[WNW_TILE] = {0};
        for (int32_t first = 0; first < d; first += rows) {
            const int32_t here = d - first < rows ? d - first : rows;
            vec->mul_panels(t + (int64_t)first * d, 1, first + here, tiles, s);
            vec->add_products(s, own ? s : tiles + (int64_t)first * WNW_TILE, here, sum);
        }
        memcpy(out + at, sum, (size_t)(n - at < WNW_TILE ? n - at : WNW_TILE) * sizeof *out);
    }
}

void wnw__triangle_forms(const float *triangle, int32_t d, const float *tiles, int32_t n, float *out)
{
    multiply_triangle(triangle, d, tiles, n, false, out);
    wnw__noise("forms", out, n, 1, n);
}

void wnw__triangle_lengths(const float *triangle, int32_t d, const float *tiles, int32_t n, float *out)
{
    multiply_triangle(triangle, d, tiles, n, true, out);
    wnw__noise("lengths", out, n, 1, n);
}

void wnw__gram_add(const float *x, int32_t ld, int32_t d, const float *tile, float *gram)
{
    enum { CHUNK = 48 }; /* whole register blocks of every version */
    const struct wnw__vec *vec = wnw__vec_at(0);
    float one[CHUNK];
    for (int i = 0; i < CHUNK; i++)
        one[i] = 1;
    for (int32_t j = 0; j < d; j += WNW_GRAM_BLOCK)
        for (int32_t i = j; i < d; i += CHUNK)
            vec->accumulate(WNW_KV_F32, tile + (int64_t)i * WNW_TILE, d - i < CHUNK ? d - i : CHUNK, one,
                            x + j, (size_t)ld * sizeof *x, WNW_TILE, WNW_GRAM_BLOCK,
                            gram + wnw__gram_at(d, i, j));
}

void wnw__softmax(float *x, int32_t n)
{
    wnw__vec_at(0)->softmax(x, n);
}

void wnw__pair_tile(const float *x, int32_t n, int32_t d, uint32_t *tile, float *unit, float *room)
{
    const struct wnw__vec *vec = wnw__vec_at(0);
    const size_t row = (size_t)d * sizeof *x;
    float *columns = room + WNW_TILE * (size_t)d;
    if (n < WNW_TILE) {
        memcpy(room, x, (size_t)n * row);
        memset(room + (int64_t)n * d, 0, (size_t)(WNW_TILE - n) * row);
        x = room;
    }
    vec->transpose(x, d, columns);
    vec->pairs_of(columns, d, tile, unit);
}

int32_t wnw__pair_panels(const uint32_t *tile, const float *unit, int32_t n, int32_t d, float scale,
                         uint32_t *panels, float *panel_unit)
{
    const int32_t rows = wnw__pair_rows(), n_pair = (int32_t)WNW_PAIRS(d), n_panel = (n + rows - 1) / rows;
    memset(panels, 0, (size_t)(n_panel * rows * n_pair) * sizeof *panels);
    for (int32_t p = 0; p < n_panel; p++) {
        const int32_t first = p * rows, here = n - first < rows ? n - first : rows;
        for (int32_t k = 0; k < n_pair; k++)
            memcpy(panels + ((int64_t)p * n_pair + k) * rows, tile + (int64_t)k * WNW_TILE + first,
                   (size_t)here * sizeof *panels);
    }
    for (int32_t i = 0; i < n_panel * rows; i++)
        panel_unit[i] = i < n ? scale * unit[i] : 0;
    return n_panel;
}

void wnw__mul_pairs(const uint32_t *panels, const float *panel_unit, int32_t n_panel, int32_t d,
                    const uint32_t *tile, const float *tile_unit, float *out, int64_t ld)
{
    wnw__vec_at(0)->mul_pairs(panels, panel_unit, n_panel, (int32_t)WNW_PAIRS(d), tile, tile_unit, out, ld);
    wnw__noise("pairs", out, ld, n_panel * wnw__pair_rows(), WNW_TILE);
}

int32_t wnw__pair_rows(void)
{
    return wnw__vec_at(0)->pair_rows;
}

void wnw__sum_rows(const float *s, int64_t ld, int32_t rows, float *m, float *l)
{
    wnw__vec_at(0)->sum_rows(s, ld, rows, m, l);
}

void wnw__sum_columns(const float *s, int32_t rows, float *m, float *l)
{
    wnw__vec_at(0)->sum_columns(s, rows, m, l);
}

void wnw__raise_to(float *best, const float *s, int64_t ld, int32_t rows, const float *less)
{
    wnw__vec_at(0)->raise_to(best, s, ld, rows, less);
}

void wnw__exps(float *x, int32_t n)
{
    wnw__vec_at(0)->exps(x, n);
}
