/* SPDX-License-Identifier: MIT */
#include "forward/matmul.h"
#include "kernel/matmul.h"

#include <stdatomic.h>
#include <stdlib.h>

/* What belongs to one thread. Where a vector of 64 bytes lies across two lines of the cache, loading it takes twice as long. */
struct lane {
    _Alignas(64) struct wnw__matmul_work work;
    _Alignas(64) atomic_int next[WNW_MATMUL_TOGETHER]; /* pieces taken of its share of each product */
    struct wnw__act *act;                              /* of a single token */
};

struct wnw__matmul_scratch {
    int32_t n_threads;
    struct lane *lane;    /* [n_threads] */
    struct wnw__act *act; /* of all lanes */
    atomic_int left;      /* finished threads, the last of which resets all counters */
};

static void reset(struct wnw__matmul_scratch *p)
{
    for (int32_t i = 0; i < p->n_threads; i++)
        for (int k = 0; k < WNW_MATMUL_TOGETHER; k++)
            atomic_store_explicit(&p->lane[i].next[k], 0, memory_order_relaxed);
    atomic_store_explicit(&p->left, 0, memory_order_release);
}

int wnw__matmul_new(struct wnw__matmul_scratch **out, int32_t n_threads, int64_t max_k)
{
    struct wnw__matmul_scratch *p = calloc(1, sizeof *p);
    void *lanes = NULL;
    *out = NULL;
    if (!p || posix_memalign(&lanes, _Alignof(struct lane), (size_t)n_threads * sizeof *p->lane) != 0)
        goto fail;
    p->lane = lanes;
    p->n_threads = n_threads;
    const size_t n_act = (size_t)((max_k + WNW_CHUNK - 1) / WNW_CHUNK);
    if (!(p->act = calloc((size_t)n_threads * n_act, sizeof *p->act)))
        goto fail;
    for (int32_t i = 0; i < n_threads; i++)
        p->lane[i].act = p->act + (size_t)i * n_act;
    reset(p);
    *out = p;
    return WNW_OK;
fail:
    wnw__matmul_free(p);
    return wnw__fail(WNW_E_NOMEM, "no memory for the products of %d threads", n_threads);
}

void wnw__matmul_free(struct wnw__matmul_scratch *p)
{
    if (!p)
        return;
    free(p->lane);
    free(p->act);
    free(p);
}

/* ggml is faster for a single token where weights are repacked, and with types of 256 columns a unit: it
 * multiplies their scales as integers, which rounds in another order than ours (decision 028). */
static bool alone(const struct wnw__weight_type *type, bool repacked)
{
    return type->k_unit == 32 && !repacked && wnw__matmul_at(0)->few[type->id];
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
    if (x->ne[1] == 1)
        return x;
    return ggml_custom_4d(ctx, GGML_TYPE_I8, bytes, x->ne[1], 1, 1, args, 1, input_node, GGML_N_TASKS_MAX,
                          NULL);
}

/* Computes what is left of share i of n of product k. */
static void take_share(struct wnw__matmul_scratch *p, const struct wnw__matmul *job, int k, int32_t i,
                       int32_t n, struct wnw__matmul_work *work)
{
    const int64_t n_piece = wnw__matmul_pieces(job);
    const int32_t first = (int32_t)(n_piece * i / n), end = (int32_t)(n_piece * (i + 1) / n);
    atomic_int *next = &p->lane[i].next[k];
    for (int32_t at; (at = first + atomic_fetch_add_explicit(next, 1, memory_order_relaxed)) < end;)
        wnw__matmul_piece(job, at, work);
}

/* The activations of a node for thread `ith`. */
static const struct wnw__act *acts_of(const struct ggml_tensor *input, int64_t n_tok, struct lane *lane)
{
    if (n_tok > 1)
        return input->data;
    wnw__matmul_at(0)->act_from_f32(input->data, (int32_t)input->ne[0], 1, lane->act);
    return lane->act;
}

/* A thread begins with its own share of each product, whose rows lie one behind the other as its prefetching expects, and then
 * helps the others. */
static void matmul_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    struct wnw__matmul_scratch *p = userdata;
    const int32_t n_share = nth < p->n_threads ? nth : p->n_threads;
    if (ith < n_share) {
        struct lane *lane = &p->lane[ith];
        struct wnw__matmul job = {.kernel = wnw__matmul_at(0),
                                  .n_tok = (int32_t)dst->ne[1],
                                  .act = acts_of(dst->src[0], dst->ne[1], lane),
                                  .y = dst->data,
                                  .ld = dst->ne[0]};
        for (int k = 0; k < WNW_MATMUL_TOGETHER && dst->src[1 + k]; k++, job.y += job.n_row) {
            const struct ggml_tensor *w = dst->src[1 + k];
            job.type = wnw__weight_type((int32_t)w->type);
            job.rows = w->data;
            job.stride = w->nb[1];
            job.n_row = (int32_t)w->ne[1];
            job.k = (int32_t)w->ne[0];
            for (int32_t i = 0; i < n_share; i++)
                take_share(p, &job, k, (ith + i) % n_share, n_share, &lane->work);
        }
    }
    if (atomic_fetch_add_explicit(&p->left, 1, memory_order_acq_rel) + 1 == nth)
        reset(p);
}

struct ggml_tensor *wnw__matmul_node(struct wnw__matmul_scratch *p, struct ggml_context *ctx,
                                     struct ggml_tensor *const *w, int n_w, struct ggml_tensor *input,
                                     int64_t n_tok)
{
    struct ggml_tensor *args[1 + WNW_MATMUL_TOGETHER] = {input};
    int64_t n_row = 0;
    for (int i = 0; i < n_w; i++) {
        args[1 + i] = w[i];
        n_row += w[i]->ne[1];
    }
    return ggml_custom_4d(ctx, GGML_TYPE_F32, n_row, n_tok, 1, 1, args, 1 + n_w, matmul_node,
                          GGML_N_TASKS_MAX, p);
}
