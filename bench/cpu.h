/* SPDX-License-Identifier: MIT */
/* What the system says of its CPU. */
#ifndef WNW_BENCH_CPU_H
#define WNW_BENCH_CPU_H

#include <stdbool.h>
#include <stddef.h>

/* The value of the first line of /proc/cpuinfo with this key, such as "model name", cut to size - 1 bytes.
 * Returns false, and sets "", where the system has no such line. */
bool bench_cpu_value(char *out, size_t size, const char *key);
/* Writes CPU, number of threads and kernels in one line. */
void bench_describe_machine(char *out, size_t size, int n_threads);

#endif
