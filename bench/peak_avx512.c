/* SPDX-License-Identifier: MIT */
#include "bench/peak_kernel.h"

#if defined(__AVX512F__)
#include <immintrin.h>

enum { N = 16 };

static void run_f32(int64_t n)
{
    __m512 sum[N], x = _mm512_set1_ps(1.0f), y = _mm512_set1_ps(1e-9f);
    for (int k = 0; k < N; k++)
        sum[k] = _mm512_setzero_ps();
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < N; k++)
            sum[k] = _mm512_fmadd_ps(x, y, sum[k]);
        BENCH_OPAQUE_512(x);
    }
    for (int k = 0; k < N; k++)
        BENCH_OPAQUE_512(sum[k]);
}

const struct bench_peak_kernel *bench_peak_avx512(void)
{
    static const struct bench_peak_kernel kernels[] = {{PEAK_F32, "AVX-512 FMA", 32.0 * N, run_f32}, {0}};
    return __builtin_cpu_supports("avx512f") ? kernels : NULL;
}
#else
const struct bench_peak_kernel *bench_peak_avx512(void)
{
    return NULL;
}
#endif
