/* SPDX-License-Identifier: MIT */
#include "bench/peak_kernel.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

enum { N = 16 };

static void run_bf16(int64_t n)
{
    __m512 sum[N], one = _mm512_set1_ps(1.0f);
    __m512bh x = _mm512_cvtne2ps_pbh(one, one), y = x;
    for (int k = 0; k < N; k++)
        sum[k] = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < N; k++)
            sum[k] = _mm512_dpbf16_ps(sum[k], x, y);
        BENCH_OPAQUE_512(x);
    }
    for (int k = 0; k < N; k++)
        BENCH_OPAQUE_512(sum[k]);
}

const struct bench_peak_kernel *bench_peak_avx512bf16(void)
{
    static const struct bench_peak_kernel kernels[] = {{PEAK_BF16, "AVX-512 BF16", 64.0 * N, run_bf16}, {0}};
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16") ? kernels : NULL;
}
#else
const struct bench_peak_kernel *bench_peak_avx512bf16(void)
{
    return NULL;
}
#endif
