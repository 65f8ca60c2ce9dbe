/* SPDX-License-Identifier: MIT */
#include "kernel/matmul.h"

#include <string.h>

/* Asking the CPU itself is slow in virtual machines, and this is asked for often. */
#if !defined(__clang__) || __clang_major__ >= 17
#define HAS_AVXVNNI __builtin_cpu_supports("avxvnni")
#else
#define HAS_AVXVNNI 0 /* a name that the compiler does not know */
#endif

const struct wnw__matmul_kernel *wnw__matmul_at(int i)
{
    const struct wnw__matmul_kernel *usable[4];
    int n = 0;
#if defined(__x86_64__) || defined(__i386__)
    if (wnw__matmul_vnni() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni"))
        usable[n++] = wnw__matmul_vnni();
    if (wnw__matmul_avxvnni() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        HAS_AVXVNNI)
        usable[n++] = wnw__matmul_avxvnni();
    if (wnw__matmul_avx2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        usable[n++] = wnw__matmul_avx2();
#endif
    usable[n++] = wnw__matmul_scalar();
    return i >= 0 && i < n ? usable[i] : NULL;
}

void wnw__matmul_strip(const struct wnw__matmul *p, int32_t i, struct wnw__strip *scratch)
{
    const int32_t first = i * WNW_STRIP, n = p->n_row - first < WNW_STRIP ? p->n_row - first : WNW_STRIP;
    enum { TOKENS = 24 };
    float part[TOKENS][WNW_STRIP]; /* of a strip that is not full */
    for (int32_t c = 0; c < p->k; c += WNW_CHUNK) {
        const int32_t n_col = p->k - c < WNW_CHUNK ? p->k - c : WNW_CHUNK;
        const struct wnw__act *act = p->act + (int64_t)(c / WNW_CHUNK) * p->n_tok;
        float *y = p->y + first;
        p->type->unpack(p->rows + (size_t)first * p->stride, p->stride, n, c, n_col, scratch);
        if (n == WNW_STRIP) {
            p->kernel->multiply(scratch, p->type, n_col, act, p->n_tok, c == 0, y, p->ld);
            continue;
        }
        for (int32_t t = 0; t < p->n_tok; t += TOKENS) {
            const int32_t n_now = p->n_tok - t < TOKENS ? p->n_tok - t : TOKENS;
            for (int32_t k = 0; k < n_now && c > 0; k++)
                memcpy(part[k], y + (t + k) * p->ld, (size_t)n * sizeof *y);
            p->kernel->multiply(scratch, p->type, n_col, act + t, n_now, c == 0, part[0], WNW_STRIP);
            for (int32_t k = 0; k < n_now; k++)
                memcpy(y + (t + k) * p->ld, part[k], (size_t)n * sizeof *y);
        }
    }
}
