/* SPDX-License-Identifier: MIT */
/*
 * The kernels of kernel_impl.h for one instruction set, written with the compiler's vector types. No include
 * guard: every kernel_<isa>.c includes it once, after defining
 *   VW, VF, VU           lanes, float vector, uint32 vector
 *   MR, VEC_NAME         query rows per register block, name of the table
 *   v_load v_store v_set1 v_fma v_max v_hmax v_hsum
 *   v_hsum4(out, a, b, c, d)   sums of four vectors
 *   v_load_f16 v_load_i8       VW values -> floats
 *   v_load_nibbles(p, shift)   VW bytes -> (float)((byte >> shift & 15) - 8)
 *   f16_to_f32(uint16_t)       one value
 *   transpose_block            TB x TB floats
 * A register block is MR rows x 2 vectors; WNW_TILE and WNW_TILE_PAD are multiples of 2 * VW.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))

/* ---- Rows of the cache to float ---- */

/* n values */
static void f16_row(const uint16_t *src, int64_t n, float *dst)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW)
        v_store(dst + i, v_load_f16(src + i));
    for (; i < n; i++)
        dst[i] = f16_to_f32(src[i]);
}

/* n blocks { f16 scale; int8 q[32] } */
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

/* n blocks { f16 scale; uint8 q[16] }: low nibbles are values 0..15, high nibbles 16..31 */
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

/* ---- Products ---- */

