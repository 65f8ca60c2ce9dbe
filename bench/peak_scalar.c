/* SPDX-License-Identifier: MIT */
#include "bench/peak_kernel.h"

enum { LANES = 16 };

/* What the compiler makes of plain C for the baseline of the architecture. */
static void run_f32(int64_t n)
{
    volatile float a = 1.0f, b = 1e-9f;
    const float x = a, y = b;
    float sum[LANES] = {0};
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < LANES; k++)
            sum[k] = sum[k] * x + y;
    for (int k = 0; k < LANES; k++)
        a = sum[k];
}

const struct bench_peak_kernel *bench_peak_scalar(void)
{
    static const struct bench_peak_kernel kernels[] = {{PEAK_F32, "plain C", 2.0 * LANES, run_f32}, {0}};
    return kernels;
}
