/* SPDX-License-Identifier: MIT */
/*
 * Compiled with -DWNW_TEST_NOISE alone. What ggml computes, in our graphs or libllama's, is reached through its own
 * ggml_graph_compute: the dynamic linker takes the program's function of that name first, also for calls from inside of ggml's
 * libraries. It runs a copy of the graph in which each product and each attention is followed by a node that changes its result.
 */
#include "kernel/noise.h"

#include "base/random.h"
#include "base/tensor_row.h"

#include <dlfcn.h>
#include <ggml-cpu.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* bf16 has 8 bits of precision, so that rounding to it changes a number by up to 2^-9 of it. */
#define SIZE 0x1p-9f

/* The seed that this was compiled with, or that of the environment. */
static uint64_t seed(void)
{
    const char *text = getenv("WNW_TEST_NOISE");
    return text && *text ? strtoull(text, NULL, 0) : WNW_TEST_NOISE;
}

static float changed(uint64_t stream, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return x + x * SIZE * (2 * wnw__uniform(stream, bits) - 1);
}

/* Most of what noise costs is here. Wider registers compute the same bits, for C11 allows no fused products. */
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && __GNUC__ >= 12
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "default")))
#else
#define WIDE
#endif

/* c: the index of x[0] in its row. */
WIDE static void change(uint64_t place, float *x, int64_t c, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = changed(wnw__mix(place ^ (uint64_t)(c + i)), x[i]);
}

static uint64_t place_of_name(const char *name)
{
    return wnw__mix(seed()) ^ wnw__hash_of(name, strlen(name));
}

void wnw__noise_at(const char *place, float *x, int64_t ld, int64_t n_row, int64_t first, int64_t n)
{
    const uint64_t at = place_of_name(place);
    for (int64_t r = 0; r < n_row; r++)
        change(at, x + r * ld, first, n);
}

void wnw__noise(const char *place, float *x, int64_t ld, int64_t n_row, int64_t n)
{
    const uint64_t stream = place_of_name(place);
    for (int64_t r = 0; r < n_row; r++)
        for (int64_t i = 0; i < n; i++)
            x[r * ld + i] = changed(stream, x[r * ld + i]);
}

/* ---- ggml's products and attention ---- */

/* Of ggml's kernels some take rows of a batch together, others one at a time. */
static uint64_t place_of_node(const struct ggml_tensor *node)
{
    return wnw__mix(wnw__mix(seed()) ^ (uint64_t)node->op << 32 ^ (uint64_t)node->src[0]->type << 24) ^
           (uint64_t)node->src[1]->ne[1] << 32;
}

/* The source is the node whose rows, of all its dimensions, are changed in place. */
static void noise_node(struct ggml_tensor *dst, const struct ggml_tensor *node, int ith, int nth, void *user)
{
    const int64_t n = ggml_nrows(node);
    const uint64_t place = place_of_node(node);
    (void)dst;
    (void)user;
    for (int64_t r = n * ith / nth; r < n * (ith + 1) / nth; r++)
        change(place, (float *)(void *)wnw__tensor_row(node, r), 0, node->ne[0]);
}

static bool is_computed(const struct ggml_tensor *node)
{
    return (node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_MUL_MAT_ID ||
            node->op == GGML_OP_FLASH_ATTN_EXT) &&
           node->type == GGML_TYPE_F32 && node->data && node->nb[0] == sizeof(float) && !ggml_is_empty(node);
}

__attribute__((visibility("default"))) enum ggml_status ggml_graph_compute(struct ggml_cgraph *graph,
                                                                           struct ggml_cplan *plan)
{
    enum ggml_status (*compute)(struct ggml_cgraph *, struct ggml_cplan *);
    const int n = ggml_graph_n_nodes(graph);
    size_t n_computed = 0;
    *(void **)&compute = dlsym(RTLD_NEXT, "ggml_graph_compute");
    for (int i = 0; i < n; i++)
        n_computed += is_computed(ggml_graph_node(graph, i));
    if (n_computed == 0)
        return compute(graph, plan);
    const size_t n_nodes = (size_t)n + n_computed;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){
        .mem_size = ggml_graph_overhead_custom(n_nodes, false) + (n_computed + 1) * ggml_tensor_overhead(),
        .no_alloc = true});
    if (!ctx) {
        fputs("no memory for the noise of a test build\n", stderr);
        abort(); /* a test that went on would show nothing */
    }
    struct ggml_cgraph *noisy = ggml_new_graph_custom(ctx, n_nodes, false);
    for (int i = 0; i < n; i++) {
        struct ggml_tensor *node = ggml_graph_node(graph, i);
        ggml_graph_add_node(noisy, node);
        if (is_computed(node)) {
            struct ggml_tensor *after =
                ggml_map_custom1_inplace(ctx, node, noise_node, GGML_N_TASKS_MAX, NULL);
            after->flags = node->flags;
            ggml_graph_add_node(noisy, after);
        }
    }
    const enum ggml_status status = compute(noisy, plan);
    ggml_free(ctx);
    return status;
}
