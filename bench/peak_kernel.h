/* SPDX-License-Identifier: MIT */
/* One loop of products for each kind of number and instruction set, each in a file that is compiled for it. */
#ifndef WNW_BENCH_PEAK_KERNEL_H
#define WNW_BENCH_PEAK_KERNEL_H

#include "bench/peak.h"

#include <stddef.h>

struct bench_peak_kernel {
    enum bench_peak_kind kind;
    const char *how;
    double ops;             /* per repetition; a multiplication and an addition count one each */
    void (*run)(int64_t n); /* n repetitions */
};

/* The kernels of a file, ended by one without run; NULL if this CPU cannot run them, or the compiler did not
 * know the instructions. */
const struct bench_peak_kernel *bench_peak_scalar(void);
const struct bench_peak_kernel *bench_peak_avx2(void);
const struct bench_peak_kernel *bench_peak_avxvnni(void);
const struct bench_peak_kernel *bench_peak_avx512(void);
const struct bench_peak_kernel *bench_peak_avx512vnni(void);
const struct bench_peak_kernel *bench_peak_avx512bf16(void);

/* Keeps the compiler from computing x before the loop, or not at all. x is a vector. */
#define BENCH_OPAQUE(x)     __asm__ volatile("" : "+x"(x))
#define BENCH_OPAQUE_512(x) __asm__ volatile("" : "+v"(x))

#endif
