/* SPDX-License-Identifier: MIT */
/* Products with NEON's dot product of signed bytes. Values up to 63 are the same as signed bytes; those of Q8_0 become signed,
 * and m has the rest. */
#include "kernel/matmul.h"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#include "kernel/matmul_types.h"
#include "kernel/unroll.h"

#include <arm_neon.h>

/* ---- Activations ---- */

static void act_block(const float *x, struct wnw__act *a, int32_t b)
{
    uint32x4_t top = vdupq_n_u32(0);
    UNROLL
    for (int i = 0; i < 32; i += 4)
        top = vmaxq_u32(top, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x7fffffff)));
    float by;
    a->scale[b] = wnw__act_scale(vmaxvq_u32(top), &by);
    int32_t sum[2];
    UNROLL
    for (int h = 0; h < 2; h++) {
        int32x4_t v[4];
        UNROLL
        for (int i = 0; i < 4; i++)
            v[i] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 16 * h + 4 * i), by));
        const int16x8_t low = vcombine_s16(vqmovn_s32(v[0]), vqmovn_s32(v[1])),
                        high = vcombine_s16(vqmovn_s32(v[2]), vqmovn_s32(v[3]));
        const int8x16_t some = vdupq_n_s8(by > 0.0f ? -1 : 0); /* what is not finite gives 0 */
        const int8x16_t q = vandq_s8(vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)), some);
        vst1q_s8(a->q + 32 * b + 16 * h, q);
        sum[h] = vaddlvq_s8(q);
        a->sum16[2 * b + h] = a->scale[b] * (float)sum[h];
    }
    a->sum32[b] = a->scale[b] * (float)(sum[0] + sum[1]);
}

static void act_row(const float *x, int32_t k, int32_t n_tok, struct wnw__act *act)
{
    for (int32_t c = 0; c < k; c += 32)
        act_block(x + c, act + (int64_t)(c / WNW_CHUNK) * n_tok, c % WNW_CHUNK / 32);
}

/* ---- Strips ---- */

enum { TILE_ROWS = 16, TILE_VECTORS = TILE_ROWS / 4, TILE_TOKENS = 4 };

INLINE int8x16_t signed_bytes(const uint8_t *p, const bool bytes)
{
    const uint8x16_t u = vld1q_u8(p);
    return vreinterpretq_s8_u8(bytes ? veorq_u8(u, vdupq_n_u8(128)) : u);
}

/* m, and 128 d where values became signed. */
INLINE float32x4_t rest_of(float32x4_t d, float32x4_t m, const bool bytes)
{
    return bytes ? vfmaq_n_f32(m, d, 128.0f) : m;
}

/* Computes sum[t][v] of n tokens and 16 rows over `block` columns. */
INLINE void dot(const struct wnw__strip *s, const int block, const bool bytes, int32_t r0, int32_t c,
                const struct wnw__act *act, const int n, int32x4_t sum[TILE_TOKENS][TILE_VECTORS])
{
    UNROLL
    for (int t = 0; t < n; t++) {
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++)
            sum[t][v] = vdupq_n_s32(0);
    }
    UNROLL
    for (int from = 0; from < block; from += 16) {
        int8x16_t q[TILE_TOKENS];
        UNROLL
        for (int t = 0; t < n; t++)
            q[t] = vld1q_s8(act[t].q + c + from);
/* Four columns, those of lane i of q; the instruction takes a constant alone. */
#define LANE(i)                                                                          \
    UNROLL                                                                               \
    for (int v = 0; v < TILE_VECTORS; v++) {                                             \
        const int8x16_t w = signed_bytes(s->u[(c + from) / 4 + (i)][r0 + 4 * v], bytes); \
        UNROLL                                                                           \
        for (int t = 0; t < n; t++)                                                      \
            sum[t][v] = vdotq_laneq_s32(sum[t][v], w, q[t], i);                          \
    }
        LANE(0)
        LANE(1)
        LANE(2)
        LANE(3)
#undef LANE
    }
}

INLINE void tile(const struct wnw__strip *s, const int block, const bool bytes, int32_t r0, int32_t n_block,
                 const struct wnw__act *act, const int n, const float *before, float *y, int64_t ld)
{
    for (int32_t b = 0; b < n_block; b++) {
        int32x4_t sum[TILE_TOKENS][TILE_VECTORS];
        dot(s, block, bytes, r0, b * block, act, n, sum);
        UNROLL
        for (int v = 0; v < TILE_VECTORS; v++) {
            const int32_t r = r0 + 4 * v;
            const float32x4_t d = vld1q_f32(s->d[b] + r), m = rest_of(d, vld1q_f32(s->m[b] + r), bytes);
            UNROLL
            for (int t = 0; t < n; t++) {
                const float rest = block == 32 ? act[t].sum32[b] : act[t].sum16[b];
                float *out = y + t * ld + r;
                float32x4_t f = vdupq_n_f32(0.0f);
                if (b > 0)
                    f = vld1q_f32(out);
                else if (before)
                    f = vld1q_f32(before + t * WNW_STRIP + r);
                f = vfmaq_f32(f, vcvtq_f32_s32(sum[t][v]), vmulq_n_f32(d, act[t].scale[b * block / 32]));
                vst1q_f32(out, vfmaq_n_f32(f, m, rest));
            }
        }
    }
}

