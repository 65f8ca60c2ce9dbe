/* SPDX-License-Identifier: MIT */
/* What the machine can do at most, with the threads in use: bytes read from memory and operations of products
 * per second. */
#ifndef WNW_BENCH_PEAK_H
#define WNW_BENCH_PEAK_H

#include <stdint.h>

enum bench_peak_kind { PEAK_READ, PEAK_F32, PEAK_BF16, PEAK_INT8, N_PEAKS };

struct bench_peak {
    double rate;     /* bytes (PEAK_READ) or operations per second; 0 = the CPU has no such instructions */
    const char *how; /* the instructions, "" if there are none */
};

/* Raises the rates of peaks[N_PEAKS] to what is measured now, on n_threads threads: the best of several short
 * runs, because other load can only slow them down. Starts with {0}; repeated calls find more. Returns an
 * exit code. */
int bench_peaks_measure(struct bench_peak *peaks, int32_t n_threads);
/* "read bandwidth", "float32", "bf16", "int8". */
const char *bench_peak_name(enum bench_peak_kind kind);

#endif
