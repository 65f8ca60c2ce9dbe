/* SPDX-License-Identifier: MIT */
#include "kernel/kernel_impl.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "kernel/kernel_x86.h"

#define VEC_NAME  "avx2"
#define VW        8
#define MR        6
#define DOT_ROWS  3
#define PAIR_ROWS 6
typedef __m256 VF;
typedef uint32_t VU __attribute__((vector_size(32)));

#define v_load(p)      _mm256_loadu_ps(p)
#define v_store(p, v)  _mm256_storeu_ps(p, v)
#define v_set1(x)      _mm256_set1_ps(x)
#define v_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define v_max(a, b)    _mm256_max_ps(a, b)

/* Returns the four sums over the lanes of a, b, c and d. */
static inline __m128 sum4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}
#define v_hsum4(out, a, b, c, d) _mm_storeu_ps(out, sum4(a, b, c, d))

static inline float v_hsum(__m256 v)
{
    __m128 h = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_add_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}

static inline float v_hmax(__m256 v)
{
    __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    h = _mm_max_ps(h, _mm_movehl_ps(h, h));
    return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

static inline __m256 v_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline __m256 v_load_i8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

static inline __m256 v_load_nibbles(const uint8_t *p, int shift)
{
    const __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    const __m256i q = _mm256_and_si256(_mm256_srl_epi32(b, _mm_cvtsi32_si128(shift)), _mm256_set1_epi32(15));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(q, _mm256_set1_epi32(8)));
}

typedef __m256i VS;

/* q8_0: 32 bytes; q4_0: 16 bytes, low nibbles first */
static inline void whole_i16(wnw_kv_type type, const uint8_t *p, __m256i w[2])
{
    const __m128i *b = (const __m128i *)(const void *)p;
    if (type == WNW_KV_Q8_0) {
        w[0] = _mm256_cvtepi8_epi16(_mm_loadu_si128(b));
        w[1] = _mm256_cvtepi8_epi16(_mm_loadu_si128(b + 1));
        return;
    }
    const __m256i q = _mm256_cvtepu8_epi16(_mm_loadu_si128(b)), eight = _mm256_set1_epi16(8);
    w[0] = _mm256_sub_epi16(_mm256_and_si256(q, _mm256_set1_epi16(15)), eight);
    w[1] = _mm256_sub_epi16(_mm256_srli_epi16(q, 4), eight);
}
#define v_whole_i16(type, p, w) whole_i16(type, p, w)

static inline __m256i v_round_i16(__m256 x, __m256 y)
{
    const __m256i p = _mm256_packs_epi32(_mm256_cvtps_epi32(x), _mm256_cvtps_epi32(y));
    return _mm256_permute4x64_epi64(p, 0xd8); /* packs goes by halves */
}

static inline __m256 v_dot_i16(const int16_t *a, const __m256i w[2])
{
    const __m256i *v = (const __m256i *)(const void *)a;
    const __m256i s = _mm256_add_epi32(_mm256_madd_epi16(w[0], _mm256_loadu_si256(v)),
                                       _mm256_madd_epi16(w[1], _mm256_loadu_si256(v + 1)));
    return _mm256_cvtepi32_ps(s);
}

typedef __m256i VA;
#define v_words(p)        _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define v_no_products()   _mm256_setzero_si256()
#define v_sum_products(a) _mm256_cvtepi32_ps(a)

static inline __m256i v_word(uint32_t x)
{
    __m256i w = _mm256_set1_epi32((int)x);
    IN_ORDER(w);
    return w;
}

static inline __m256i v_add_products(__m256i a, __m256i w, __m256i x)
{
    const __m256i p = _mm256_madd_epi16(w, x);
    ADD_IN_PLACE(a, p);
    return a;
}

#include "kernel/kernel_body.h"

const struct wnw__vec *wnw__vec_avx2(void)
{
    return &table;
}
#else
const struct wnw__vec *wnw__vec_avx2(void)
{
    return NULL;
}
#endif
