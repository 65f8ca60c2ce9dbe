/* SPDX-License-Identifier: MIT */
/*
 * In front of main: a sentence where the CPU lacks what ggml was compiled for. An illegal instruction would end the process later. ggml's
 * libraries may have such instructions in what runs before main, so this runs before them, in the .preinit_array that only programs have.
 * It is linked into executables, and compiled for the baseline of x86-64. CMakeLists.txt takes the features from what ggml's CMake package
 * says of its build. A ggml that chooses at run time, or that was built for one machine, says none.
 */
#if defined(__x86_64__) && defined(WNW_GGML_FEATURES)

#include <cpuid.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* Where a CPU says that it has a feature. */
struct feature {
    const char *name; /* as /proc/cpuinfo has it */
    unsigned leaf;
    enum { EBX, ECX } in;
    unsigned bit;
    bool of_avx; /* the system must keep its registers, too */
};

#define FEATURE(...) \
    {                \
        __VA_ARGS__  \
    }
#define SSE42       FEATURE("sse4_2", 1, ECX, 20, false)
#define AVX         FEATURE("avx", 1, ECX, 28, true)
#define AVX2        FEATURE("avx2", 7, EBX, 5, true)
#define FMA         FEATURE("fma", 1, ECX, 12, true)
#define F16C        FEATURE("f16c", 1, ECX, 29, true)
#define BMI2        FEATURE("bmi2", 7, EBX, 8, false)
#define AVX512      FEATURE("avx512f", 7, EBX, 16, true)
#define AVX512_VBMI FEATURE("avx512_vbmi", 7, ECX, 1, true)
#define AVX512_VNNI FEATURE("avx512_vnni", 7, ECX, 11, true)
static const struct feature features[] = {WNW_GGML_FEATURES};
enum { N_FEATURE = sizeof features / sizeof *features };

/* Whether the system keeps the upper halves of registers. The instruction that says it is only there with OSXSAVE: nothing may move it. */
static bool keeps_avx(unsigned ecx)
{
    enum { OSXSAVE = 27, XMM_AND_YMM = 6 };
    uint32_t low, high;
    if (!(ecx >> OSXSAVE & 1))
        return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & XMM_AND_YMM) == XMM_AND_YMM;
}

static bool has(const struct feature *f)
{
    unsigned a, b, c, d, first;
    if (!__get_cpuid(1, &a, &b, &first, &d))
        return false;
    if (f->of_avx && !keeps_avx(first))
        return false;
    return __get_cpuid_count(f->leaf, 0, &a, &b, &c, &d) && ((f->in == EBX ? b : c) >> f->bit & 1);
}

/* The C library has not begun either: what is called here needs nothing of it. */
static void say(const char *text)
{
    const ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written; /* there is nobody else to tell */
}

static void need_cpu(void)
{
    int n = 0;
    for (int i = 0; i < N_FEATURE; i++)
        if (!has(&features[i])) {
            say(n++ == 0 ? "winnow: this CPU has no " : ", ");
            say(features[i].name);
        }
    if (n == 0)
        return;
    say(", which this program was compiled for; build winnow on this machine\n");
    _exit(1);
}

__attribute__((section(".preinit_array"), used)) static void (*first)(void) = need_cpu;

#else
typedef int wnw__nothing_to_check; /* ISO C has no empty file */
#endif
