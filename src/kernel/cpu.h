/* SPDX-License-Identifier: MIT */
/* What each kind of kernel wants of a CPU. The functions name the first feature that this one lacks, NULL if it has
 * all. Features are taken from the compiler's runtime, which asks the CPU once: asking it is slow in virtual machines,
 * and kernels are looked up often. */
#ifndef WNW_KERNEL_CPU_H
#define WNW_KERNEL_CPU_H

#include <stddef.h>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#if defined(__x86_64__) || defined(__i386__)

static inline const char *wnw__cpu_lacks_avx2(void)
{
    if (!__builtin_cpu_supports("avx2"))
        return "avx2";
    return __builtin_cpu_supports("fma") ? NULL : "fma";
}

static inline const char *wnw__cpu_lacks_avxvnni(void)
{
    if (wnw__cpu_lacks_avx2())
        return wnw__cpu_lacks_avx2();
#if !defined(__clang__) || __clang_major__ >= 17
    return __builtin_cpu_supports("avxvnni") ? NULL : "avx_vnni";
#else
    return "avx_vnni"; /* the compiler does not know the name */
#endif
}

/* What all kernels for AVX-512 want. */
static inline const char *wnw__cpu_lacks_avx512bwvl(void)
{
    if (!__builtin_cpu_supports("avx512f"))
        return "avx512f";
    if (!__builtin_cpu_supports("avx512bw"))
        return "avx512bw";
    return __builtin_cpu_supports("avx512vl") ? NULL : "avx512vl";
}

static inline const char *wnw__cpu_lacks_avx512(void)
{
    const char *lacks = wnw__cpu_lacks_avx512bwvl();
    if (!lacks && !__builtin_cpu_supports("avx512dq"))
        lacks = "avx512dq";
    return lacks;
}

static inline const char *wnw__cpu_lacks_avx512bf16(void)
{
    const char *lacks = wnw__cpu_lacks_avx512bwvl();
    if (!lacks && !__builtin_cpu_supports("avx512bf16"))
        lacks = "avx512_bf16";
    return lacks;
}

static inline const char *wnw__cpu_lacks_avx512vnni(void)
{
    const char *lacks = wnw__cpu_lacks_avx512bwvl();
    if (!lacks && !__builtin_cpu_supports("avx512vnni"))
        lacks = "avx512_vnni";
    return lacks;
}

#elif defined(__aarch64__)

/* Linux tells what a CPU has; elsewhere the compiler knows, as for Apple's. */
static inline const char *wnw__cpu_lacks_dotprod(void)
{
#if defined(__linux__)
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? NULL : "asimddp";
#elif defined(__ARM_FEATURE_DOTPROD)
    return NULL;
#else
    return "asimddp";
#endif
}

#endif

#endif
