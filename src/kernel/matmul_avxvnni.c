/* SPDX-License-Identifier: MIT */
#include "kernel/matmul.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__AVXVNNI__)
#define WNW_DOT(sum, u, q) _mm256_dpbusd_avx_epi32(sum, u, q)
#include "kernel/matmul_256.h"

const struct wnw__matmul_kernel *wnw__matmul_avxvnni(void)
{
    static const struct wnw__matmul_kernel k = {"avx-vnni", wnw__act_row, WNW_MATMUL_UNPACK,
                                                strip,      rows,         WNW_MATMUL_FEW};
    return &k;
}

#else
const struct wnw__matmul_kernel *wnw__matmul_avxvnni(void)
{
    return NULL;
}
#endif
