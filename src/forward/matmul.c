/* SPDX-License-Identifier: MIT */
#include "forward/matmul.h"
#include "kernel/matmul.h"

#include <stdatomic.h>
#include <stdlib.h>

struct wnw__matmul_scratch {
    int32_t n_threads;
    struct wnw__matmul_work *work; /* [n_threads] */
    atomic_int next, left;         /* next piece; finished threads, the last of which resets both */
};

int wnw__matmul_new(struct wnw__matmul_scratch **out, int32_t n_threads)
{
    struct wnw__matmul_scratch *p = calloc(1, sizeof *p);
    void *work = NULL;
    *out = NULL;
    /* Where a vector of 64 bytes lies across two lines of the cache, loading it takes twice as long. */
    if (!p || posix_memalign(&work, 64, (size_t)n_threads * sizeof *p->work) != 0) {
        free(p);
        return wnw__fail(WNW_E_NOMEM, "no memory for the products of %d threads", n_threads);
    }
    p->work = work;
    p->n_threads = n_threads;
    *out = p;
    return WNW_OK;
}

void wnw__matmul_free(struct wnw__matmul_scratch *p)
{
    if (p)
        free(p->work);
    free(p);
}

/* ggml is faster for a single token where weights are repacked, and with types of 256 columns a unit: it
 * multiplies their scales as integers, which rounds in another order than ours (decision 028). */
static bool alone(const struct wnw__weight_type *type, bool repacked)
{
    return type->k_unit == 32 && !repacked;
}

bool wnw__matmul_takes(const struct ggml_tensor *w, int64_t n_tok, bool repacked)
{
    const struct wnw__weight_type *type = wnw__weight_type((int32_t)w->type);
    return type && (n_tok > 1 || alone(type, repacked)) && w->ne[0] % type->k_unit == 0 &&
           wnw__matmul_at(1) != NULL;
}

static void input_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    const struct ggml_tensor *x = dst->src[0];
    const int32_t n = (int32_t)x->ne[1];
    (void)userdata;
    for (int32_t t = (int32_t)((int64_t)n * ith / nth); t < (int64_t)n * (ith + 1) / nth; t++)
        wnw__matmul_at(0)->act_from_f32(
            (const float *)(const void *)((const char *)x->data + (size_t)t * x->nb[1]), (int32_t)x->ne[0], n,
            (struct wnw__act *)dst->data + t);
}

struct ggml_tensor *wnw__matmul_input(struct ggml_context *ctx, struct ggml_tensor *x)
{
    struct ggml_tensor *args[1] = {x};
    const int64_t bytes = (int64_t)sizeof(struct wnw__act) * wnw__n_chunks((int32_t)x->ne[0]);
    return ggml_custom_4d(ctx, GGML_TYPE_I8, bytes, x->ne[1], 1, 1, args, 1, input_node, GGML_N_TASKS_MAX,
                          NULL);
}

static void matmul_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    struct wnw__matmul_scratch *p = userdata;
    const struct ggml_tensor *act = dst->src[0], *w = dst->src[1];
    const struct wnw__matmul job = {.kernel = wnw__matmul_at(0),
                                    .type = wnw__weight_type((int32_t)w->type),
                                    .rows = w->data,
                                    .stride = w->nb[1],
                                    .n_row = (int32_t)w->ne[1],
                                    .k = (int32_t)w->ne[0],
                                    .n_tok = (int32_t)dst->ne[1],
                                    .act = act->data,
                                    .y = dst->data,
                                    .ld = dst->ne[0]};
    const int32_t n_piece = wnw__matmul_pieces(&job);
    if (ith < p->n_threads)
        for (int i; (i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < n_piece;)
            wnw__matmul_piece(&job, i, &p->work[ith]);
    if (atomic_fetch_add_explicit(&p->left, 1, memory_order_acq_rel) + 1 < nth)
        return;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->left, 0, memory_order_release);
}

struct ggml_tensor *wnw__matmul_node(struct wnw__matmul_scratch *p, struct ggml_context *ctx,
                                     struct ggml_tensor *w, struct ggml_tensor *input, int64_t n_tok)
{
    struct ggml_tensor *args[2] = {input, w};
    return ggml_custom_4d(ctx, GGML_TYPE_F32, w->ne[1], n_tok, 1, 1, args, 2, matmul_node, GGML_N_TASKS_MAX,
                          p);
}
