/* SPDX-License-Identifier: MIT */
/* The kernels without intrinsics, for any CPU: four lanes, which compilers map to SSE2 or NEON. */
#include "kernel/kernel_impl.h"

#define VEC_NAME  "scalar"
#define VW        4
#define MR        6
#define DOT_ROWS  3
#define PAIR_ROWS 4
#define TB        4
typedef float VF __attribute__((vector_size(16)));
typedef uint32_t VU __attribute__((vector_size(16)));

static inline VF v_load(const float *p)
{
    VF v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

static inline void v_store(float *p, VF v)
{
    __builtin_memcpy(p, &v, sizeof v);
}

static inline VF v_set1(float x)
{
    return (VF){x, x, x, x};
}

static inline VF v_fma(VF a, VF b, VF c)
{
    return a * b + c;
}

static inline VF v_max(VF a, VF b)
{
    const VU gt = (VU)(a > b);
    return (VF)((gt & (VU)a) | (~gt & (VU)b));
}

static inline float v_hmax(VF v)
{
    const float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
    return a > b ? a : b;
}

static inline float v_hsum(VF v)
{
    return (v[0] + v[1]) + (v[2] + v[3]);
}

static inline void v_hsum4(float *out, VF a, VF b, VF c, VF d)
{
    out[0] = v_hsum(a);
    out[1] = v_hsum(b);
    out[2] = v_hsum(c);
    out[3] = v_hsum(d);
}

/* An f16's exponent and mantissa, moved to their places in a float, are the value times 2^-112, subnormals
 * included; only infinity and NaN need their exponent set. */
static inline VF f16_lanes(VU h)
{
    const VU bits = (h & 0x7fffu) << 13;
    const VF value = (VF)bits * v_set1(0x1p112f);
    const VU special = (VU)(bits > 0x0f7fffffu) & 0x7f800000u;
    return (VF)((VU)value | special | (h & 0x8000u) << 16);
}

static inline float f16_to_f32(uint16_t h)
{
    return f16_lanes((VU){h, 0, 0, 0})[0];
}

static inline VF v_load_f16(const uint16_t *p)
{
    return f16_lanes((VU){p[0], p[1], p[2], p[3]});
}

static inline VF v_load_i8(const uint8_t *p)
{
    return (VF){(float)(int8_t)p[0], (float)(int8_t)p[1], (float)(int8_t)p[2], (float)(int8_t)p[3]};
}

static inline VF v_load_nibbles(const uint8_t *p, int shift)
{
    VF v;
    for (int i = 0; i < VW; i++)
        v[i] = (float)((p[i] >> shift & 15) - 8);
    return v;
}

static inline void transpose_block(const float *src, int32_t lds, float *dst, int32_t ldd)
{
    for (int i = 0; i < TB; i++)
        for (int j = 0; j < TB; j++)
            dst[i * (int64_t)ldd + j] = src[j * (int64_t)lds + i];
}

typedef int32_t VA __attribute__((vector_size(16)));
typedef VU VS;

static inline VU v_words(const uint32_t *p)
{
    VU v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

static inline VU v_word(uint32_t x)
{
    return (VU){x, x, x, x};
}

static inline VA v_no_products(void)
{
    return (VA){0, 0, 0, 0};
}

static inline VA v_add_products(VA a, VU w, VU x)
{
    return a + ((VA)(w << 16) >> 16) * ((VA)(x << 16) >> 16) + ((VA)w >> 16) * ((VA)x >> 16);
}

static inline VF v_sum_products(VA a)
{
    return (VF){(float)a[0], (float)a[1], (float)a[2], (float)a[3]};
}

#include "kernel/kernel_body.h"

const struct wnw__vec *wnw__vec_scalar(void)
{
    return &table;
}
