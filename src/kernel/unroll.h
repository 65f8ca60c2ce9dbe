/* SPDX-License-Identifier: MIT */
/* How kernels ask compilers to keep arrays of vectors in registers: by loops of at most 16 turns, all of them unrolled. An
 * array that a longer loop fills stays in memory. */
#ifndef WNW_UNROLL_H
#define WNW_UNROLL_H

#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))

#endif
