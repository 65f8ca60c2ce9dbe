/* SPDX-License-Identifier: MIT */
/*
 * The kernels of kernel_impl.h for one instruction set, written with the compiler's vector types. This file
 * has no include guard: every kernel_<isa>.c includes it once, after defining
 *   VW, VF, VU           lanes, float vector, uint32 vector;
 *   MR, DOT_ROWS         query rows per register block in products over a tile, over stored rows;
 *   VEC_NAME             name of the table;
 *   v_load v_store v_set1 v_fma v_max v_hmax v_hsum;
 *   v_hsum4(out, a, b, c, d)   sums of four vectors;
 *   v_load_f16 v_load_i8       VW values -> floats;
 *   v_load_nibbles(p, shift)   VW bytes -> (float)((byte >> shift & 15) - 8);
 *   f16_to_f32(uint16_t)       one value;
 *   transpose_block            TB x TB floats;
 *   what kernel_pairs.h names
 * A register block is MR rows x 2 vectors; WNW_TILE and WNW_TILE_PAD are multiples of 2 * VW,
 * WNW_TILE of 4 * VW.
 */
#include "kernel/unroll.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- Rows of the cache to float ---- */

/* src: n values */
static void f16_row(const uint16_t *src, int64_t n, float *dst)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW)
        v_store(dst + i, v_load_f16(src + i));
    for (; i < n; i++)
        dst[i] = f16_to_f32(src[i]);
}

/* src: n blocks { f16 scale; int8 q[32] } */
static void q8_0_row(const uint8_t *src, int64_t n, float *dst)
{
    for (int64_t b = 0; b < n; b++, src += 34, dst += 32) {
        uint16_t scale;
        memcpy(&scale, src, sizeof scale);
        const VF s = v_set1(f16_to_f32(scale));
        UNROLL
        for (int i = 0; i < 32; i += VW)
            v_store(dst + i, s * v_load_i8(src + 2 + i));
    }
}

/* src: n blocks { f16 scale; uint8 q[16] }; low nibbles are values 0..15, high nibbles are values 16..31 */
static void q4_0_row(const uint8_t *src, int64_t n, float *dst)
{
    for (int64_t b = 0; b < n; b++, src += 18, dst += 32) {
        uint16_t scale;
        memcpy(&scale, src, sizeof scale);
        const VF s = v_set1(f16_to_f32(scale));
        UNROLL
        for (int i = 0; i < 16; i += VW) {
            v_store(dst + i, s * v_load_nibbles(src + 2 + i, 0));
            v_store(dst + i + 16, s * v_load_nibbles(src + 2 + i, 4));
        }
    }
}

static void row_to_f32(wnw_kv_type type, const uint8_t *src, int64_t n, float *dst)
{
    switch (type) {
    case WNW_KV_F16:
        f16_row((const uint16_t *)(const void *)src, n, dst);
        return;
    case WNW_KV_F32:
        memcpy(dst, src, (size_t)n * sizeof *dst);
        return;
    case WNW_KV_Q8_0:
        q8_0_row(src, n / 32, dst);
        return;
    case WNW_KV_Q4_0:
        q4_0_row(src, n / 32, dst);
        return;
    }
}

static void to_f32(wnw_kv_type type, const void *src, int64_t n, int32_t d, float *dst, int32_t ld)
{
    const uint8_t *row = src;
    if (ld == d) {
        row_to_f32(type, row, n * d, dst);
        return;
    }
    const size_t bytes = wnw__row_bytes(type, d);
    for (int64_t i = 0; i < n; i++, row += bytes, dst += ld) {
        row_to_f32(type, row, d, dst);
        memset(dst + d, 0, (size_t)(ld - d) * sizeof *dst);
    }
}

static void transpose(const float *src, int32_t d, float *dst)
{
    int32_t c = 0;
    for (; c + TB <= d; c += TB)
        for (int32_t j = 0; j < WNW_TILE; j += TB)
            transpose_block(src + (int64_t)j * d + c, d, dst + (int64_t)c * WNW_TILE + j, WNW_TILE);
    for (; c < d; c++)
        for (int32_t j = 0; j < WNW_TILE; j++)
            dst[c * WNW_TILE + j] = src[(int64_t)j * d + c];
}

