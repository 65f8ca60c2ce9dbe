/* SPDX-License-Identifier: MIT */
#include "bench/peak_kernel.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

enum { N_F32 = 12, N_INT8 = 6 };

static void run_f32(int64_t n)
{
    __m256 sum[N_F32], x = _mm256_set1_ps(1.0f), y = _mm256_set1_ps(1e-9f);
    for (int k = 0; k < N_F32; k++)
        sum[k] = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < N_F32; k++)
            sum[k] = _mm256_fmadd_ps(x, y, sum[k]);
        BENCH_OPAQUE(x);
    }
    for (int k = 0; k < N_F32; k++)
        BENCH_OPAQUE(sum[k]);
}

/* Without VNNI a product of 8-bit numbers takes three instructions. */
static void run_int8(int64_t n)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum[N_INT8], x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(-2);
    for (int k = 0; k < N_INT8; k++)
        sum[k] = _mm256_setzero_si256();
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < N_INT8; k++) {
            BENCH_OPAQUE(x);
            sum[k] = _mm256_add_epi32(sum[k], _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones));
        }
    for (int k = 0; k < N_INT8; k++)
        BENCH_OPAQUE(sum[k]);
}

const struct bench_peak_kernel *bench_peak_avx2(void)
{
    static const struct bench_peak_kernel kernels[] = {{PEAK_F32, "AVX2 FMA", 16.0 * N_F32, run_f32},
                                                       {PEAK_INT8, "AVX2 maddubs", 64.0 * N_INT8, run_int8},
                                                       {0}};
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? kernels : NULL;
}
#else
const struct bench_peak_kernel *bench_peak_avx2(void)
{
    return NULL;
}
#endif
