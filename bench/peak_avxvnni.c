/* SPDX-License-Identifier: MIT */
#include "bench/peak_kernel.h"

#if defined(__AVXVNNI__)
#include <cpuid.h>
#include <immintrin.h>

enum { N_INT8 = 12 };

static void run_int8(int64_t n)
{
    __m256i sum[N_INT8], x = _mm256_set1_epi8(3), y = _mm256_set1_epi8(-2);
    for (int k = 0; k < N_INT8; k++)
        sum[k] = _mm256_setzero_si256();
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < N_INT8; k++)
            sum[k] = _mm256_dpbusd_avx_epi32(sum[k], x, y);
        BENCH_OPAQUE(x);
    }
    for (int k = 0; k < N_INT8; k++)
        BENCH_OPAQUE(sum[k]);
}

/* Compilers of 2022 do not know this feature by name. */
static int is_usable(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1);
}

const struct bench_peak_kernel *bench_peak_avxvnni(void)
{
    static const struct bench_peak_kernel kernels[] = {{PEAK_INT8, "AVX-VNNI", 64.0 * N_INT8, run_int8}, {0}};
    return is_usable() ? kernels : NULL;
}
#else
const struct bench_peak_kernel *bench_peak_avxvnni(void)
{
    return NULL;
}
#endif