INLINE VF v_abs(VF x)
{
    return (VF)((VU)x & 0x7fffffffu);
}

/* ---- Products ---- */

/* Up to this number of query rows, four vectors of columns are taken in place of two. */
#define WIDE_ROWS 3

/* Values c .. c+VW-1 of a stored row. `type` is known at compile time, so that only one case is left. */
INLINE VF load_row(const wnw_kv_type type, const uint8_t *row, int32_t c)
{
    uint16_t scale;
    switch (type) {
    case WNW_KV_F16:
        return v_load_f16((const uint16_t *)(const void *)row + c);
    case WNW_KV_Q8_0:
        row += (size_t)(c / 32) * 34;
        memcpy(&scale, row, sizeof scale);
        return v_set1(f16_to_f32(scale)) * v_load_i8(row + 2 + c % 32);
    case WNW_KV_Q4_0:
        row += (size_t)(c / 32) * 18;
        memcpy(&scale, row, sizeof scale);
        return v_set1(f16_to_f32(scale)) * v_load_nibbles(row + 2 + c % 16, c % 32 / 16 * 4);
    case WNW_KV_F32:
        break;
    }
    return v_load((const float *)(const void *)row + c);
}

/* Types in blocks of 32 values with one scale. All values of load_row are v_scale * v_whole there. */
INLINE bool is_blocked(const wnw_kv_type type)
{
    return type == WNW_KV_Q8_0 || type == WNW_KV_Q4_0;
}

/* The scale of the block of value c. */
INLINE VF v_scale(const wnw_kv_type type, const uint8_t *row, int32_t c)
{
    uint16_t scale;
    memcpy(&scale, row + (size_t)(c / 32) * (type == WNW_KV_Q8_0 ? 34 : 18), sizeof scale);
    return v_set1(f16_to_f32(scale));
}

/* Values c + i .. c + i + VW - 1 without their scale; c is the first of a block. */
INLINE VF v_whole(const wnw_kv_type type, const uint8_t *row, int32_t c, const int i)
{
    if (type == WNW_KV_Q8_0)
        return v_load_i8(row + (size_t)(c / 32) * 34 + 2 + i);
    return v_load_nibbles(row + (size_t)(c / 32) * 18 + 2 + i % 16, i / 16 * 4);
}

/* Values c .. c + VW - 1 without their scale. */
INLINE VF v_whole_at(const wnw_kv_type type, const uint8_t *row, int32_t c)
{
    if (type == WNW_KV_Q8_0)
        return v_load_i8(row + (size_t)(c / 32) * 34 + 2 + c % 32);
    return v_load_nibbles(row + (size_t)(c / 32) * 18 + 2 + c % 16, c % 32 / 16 * 4);
}

/* load_row is row_scale, the same in 32 columns from a multiple of 32 on, times whole_row. */
INLINE VF row_scale(const wnw_kv_type type, const uint8_t *row, int32_t c)
{
    return is_blocked(type) ? (VF)v_scale(type, row, c) : (VF)v_set1(1.0f);
}

INLINE VF whole_row(const wnw_kv_type type, const uint8_t *row, int32_t c)
{
    return is_blocked(type) ? (VF)v_whole_at(type, row, c) : (VF)load_row(type, row, c);
}

/* `from` is a number, not a pointer, because it may lie past the end of the arena, where prefetching has no
 * effect. */
INLINE void prefetch(uintptr_t from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch((const void *)(from + i), 0, 2);
}

/* One value of an unquantised row. */
INLINE float load_one(const wnw_kv_type type, const uint8_t *row, int32_t c)
{
    return type == WNW_KV_F16 ? f16_to_f32(((const uint16_t *)(const void *)row)[c])
                              : ((const float *)(const void *)row)[c];
}

