/* SPDX-License-Identifier: MIT */
#include "kernel/matmul.h"

#if defined(__AVX2__) && defined(__FMA__)
#include "kernel/matmul_256.h"

const struct wnw__matmul_kernel *wnw__matmul_avx2(void)
{
    static const struct wnw__matmul_kernel k = {"avx2", wnw__act_row, WNW_MATMUL_UNPACK,
                                                strip,  rows,         WNW_MATMUL_FEW};
    return &k;
}

#else
const struct wnw__matmul_kernel *wnw__matmul_avx2(void)
{
    return NULL;
}
#endif
