/* SPDX-License-Identifier: MIT */
/*
 * Rounding of another CPU, for tests. Files compiled with -DWNW_TEST_NOISE=SEED change every result of a product or an attention
 * by a pseudo-random relative error of bf16's size (tests/kernels.cmake). No other program has anything of it. The error depends on the seed, on
 * the place (what computes, and the index of the element in its row) and on the bits of the result. So a computation that is
 * repeated, by any number of threads and in any batch, has the same result; results of two that differ in the last bit alone
 * are bf16's error from each other.
 */
#ifndef WNW_KERNEL_NOISE_H
#define WNW_KERNEL_NOISE_H

#include "winnow.h"

#ifdef WNW_TEST_NOISE
/* Both change n elements of each of n_row rows, with stride ld. `place` names what computed them. x is element `first` of the
 * first row; without it, elements have no index that every number of threads and every batch leaves. Thread-safe. */
void wnw__noise_at(const char *place, float *x, int64_t ld, int64_t n_row, int64_t first, int64_t n);
void wnw__noise(const char *place, float *x, int64_t ld, int64_t n_row, int64_t n);
#else
static inline void wnw__noise_at(const char *place, float *x, int64_t ld, int64_t n_row, int64_t first,
                                 int64_t n)
{
    (void)place, (void)x, (void)ld, (void)n_row, (void)first, (void)n;
}
static inline void wnw__noise(const char *place, float *x, int64_t ld, int64_t n_row, int64_t n)
{
    (void)place, (void)x, (void)ld, (void)n_row, (void)n;
}
#endif

#endif
