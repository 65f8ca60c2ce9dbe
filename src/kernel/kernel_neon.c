/* SPDX-License-Identifier: MIT */
#include "kernel/kernel_impl.h"

#if defined(__aarch64__) && defined(__ARM_NEON)
#include <arm_neon.h>
#include <string.h>

#define VEC_NAME  "neon"
#define VW        4
#define MR        8
#define DOT_ROWS  3
#define PAIR_ROWS 4
#define TB        4
typedef float32x4_t VF;
typedef uint32_t VU __attribute__((vector_size(16)));

#define v_load(p)      vld1q_f32(p)
#define v_store(p, v)  vst1q_f32(p, v)
#define v_set1(x)      vdupq_n_f32(x)
#define v_fma(a, b, c) vfmaq_f32(c, a, b)
#define v_max(a, b)    vmaxq_f32(a, b)
#define v_hmax(v)      vmaxvq_f32(v)
#define v_hsum(v)      vaddvq_f32(v)

static inline void v_hsum4(float *out, VF a, VF b, VF c, VF d)
{
    vst1q_f32(out, vpaddq_f32(vpaddq_f32(a, b), vpaddq_f32(c, d)));
}

static inline float f16_to_f32(uint16_t h)
{
    return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}

static inline VF v_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

/* Four bytes in the lower half. */
static inline uint8x8_t four_bytes(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return vcreate_u8(x);
}

static inline VF v_load_i8(const uint8_t *p)
{
    const int16x8_t w = vmovl_s8(vreinterpret_s8_u8(four_bytes(p)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(w)));
}

static inline VF v_load_nibbles(const uint8_t *p, int shift)
{
    const uint8x8_t q = vand_u8(vshl_u8(four_bytes(p), vdup_n_s8((int8_t)-shift)), vdup_n_u8(15));
    const int16x8_t w = vreinterpretq_s16_u16(vsubl_u8(q, vdup_n_u8(8)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(w)));
}

static inline void transpose_block(const float *src, int32_t lds, float *dst, int32_t ldd)
{
    const int64_t ls = lds, ld = ldd;
    /* pairs of lanes of two rows, then pairs of pairs */
    const float32x4_t a = vld1q_f32(src), b = vld1q_f32(src + ls), c = vld1q_f32(src + 2 * ls),
                      d = vld1q_f32(src + 3 * ls);
    const float64x2_t ab0 = vreinterpretq_f64_f32(vtrn1q_f32(a, b)),
                      ab1 = vreinterpretq_f64_f32(vtrn2q_f32(a, b)),
                      cd0 = vreinterpretq_f64_f32(vtrn1q_f32(c, d)),
                      cd1 = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
    vst1q_f32(dst, vreinterpretq_f32_f64(vtrn1q_f64(ab0, cd0)));
    vst1q_f32(dst + ld, vreinterpretq_f32_f64(vtrn1q_f64(ab1, cd1)));
    vst1q_f32(dst + 2 * ld, vreinterpretq_f32_f64(vtrn2q_f64(ab0, cd0)));
    vst1q_f32(dst + 3 * ld, vreinterpretq_f32_f64(vtrn2q_f64(ab1, cd1)));
}

typedef int16x8_t VS;

/* Products of the words of the lower and of the upper half, whose pairs are added in the end. */
typedef struct {
    int32x4_t low, high;
} VA;

static inline int16x8_t v_words(const uint32_t *p)
{
    return vreinterpretq_s16_u32(vld1q_u32(p));
}

static inline int16x8_t v_word(uint32_t x)
{
    return vreinterpretq_s16_u32(vdupq_n_u32(x));
}

static inline VA v_no_products(void)
{
    return (VA){vdupq_n_s32(0), vdupq_n_s32(0)};
}

static inline VA v_add_products(VA a, int16x8_t w, int16x8_t x)
{
    a.low = vmlal_s16(a.low, vget_low_s16(w), vget_low_s16(x));
    a.high = vmlal_high_s16(a.high, w, x);
    return a;
}

static inline VF v_sum_products(VA a)
{
    return vcvtq_f32_s32(vpaddq_s32(a.low, a.high));
}

#include "kernel/kernel_body.h"

const struct wnw__vec *wnw__vec_neon(void)
{
    return &table;
}
#else
const struct wnw__vec *wnw__vec_neon(void)
{
    return NULL;
}
#endif