/* out[r][j] = scale * a[r] . b[j] for mr rows of a and 4 rows of b */
INLINE void dot_block(const int mr, const float *a, const float *b, int32_t d, float scale, float *out,
                      int64_t ld)
{
    VF acc[4][4];
    UNROLL
    for (int r = 0; r < mr; r++)
        UNROLL
    for (int j = 0; j < 4; j++)
        acc[r][j] = v_set1(0.0f);
    int32_t c = 0;
    for (; c + VW <= d; c += VW) {
        const VF b0 = v_load(b + c), b1 = v_load(b + (int64_t)d + c), b2 = v_load(b + 2 * (int64_t)d + c),
                 b3 = v_load(b + 3 * (int64_t)d + c);
        UNROLL
        for (int r = 0; r < mr; r++) {
            const VF av = v_load(a + (int64_t)r * d + c);
            acc[r][0] = v_fma(av, b0, acc[r][0]);
            acc[r][1] = v_fma(av, b1, acc[r][1]);
            acc[r][2] = v_fma(av, b2, acc[r][2]);
            acc[r][3] = v_fma(av, b3, acc[r][3]);
        }
    }
    UNROLL
    for (int r = 0; r < mr; r++) {
        float sum[4];
        v_hsum4(sum, acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
        for (int32_t i = c; i < d; i++)
            for (int j = 0; j < 4; j++)
                sum[j] += a[(int64_t)r * d + i] * b[(int64_t)j * d + i];
        for (int j = 0; j < 4; j++)
            out[(int64_t)r * ld + j] = scale * sum[j];
    }
}

static float dot(const float *a, const float *b, int32_t d)
{
    VF acc = v_set1(0.0f);
    int32_t c = 0;
    for (; c + VW <= d; c += VW)
        acc = v_fma(v_load(a + c), v_load(b + c), acc);
    float sum[4];
    v_hsum4(sum, acc, acc, acc, acc);
    for (; c < d; c++)
        sum[0] += a[c] * b[c];
    return sum[0];
}

static void mul_nt(const float *a, int32_t na, const float *b, int32_t nb, int32_t d, float scale, float *out,
                   int64_t ld)
{
    int32_t j = 0;
    for (; j + 4 <= nb; j += 4) {
        const float *bj = b + (int64_t)j * d;
        int32_t i = 0;
        for (; i + DOT_ROWS <= na; i += DOT_ROWS)
            dot_block(DOT_ROWS, a + (int64_t)i * d, bj, d, scale, out + i * ld + j, ld);
        for (; i < na; i++)
            dot_block(1, a + (int64_t)i * d, bj, d, scale, out + i * ld + j, ld);
    }
    for (; j < nb; j++)
        for (int32_t i = 0; i < na; i++)
            out[i * ld + j] = scale * dot(a + (int64_t)i * d, b + (int64_t)j * d, d);
}

/* acc[r][0..1] = sum_k a[r * rs + k * ks] * b[k * ldb .. + 2 * VW]; the heart of both products */
INLINE void mul_block(const int mr, const float *a, const int rs, const int ks, int32_t n, const float *b,
                      int32_t ldb, VF acc[MR][2])
{
    UNROLL
    for (int r = 0; r < mr; r++)
        acc[r][0] = acc[r][1] = v_set1(0.0f);
    for (int32_t k = 0; k < n; k++) {
        const VF b0 = v_load(b), b1 = v_load(b + VW);
        UNROLL
        for (int r = 0; r < mr; r++) {
            const VF ar = v_set1(a[r * rs]);
            acc[r][0] = v_fma(ar, b0, acc[r][0]);
            acc[r][1] = v_fma(ar, b1, acc[r][1]);
        }
        a += ks;
        b += ldb;
    }
}

static void mul_panels(const float *q, int32_t n_panel, int32_t d, const float *kt, float *s)
{
    for (int32_t j = 0; j < WNW_TILE; j += 2 * VW) {
        for (int32_t p = 0; p < n_panel; p++) {
            VF acc[MR][2];
            float *out = s + (int64_t)p * MR * WNW_TILE + j;
            mul_block(MR, q + (int64_t)p * d * MR, 1, MR, d, kt + j, WNW_TILE, acc);
            UNROLL
            for (int r = 0; r < MR; r++) {
                v_store(out + r * WNW_TILE, acc[r][0]);
                v_store(out + r * WNW_TILE + VW, acc[r][1]);
            }
        }
    }
}

INLINE void accumulate_block(const int mr, const float *p, const float *corr, const float *v, int32_t n,
                             int32_t ld, float *o)
{
    VF acc[MR][2];
    mul_block(mr, p, WNW_TILE, 1, n, v, ld, acc);
    UNROLL
    for (int r = 0; r < mr; r++) {
        float *out = o + (int64_t)r * ld;
        const VF c = v_set1(corr[r]);
        v_store(out, v_fma(v_load(out), c, acc[r][0]));
        v_store(out + VW, v_fma(v_load(out + VW), c, acc[r][1]));
    }
}

static void accumulate(const float *p, int32_t rows, const float *corr, const float *v, int32_t n, int32_t ld,
                       float *o)
{
    for (int32_t j = 0; j < ld; j += 2 * VW) {
        int32_t r = 0, step;
        for (; r < rows; r += step) {
            const float *pr = p + (int64_t)r * WNW_TILE, *cr = corr + r;
            float *out = o + (int64_t)r * ld + j;
            step = rows - r;
            if (step >= MR) {
                step = MR;
                accumulate_block(MR, pr, cr, v + j, n, ld, out);
            } else if (step >= 4) {
                step = 4;
                accumulate_block(4, pr, cr, v + j, n, ld, out);
            } else if (step == 3) {
                accumulate_block(3, pr, cr, v + j, n, ld, out);
            } else if (step == 2) {
                accumulate_block(2, pr, cr, v + j, n, ld, out);
            } else {
                accumulate_block(1, pr, cr, v + j, n, ld, out);
            }
        }
    }
}

/* ---- Softmax ---- */

/*
 * exp(x) for x <= 0, exactly 0 below -87 (the float result would be subnormal soon after). x = n ln 2 + r
 * with |r| <= ln 2 / 2; the polynomial is the Taylor series of e^r to r^7 with the r^7 term folded into lower
 * ones (Chebyshev), relative error about 2e-8 before rounding.
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
    float top = -FLT_MAX, sum = 0.0f, pad[VW];
    const int32_t whole = n - n % VW, rest = n - whole;
    for (int32_t i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    const VF vtop = v_set1(top);
    VF vsum = v_set1(0.0f);
    for (int32_t i = 0; i < whole; i += VW) {
        const VF e = v_exp(v_load(x + i) - vtop);
        vsum += e;
        v_store(x + i, e);
    }
    for (int32_t i = 0; i < VW; i++)
        pad[i] = i < rest ? x[whole + i] : -INFINITY;
    const VF e = v_exp(v_load(pad) - vtop);
    sum = v_hsum(vsum + e);
    const float norm = sum > 0.0f ? 1.0f / sum : 0.0f;
    v_store(pad, e);
    for (int32_t i = 0; i < rest; i++)
        x[whole + i] = pad[i];
    for (int32_t i = 0; i < n; i++)
        x[i] *= norm;
}

static const struct wnw__vec table = {
    .name = VEC_NAME,
    .panel_rows = MR,
    .to_f32 = to_f32,
    .transpose = transpose,
    .mul_nt = mul_nt,
    .mul_panels = mul_panels,
    .softmax_tile = softmax_tile,
    .accumulate = accumulate,
    .softmax = softmax,
};