/* ar[r] = values c .. c + VW - 1 of row r of a */
INLINE void load_rows(const int mr, const float *a, int32_t d, VF ar[DOT_ROWS])
{
    UNROLL
    for (int r = 0; r < mr; r++)
        ar[r] = v_load(a + (int64_t)r * d);
}

/* acc[r][j] += ar[r] * b. One row of b at a time, because four would leave no registers for the sums: one that lies
 * in memory costs more than all products. */
INLINE void dot_step(const int mr, const VF ar[DOT_ROWS], VF b, const int j, VF acc[DOT_ROWS][4])
{
    UNROLL
    for (int r = 0; r < mr; r++)
        acc[r][j] = v_fma(ar[r], b, acc[r][j]);
}

/* sum[r][j] = a[r] . b[j] for mr rows of a[mr][d] and four stored rows. Unless it is 0, as many bytes as they have are asked
 * for from `next` on, step by step: many requests at once would keep the rows waiting. */
INLINE void dot_block(const wnw_kv_type type, const int mr, const float *a, const uint8_t *const b[4],
                      int32_t d, uintptr_t next, float sum[DOT_ROWS][4])
{
    const size_t share = 4 * wnw__row_bytes(type, is_blocked(type) ? 32 : VW);
    const bool ahead = next != 0;
    VF acc[DOT_ROWS][4];
    UNROLL
    for (int r = 0; r < mr; r++)
        acc[r][0] = acc[r][1] = acc[r][2] = acc[r][3] = v_set1(0.0f);
    int32_t c = 0;
    for (; is_blocked(type) && c < d; c += 32, next += share) {
        if (ahead)
            prefetch(next, share);
        VF scale[4], ar[DOT_ROWS];
        UNROLL
        for (int j = 0; j < 4; j++)
            scale[j] = v_scale(type, b[j], c);
        UNROLL
        for (int i = 0; i < 32; i += VW) {
            load_rows(mr, a + c + i, d, ar);
            UNROLL
            for (int j = 0; j < 4; j++)
                dot_step(mr, ar, scale[j] * v_whole(type, b[j], c, i), j, acc);
        }
    }
    for (; c + VW <= d; c += VW, next += share) {
        VF ar[DOT_ROWS];
        if (ahead)
            prefetch(next, share);
        load_rows(mr, a + c, d, ar);
        UNROLL
        for (int j = 0; j < 4; j++)
            dot_step(mr, ar, load_row(type, b[j], c), j, acc);
    }
    UNROLL
    for (int r = 0; r < mr; r++) {
        v_hsum4(sum[r], acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
        for (int32_t i = c; i < d; i++)
            for (int j = 0; j < 4; j++)
                sum[r][j] += a[(int64_t)r * d + i] * load_one(type, b[j], i);
    }
}

/* Writes scale * sum of nj <= 4 stored rows to `out`, with stride ld between its rows. */
INLINE void write_sums(float sum[DOT_ROWS][4], int32_t mr, int32_t nj, float scale, float *out, int64_t ld)
{
    for (int32_t r = 0; r < mr; r++, out += ld) {
        if (nj == 4) { /* one vector */
            UNROLL
            for (int j = 0; j < 4; j++)
                out[j] = scale * sum[r][j];
        } else {
            for (int32_t j = 0; j < nj; j++)
                out[j] = scale * sum[r][j];
        }
    }
}

/* Sets bj to the stored rows j .. j + 3, past the end the last one again, and returns how many there are. */
INLINE int32_t four_rows(const uint8_t *b, size_t stride, int32_t nb, int32_t j, const uint8_t *bj[4])
{
    const int32_t nj = nb - j < 4 ? nb - j : 4;
    for (int32_t i = 0; i < 4; i++)
        bj[i] = b + (size_t)(j + (i < nj ? i : nj - 1)) * stride;
    return nj;
}

INLINE void mul_rows_of(const wnw_kv_type type, const float *a, int32_t na, const uint8_t *b, size_t stride,
                        int32_t nb, int32_t d, float scale, float *out, int64_t ld)
{
    for (int32_t j = 0; j < nb; j += 4) {
        const uint8_t *bj[4];
        const int32_t nj = four_rows(b, stride, nb, j, bj);
        /* The hardware prefetcher does not look far ahead, so the first rows of a ask for the same rows of the next
         * tile. */
        const uintptr_t next = (uintptr_t)bj[0] + WNW_TILE * stride;
        for (int32_t i = 0, step; i < na; i += step) {
            const float *ai = a + (int64_t)i * d;
            float sum[DOT_ROWS][4];
            step = na - i < DOT_ROWS ? na - i : DOT_ROWS;
            if (step == DOT_ROWS)
                dot_block(type, DOT_ROWS, ai, bj, d, i == 0 ? next : 0, sum);
            else if (step == 3)
                dot_block(type, 3, ai, bj, d, i == 0 ? next : 0, sum);
            else if (step == 2)
                dot_block(type, 2, ai, bj, d, i == 0 ? next : 0, sum);
            else
                dot_block(type, 1, ai, bj, d, i == 0 ? next : 0, sum);
            write_sums(sum, step, nj, scale, out + i * ld + j, ld);
        }
    }
}

#ifdef v_whole_i16
#include "kernel/kernel_i16.h"
#else
#define mul_blocked_rows mul_rows_of
#endif

static void mul_rows(wnw_kv_type type, const float *a, int32_t na, const void *b, size_t stride, int32_t nb,
                     int32_t d, float scale, float *out, int64_t ld)
{
    switch (type) {
    case WNW_KV_F16:
        mul_rows_of(WNW_KV_F16, a, na, b, stride, nb, d, scale, out, ld);
        return;
    case WNW_KV_F32:
        mul_rows_of(WNW_KV_F32, a, na, b, stride, nb, d, scale, out, ld);
        return;
    case WNW_KV_Q8_0:
        mul_blocked_rows(WNW_KV_Q8_0, a, na, b, stride, nb, d, scale, out, ld);
        return;
    case WNW_KV_Q4_0:
        mul_blocked_rows(WNW_KV_Q4_0, a, na, b, stride, nb, d, scale, out, ld);
        return;
    }
}

/* acc[r][i] = sum_k a[r * rs + k * ks] * (row k of b)[c + i * VW ..] for nv vectors; the heart of both products. Unless
 * `ahead` is 0, memory `ahead` bytes after each row is prefetched, step by step. Many requests at once would delay the
 * rows. */
INLINE void mul_block(const wnw_kv_type type, const int mr, const int nv, const float *a, const int rs,
                      const int ks, int32_t n, const uint8_t *b, size_t stride, int32_t c, const size_t ahead,
                      VF acc[MR][4])
{
    UNROLL
    for (int r = 0; r < mr; r++) {
        UNROLL
        for (int i = 0; i < nv; i++)
            acc[r][i] = v_set1(0.0f);
    }
    for (int32_t k = 0; k < n; k++) {
        VF few[4]; /* of a or of b, whichever are fewer: both and the sums do not fit into registers */
        if (ahead) /* every line of it: the processor does not ask for the second half of a row by itself */
            prefetch((uintptr_t)b + ahead, wnw__row_bytes(type, nv * VW));
        if (mr < nv) {
            UNROLL
            for (int i = 0; i < nv; i++) {
                const VF bi = whole_row(type, b, c + i * VW);
                if (i * VW % 32 == 0) {
                    const VF scale = row_scale(type, b, c + i * VW);
                    UNROLL
                    for (int r = 0; r < mr; r++)
                        few[r] = scale * a[r * rs];
                }
                UNROLL
                for (int r = 0; r < mr; r++)
                    acc[r][i] = v_fma(few[r], bi, acc[r][i]);
            }
        } else {
            VF scale = row_scale(type, b, c);
            UNROLL
            for (int i = 0; i < nv; i++) {
                if (i > 0 && i * VW % 32 == 0)
                    scale = row_scale(type, b, c + i * VW);
                few[i] = scale * whole_row(type, b, c + i * VW);
            }
            UNROLL
            for (int r = 0; r < mr; r++) {
                const VF ar = v_set1(a[r * rs]);
                UNROLL
                for (int i = 0; i < nv; i++)
                    acc[r][i] = v_fma(ar, few[i], acc[r][i]);
            }
        }
        a += ks;
        b += stride;
    }
}

static void mul_panels(const float *q, int32_t n_panel, int32_t d, const float *kt, float *s)
{
    for (int32_t j = 0; j < WNW_TILE; j += 2 * VW) {
        for (int32_t p = 0; p < n_panel; p++) {
            VF acc[MR][4];
            float *out = s + (int64_t)p * MR * WNW_TILE + j;
            mul_block(WNW_KV_F32, MR, 2, q + (int64_t)p * d * MR, 1, MR, d, (const uint8_t *)(const void *)kt,
                      WNW_TILE * sizeof *kt, j, 0, acc);
            UNROLL
            for (int r = 0; r < MR; r++) {
                v_store(out + r * WNW_TILE, acc[r][0]);
                v_store(out + r * WNW_TILE + VW, acc[r][1]);
            }
        }
    }
}

static void add_abs(const float *q, int32_t n_panel, int32_t d, const float *kt, float *sum)
{
    for (int32_t j = 0; j < WNW_TILE; j += 2 * VW) {
        VF s0 = v_load(sum + j), s1 = v_load(sum + j + VW);
        for (int32_t p = 0; p < n_panel; p++) {
            VF acc[MR][4];
            mul_block(WNW_KV_F32, MR, 2, q + (int64_t)p * d * MR, 1, MR, d, (const uint8_t *)(const void *)kt,
                      WNW_TILE * sizeof *kt, j, 0, acc);
            VF a0 = v_abs(acc[0][0]), a1 = v_abs(acc[0][1]);
            UNROLL
            for (int r = 1; r < MR; r++) {
                a0 += v_abs(acc[r][0]);
                a1 += v_abs(acc[r][1]);
            }
            s0 += a0;
            s1 += a1;
        }
        v_store(sum + j, s0);
        v_store(sum + j + VW, s1);
    }
}

static void dots(const float *a, int64_t lda, const float *b, int64_t ldb, int32_t n, int32_t d, float *out)
{
    for (int32_t i = 0; i < n; i += 4) {
        const int32_t here = n - i < 4 ? n - i : 4;
        const float *x[4], *y[4];
        float sum[4];
        VF acc[4];
        int32_t c = 0;
        UNROLL
        for (int j = 0; j < 4; j++) {
            const int32_t row = i + (j < here ? j : here - 1);
            x[j] = a + row * lda;
            y[j] = b + row * ldb;
            acc[j] = v_set1(0.0f);
        }
        for (; c + VW <= d; c += VW) {
            UNROLL
            for (int j = 0; j < 4; j++)
                acc[j] = v_fma(v_load(x[j] + c), v_load(y[j] + c), acc[j]);
        }
        v_hsum4(sum, acc[0], acc[1], acc[2], acc[3]);
        for (; c < d; c++)
            for (int j = 0; j < 4; j++)
                sum[j] += x[j][c] * y[j][c];
        for (int32_t j = 0; j < here; j++)
            out[i + j] = sum[j];
    }
}

static void add_products(const float *a, const float *b, int32_t rows, float *sum)
{
    for (int32_t j = 0; j < WNW_TILE; j += 4 * VW) {
        VF acc[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            acc[i] = v_load(sum + j + i * VW);
        for (int32_t r = 0; r < rows; r++) {
            const float *x = a + (int64_t)r * WNW_TILE + j, *y = b + (int64_t)r * WNW_TILE + j;
            UNROLL
            for (int i = 0; i < 4; i++)
                acc[i] = v_fma(v_load(x + i * VW), v_load(y + i * VW), acc[i]);
        }
        UNROLL
        for (int i = 0; i < 4; i++)
            v_store(sum + j + i * VW, acc[i]);
    }
}

INLINE void accumulate_block(const wnw_kv_type type, const int mr, const int nv, const float *p,
                             const float *corr, const uint8_t *v, size_t stride, int32_t n, int32_t c,
                             int32_t ld, const size_t ahead, float *o)
{
    VF acc[MR][4];
    mul_block(type, mr, nv, p, WNW_TILE, 1, n, v, stride, c, ahead, acc);
    UNROLL
    for (int r = 0; r < mr; r++) {
        float *out = o + (int64_t)r * ld + c;
        const VF f = v_set1(corr[r]);
        UNROLL
        for (int i = 0; i < nv; i++)
            v_store(out + i * VW, v_fma(v_load(out + i * VW), f, acc[r][i]));
    }
}

INLINE void accumulate_of(const wnw_kv_type type, const float *p, int32_t rows, const float *corr,
                          const uint8_t *v, size_t stride, int32_t n, int32_t ld, float *o)
{
#define BLOCK(mr, nv) accumulate_block(type, mr, nv, pr, corr + r, v, stride, n, c, ld, ahead, out)
    for (int32_t c = 0, columns; c < ld; c += columns) {
        /* To the next tile, as in mul_rows_of. An F32 tile is mostly a converted one, in the cache already. */
        const size_t ahead = type == WNW_KV_F32 ? 0 : WNW_TILE * stride + (size_t)c * stride / (size_t)ld;
        /* Few rows leave registers for more columns, which share what is loaded for a row of v. */
        const bool wide = rows <= WIDE_ROWS && c + 4 * VW <= ld;
        columns = (wide ? 4 : 2) * VW;
        for (int32_t r = 0, step; r < rows; r += step) {
            const float *pr = p + (int64_t)r * WNW_TILE;
            float *out = o + (int64_t)r * ld;
            step = wide ? rows : rows - r;
            if (wide && rows == 3) {
                BLOCK(3, 4);
            } else if (wide && rows == 2) {
                BLOCK(2, 4);
            } else if (wide) {
                BLOCK(1, 4);
            } else if (step >= MR) {
                step = MR;
                BLOCK(MR, 2);
            } else if (step >= 5) {
                step = 5;
                BLOCK(5, 2);
            } else if (step == 4) {
                BLOCK(4, 2);
            } else if (step == 3) {
                BLOCK(3, 2);
            } else if (step == 2) {
                BLOCK(2, 2);
            } else {
                BLOCK(1, 2);
            }
        }
    }
#undef BLOCK
}

static void accumulate(wnw_kv_type type, const float *p, int32_t rows, const float *corr, const void *v,
                       size_t stride, int32_t n, int32_t ld, float *o)
{
    switch (type) {
    case WNW_KV_F16:
        accumulate_of(WNW_KV_F16, p, rows, corr, v, stride, n, ld, o);
        return;
    case WNW_KV_F32:
        accumulate_of(WNW_KV_F32, p, rows, corr, v, stride, n, ld, o);
        return;
    case WNW_KV_Q8_0:
        accumulate_of(WNW_KV_Q8_0, p, rows, corr, v, stride, n, ld, o);
        return;
    case WNW_KV_Q4_0:
        accumulate_of(WNW_KV_Q4_0, p, rows, corr, v, stride, n, ld, o);
        return;
    }
}

/* ---- Softmax ---- */

/*
 * exp(x) for x <= 0; the result is exactly 0 below -87 (a little further down a float would be subnormal). x
 * is n ln 2 + r with |r| <= ln 2 / 2. The polynomial is the Taylor series of e^r to r^7 with the r^7 term
 * folded into lower ones (Chebyshev); its relative error is about 2e-8 before rounding.
 */
INLINE VF v_exp(VF x)
{
    const VF floor_x = v_set1(-87.0f);
    const VF shift = v_set1(12582912.0f); /* 1.5 * 2^23: leaves the rounded integer in the low bits */
    const VF xc = v_max(x, floor_x);
    const VF t = v_fma(xc, v_set1(1.44269504f), shift);
    const VF n = t - shift;
    const VF r = v_fma(n, v_set1(2.12194440e-4f), v_fma(n, v_set1(-0.693359375f), xc));
    VF p = v_set1(1.38888889e-3f);
    p = v_fma(p, r, v_set1(8.37503930e-3f));
    p = v_fma(p, r, v_set1(4.16666667e-2f));
    p = v_fma(p, r, v_set1(1.66664162e-1f));
    p = v_fma(p, r, v_set1(0.5f));
    p = v_fma(p, r, v_set1(1.0f));
    p = v_fma(p, r, v_set1(1.0f));
    const VF pow2 = (VF)(((VU)t << 23) + 0x3f800000u);
    return (VF)((VU)(p * pow2) & (VU)(x > floor_x));
}

static void softmax_tile(float *s, int32_t rows, float *m, float *l, float *corr)
{
    for (int32_t r = 0; r < rows; r++) {
        const float *x = s + (int64_t)r * WNW_TILE;
        VF a = v_load(x);
        UNROLL
        for (int j = VW; j < WNW_TILE; j += VW)
            a = v_max(a, v_load(x + j));
        const float top = v_hmax(a);
        corr[r] = top > m[r] ? top : m[r];
    }
    for (int32_t r = 0; r < rows; r += VW) {
        const VF top = v_load(corr + r);
        const VF c = v_exp(v_load(m + r) - top);
        v_store(m + r, top);
        v_store(l + r, v_load(l + r) * c);
        v_store(corr + r, c);
    }
    for (int32_t r = 0; r < rows; r++) {
        float *x = s + (int64_t)r * WNW_TILE;
        const VF top = v_set1(m[r]);
        VF sum = v_set1(0.0f);
        UNROLL
        for (int j = 0; j < WNW_TILE; j += VW) {
            const VF e = v_exp(v_load(x + j) - top);
            sum += e;
            v_store(x + j, e);
        }
        l[r] += v_hsum(sum);
    }
}

static void softmax(float *x, int32_t n)
{
    float pad[VW];
    const int32_t whole = n - n % VW, rest = n - whole;
    for (int32_t i = 0; i < VW; i++)
        pad[i] = i < rest ? x[whole + i] : -INFINITY;
    VF vtop = v_max(v_set1(-FLT_MAX), v_load(pad));
    for (int32_t i = 0; i < whole; i += VW)
        vtop = v_max(vtop, v_load(x + i));
    vtop = v_set1(v_hmax(vtop));
    VF vsum = v_set1(0.0f);
    for (int32_t i = 0; i < whole; i += VW) {
        const VF e = v_exp(v_load(x + i) - vtop);
        vsum += e;
        v_store(x + i, e);
    }
    const VF e = v_exp(v_load(pad) - vtop);
    const float sum = v_hsum(vsum + e);
    const VF norm = v_set1(sum > 0.0f ? 1.0f / sum : 0.0f);
    for (int32_t i = 0; i < whole; i += VW)
        v_store(x + i, v_load(x + i) * norm);
    v_store(pad, e * norm);
    for (int32_t i = 0; i < rest; i++)
        x[whole + i] = pad[i];
}

static void column_tile(const float *s, int32_t rows, const float *m, const float *norm, float *sum,
                        float *max)
{
    for (int32_t j = 0; j < WNW_TILE; j += 2 * VW) {
        VF sum0 = v_load(sum + j), sum1 = v_load(sum + j + VW);
        VF max0 = v_load(max + j), max1 = v_load(max + j + VW);
        for (int32_t r = 0; r < rows; r++) {
            const float *x = s + (int64_t)r * WNW_TILE + j;
            const VF top = v_set1(m[r]), f = v_set1(norm[r]);
            const VF p0 = v_exp(v_load(x) - top) * f, p1 = v_exp(v_load(x + VW) - top) * f;
            sum0 += p0;
            sum1 += p1;
            max0 = v_max(max0, p0);
            max1 = v_max(max1, p1);
        }
        v_store(sum + j, sum0);
        v_store(sum + j + VW, sum1);
        v_store(max + j, max0);
        v_store(max + j + VW, max1);
    }
}

static void row_factors(const float *then, const float *m, const float *norm, int32_t n, float *factor)
{
    for (int32_t i = 0; i < n; i += VW)
        v_store(factor + i, v_exp(v_load(then + i) - v_load(m + i)) * v_load(norm + i));
}

/* `max` is known at compile time to be NULL or not. */
INLINE void add_columns_of(const float *p, int32_t n, int32_t step, const float *factor, float *sum,
                           float *max)
{
    for (int32_t j = 0; j < WNW_TILE; j += 4 * VW) {
        VF total[4], top[4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            total[i] = v_load(sum + j + i * VW);
            top[i] = max ? v_load(max + j + i * VW) : v_set1(0.0f);
        }
        for (int32_t r = 0; r < n * step; r += step) {
            const float *x = p + (int64_t)r * WNW_TILE + j;
            const VF f = v_set1(factor[r]);
            UNROLL
            for (int i = 0; i < 4; i++) {
                const VF q = v_load(x + i * VW) * f;
                total[i] += q;
                top[i] = max ? v_max(top[i], q) : top[i];
            }
        }
        UNROLL
        for (int i = 0; i < 4; i++) {
            v_store(sum + j + i * VW, total[i]);
            if (max)
                v_store(max + j + i * VW, top[i]);
        }
    }
}

static void add_columns(const float *p, int32_t n, int32_t step, const float *factor, float *sum, float *max)
{
    if (max)
        add_columns_of(p, n, step, factor, sum, max);
    else
        add_columns_of(p, n, step, factor, sum, NULL);
}

#include "kernel/kernel_pairs.h"

/* ---- Rows between products ---- */

static void rms_norm(const float *x, const float *w, int32_t n, float eps, float *out)
{
    VF a = v_set1(0.0f), b = a;
    for (int32_t i = 0; i < n; i += 2 * VW) {
        const VF u = v_load(x + i), v = v_load(x + i + VW);
        a = v_fma(u, u, a);
        b = v_fma(v, v, b);
    }
    const VF scale = v_set1(1.0f / sqrtf(v_hsum(a + b) / (float)n + eps));
    for (int32_t i = 0; i < n; i += VW)
        v_store(out + i, v_load(x + i) * scale * v_load(w + i));
}

/* From exp(-|gate|), which cannot become infinite. */
static void swiglu(const float *gate, const float *up, int32_t n, float *out)
{
    for (int32_t i = 0; i < n; i += VW) {
        const VF g = v_load(gate + i), e = v_exp(-v_abs(g));
        const VU below = (VU)(g < v_set1(0.0f));
        const VF over = (VF)((below & (VU)(g * e)) | (~below & (VU)g));
        v_store(out + i, v_load(up + i) * (over / (e + v_set1(1.0f))));
    }
}

#include "kernel/kernel_hadamard.h"

static const struct wnw__vec table = {
    .name = VEC_NAME,
    .panel_rows = MR,
    .pair_rows = PAIR_ROWS,
    .to_f32 = to_f32,
    .hadamard = hadamard,
    .transpose = transpose,
    .mul_rows = mul_rows,
    .mul_panels = mul_panels,
    .add_abs = add_abs,
    .softmax_tile = softmax_tile,
    .accumulate = accumulate,
    .softmax = softmax,
    .column_tile = column_tile,
    .row_factors = row_factors,
    .add_columns = add_columns,
    .dots = dots,
    .add_products = add_products,
    .pairs_of = pairs_of,
    .mul_pairs = mul_pairs,
    .sum_rows = sum_rows,
    .sum_columns = sum_columns,
    .raise_to = raise_to,
    .exps = exps,
    .rms_norm = rms_norm,
    .swiglu = swiglu,
};
