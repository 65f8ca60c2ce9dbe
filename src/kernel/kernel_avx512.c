/* SPDX-License-Identifier: MIT */
#include "kernel/kernel_impl.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__) && \
    defined(__FMA__) && defined(__F16C__)
#include "kernel/kernel_avx512.h"
#include "kernel/kernel_x86.h"

#define VEC_NAME  "avx512"
#define VW        16
#define MR        12
#define DOT_ROWS  4
#define PAIR_ROWS 12
typedef __m512 VF;
typedef uint32_t VU __attribute__((vector_size(64)));

#define v_load(p)      _mm512_loadu_ps(p)
#define v_store(p, v)  _mm512_storeu_ps(p, v)
#define v_set1(x)      _mm512_set1_ps(x)
#define v_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define v_max(a, b)    _mm512_max_ps(a, b)

#define v_hsum4(out, a, b, c, d) _mm_storeu_ps(out, sum4(a, b, c, d))

static inline float v_hsum(__m512 v)
{
    const __m256 q = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(q), _mm256_extractf128_ps(q, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}

static inline float v_hmax(__m512 v)
{
    const __m256 q = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(q), _mm256_extractf128_ps(q, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

static inline __m512 v_load_i8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

static inline __m512 v_load_nibbles(const uint8_t *p, int shift)
{
    const __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m512i q = _mm512_and_si512(_mm512_srl_epi32(b, _mm_cvtsi32_si128(shift)), _mm512_set1_epi32(15));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(q, _mm512_set1_epi32(8)));
}

typedef __m512i VS;
typedef __m512i VA;
#define v_words(p)        _mm512_loadu_si512(p)
#define v_no_products()   _mm512_setzero_si512()
#define v_sum_products(a) _mm512_cvtepi32_ps(a)

static inline __m512i v_word(uint32_t x)
{
    __m512i w = _mm512_set1_epi32((int)x);
    IN_ORDER(w);
    return w;
}

static inline __m512i v_add_products(__m512i a, __m512i w, __m512i x)
{
    const __m512i p = _mm512_madd_epi16(w, x);
    ADD_IN_PLACE(a, p);
    return a;
}

#include "kernel/kernel_body.h"

const struct wnw__vec *wnw__vec_avx512(void)
{
    return &table;
}
#else
const struct wnw__vec *wnw__vec_avx512(void)
{
    return NULL;
}
#endif
