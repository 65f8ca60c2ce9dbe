/* SPDX-License-Identifier: MIT */
#include "bench/peak_kernel.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>

enum { N = 16 };

static void run_int8(int64_t n)
{
    __m512i sum[N], x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(-2);
    for (int k = 0; k < N; k++)
        sum[k] = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < N; k++)
            sum[k] = _mm512_dpbusd_epi32(sum[k], x, y);
        BENCH_OPAQUE_512(x);
    }
    for (int k = 0; k < N; k++)
        BENCH_OPAQUE_512(sum[k]);
}

const struct bench_peak_kernel *bench_peak_avx512vnni(void)
{
    static const struct bench_peak_kernel kernels[] = {{PEAK_INT8, "AVX-512 VNNI", 128.0 * N, run_int8}, {0}};
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni") ? kernels : NULL;
}
#else
const struct bench_peak_kernel *bench_peak_avx512vnni(void)
{
    return NULL;
}
#endif