INLINE void all(const struct wnw__strip *s, const int block, const bool bytes, int32_t n_col,
                const struct wnw__act *act, int32_t n_tok, const float *before, float *y, int64_t ld)
{
    for (int32_t t = 0, n; t < n_tok; t += n) {
        const float *sums = before ? before + t * WNW_STRIP : NULL;
        n = n_tok - t >= TILE_TOKENS ? TILE_TOKENS : 1;
        for (int32_t r0 = 0; r0 < WNW_STRIP; r0 += TILE_ROWS)
            if (n == TILE_TOKENS)
                tile(s, block, bytes, r0, n_col / block, act + t, TILE_TOKENS, sums, y + t * ld, ld);
            else
                tile(s, block, bytes, r0, n_col / block, act + t, 1, sums, y + t * ld, ld);
    }
}

static void strip(const struct wnw__strip *s, const struct wnw__weight_type *type, int32_t n_col,
                  const struct wnw__act *act, int32_t n_tok, const float *before, float *y, int64_t ld)
{
    if (type->block == 16)
        all(s, 16, false, n_col, act, n_tok, before, y, ld);
    else if (type->u_max <= 63)
        all(s, 32, false, n_col, act, n_tok, before, y, ld);
    else
        all(s, 32, true, n_col, act, n_tok, before, y, ld);
}

/* ---- Sixteen rows ---- */

/* Adds one block to f; its lanes are rows 4 v .. 4 v + 3. */
INLINE float32x4_t add_block(float32x4_t f, const struct wnw__rows *s, const int block, const bool bytes,
                             int32_t b, int v, const struct wnw__act *act)
{
    int32x4_t sum[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        sum[i] = vdupq_n_s32(0);
        UNROLL
        for (int from = 0; from < block; from += 16)
            sum[i] = vdotq_s32(
                sum[i], signed_bytes(s->u[(b * block + from) / 16][wnw__slot_of_row(4 * v + i)], bytes),
                vld1q_s8(act->q + b * block + from));
    }
    const int32x4_t total = vpaddq_s32(vpaddq_s32(sum[0], sum[1]), vpaddq_s32(sum[2], sum[3]));
    const float32x4_t d = vld1q_f32(s->d[b] + 4 * v), m = rest_of(d, vld1q_f32(s->m[b] + 4 * v), bytes);
    f = vfmaq_f32(f, vcvtq_f32_s32(total), vmulq_n_f32(d, act->scale[b * block / 32]));
    return vfmaq_n_f32(f, m, block == 32 ? act->sum32[b] : act->sum16[b]);
}

INLINE void rows_of(const struct wnw__rows *s, const int block, const bool bytes, int32_t n_col,
                    const struct wnw__act *act, int32_t n_tok, bool first, int32_t n_row, float *y,
                    int64_t ld)
{
    for (int32_t t = 0; t < n_tok; t++) {
        float out[WNW_ROWS] = {0};
        if (!first)
            memcpy(out, y + t * ld, (size_t)n_row * sizeof *out);
        for (int v = 0; v < WNW_ROWS / 4; v++) {
            float32x4_t f = vld1q_f32(out + 4 * v);
            for (int32_t b = 0; b < n_col / block; b++)
                f = add_block(f, s, block, bytes, b, v, act + t);
            vst1q_f32(out + 4 * v, f);
        }
        memcpy(y + t * ld, out, (size_t)n_row * sizeof *out);
    }
}

static void rows(const struct wnw__rows *s, const struct wnw__weight_type *type, int32_t n_col,
                 const struct wnw__act *act, int32_t n_tok, bool first, int32_t n_row, float *y, int64_t ld)
{
    if (type->block == 16)
        rows_of(s, 16, false, n_col, act, n_tok, first, n_row, y, ld);
    else if (type->u_max <= 63)
        rows_of(s, 32, false, n_col, act, n_tok, first, n_row, y, ld);
    else
        rows_of(s, 32, true, n_col, act, n_tok, first, n_row, y, ld);
}

const struct wnw__matmul_kernel *wnw__matmul_neondot(void)
{
    static const struct wnw__matmul_kernel k = {"neon-dotprod", act_row, WNW_MATMUL_UNPACK,
                                                strip,          rows,    {NULL}};
    return &k;
}

#else
const struct wnw__matmul_kernel *wnw__matmul_neondot(void)
{
    return NULL;
}
#endif
