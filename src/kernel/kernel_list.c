/* SPDX-License-Identifier: MIT */
/* Which kernels there are, and why the better ones are not in use. */
#include "base/err.h"
#include "kernel/bf16.h"
#include "kernel/cpu.h"
#include "kernel/kernel_impl.h"
#include "kernel/matmul.h"
#include "kernel/score8.h"
#include "winnow_study.h"

enum { MOST_KERNELS = 16 };

struct list {
    wnw_kernel_info k[MOST_KERNELS];
    int32_t n;
};

/* Adds a kernel; the best of its work comes first. */
static void add(struct list *list, const char *work, const char *name, bool built, const char *lacks)
{
    bool used = built && !lacks;
    for (int32_t i = 0; i < list->n; i++)
        used = used && !(list->k[i].used && strcmp(list->k[i].work, work) == 0);
    list->k[list->n++] =
        (wnw_kernel_info){.work = work, .name = name, .lacks = lacks, .built = built, .used = used};
}

static const char *either(const char *lacks, const char *lacks_too)
{
    return lacks ? lacks : lacks_too;
}

/* The same choices as in wnw__vec_at, wnw__bf16_at, wnw__score8_at and wnw__matmul_at, which have no names for what
 * they pass over. */
static void fill(struct list *list)
{
    static const char prompts[] = "attention of prompts", far[] = "far scores", weights[] = "weights",
                      attention[] = "attention";
    *list = (struct list){.n = 0};
#if defined(__x86_64__) || defined(__i386__)
    const char *avx2 = wnw__cpu_lacks_avx2(), *avx512 = wnw__cpu_lacks_avx512(),
               *vnni = wnw__cpu_lacks_avx512vnni();
    add(list, attention, "avx512", wnw__vec_avx512() != NULL, avx512);
    add(list, attention, "avx2", wnw__vec_avx2() != NULL, avx2);
    add(list, attention, "scalar", true, NULL);
    add(list, prompts, "avx512-bf16", wnw__bf16_avx512() != NULL, wnw__cpu_lacks_avx512bf16());
    add(list, far, "avx512-vnni", wnw__score8_avx512() != NULL, either(avx512, vnni));
    add(list, weights, "avx512-vnni", wnw__matmul_avx512vnni() != NULL, vnni);
    add(list, weights, "avx-vnni", wnw__matmul_avxvnni() != NULL, wnw__cpu_lacks_avxvnni());
    add(list, weights, "avx2", wnw__matmul_avx2() != NULL, avx2);
#else
    (void)prompts;
    (void)far;
    (void)either;
#if defined(__aarch64__)
    add(list, attention, "neon", wnw__vec_neon() != NULL, NULL);
    add(list, weights, "neon-dotprod", wnw__matmul_neondot() != NULL, wnw__cpu_lacks_dotprod());
#endif
    add(list, attention, "scalar", true, NULL);
#endif
    add(list, weights, "scalar", true, NULL);
}

int32_t wnw_n_kernels(void)
{
    struct list list;
    fill(&list);
    return list.n;
}

int wnw_kernel_get(int32_t i, wnw_kernel_info *out)
{
    struct list list;
    wnw_kernel_info info = {.work = "", .name = ""};
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_kernel_info, out));
    fill(&list);
    if (i >= 0 && i < list.n)
        info = list.k[i];
    wnw__sized_give(out, &info);
    return i >= 0 && i < list.n ? WNW_OK
                                : wnw__fail(WNW_E_ARG, "there is no kernel %d; there are %d", i, list.n);
}
