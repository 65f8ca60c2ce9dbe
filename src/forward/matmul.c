/* SPDX-License-Identifier: MIT */
#include "forward/matmul.h"
#include "kernel/kernel_impl.h"
#include "kernel/matmul.h"

#include <stdatomic.h>
#include <stdlib.h>

/* What belongs to one thread. Where a vector of 64 bytes lies across two lines of the cache, loading it takes twice as long. */
struct lane {
    _Alignas(64) struct wnw__matmul_work work;
    _Alignas(64) atomic_int next[WNW_MATMUL_TOGETHER]; /* pieces taken of its share of each product */
    struct wnw__act *act;                              /* of a single token */
    float *row;                                        /* a row of an operand */
};

struct wnw__matmul_scratch {
    int32_t n_threads;
    struct lane *lane;    /* [n_threads] */
    struct wnw__act *act; /* of all lanes */
    float *row;           /* of all lanes */
    float rms_eps;
    atomic_int left; /* finished threads; the last one resets all counters */
};

static void reset(struct wnw__matmul_scratch *p)
{
    for (int32_t i = 0; i < p->n_threads; i++)
        for (int k = 0; k < WNW_MATMUL_TOGETHER; k++)
            atomic_store_explicit(&p->lane[i].next[k], 0, memory_order_relaxed);
    atomic_store_explicit(&p->left, 0, memory_order_release);
}

int wnw__matmul_new(struct wnw__matmul_scratch **out, int32_t n_threads, int64_t max_k, float rms_eps)
{
    struct wnw__matmul_scratch *p = calloc(1, sizeof *p);
    void *lanes = NULL;
    *out = NULL;
    if (!p || posix_memalign(&lanes, _Alignof(struct lane), (size_t)n_threads * sizeof *p->lane) != 0)
        goto fail;
    p->lane = lanes;
    p->n_threads = n_threads;
    p->rms_eps = rms_eps;
    const size_t n_act = (size_t)((max_k + WNW_CHUNK - 1) / WNW_CHUNK), n_row = n_act * WNW_CHUNK;
    p->act = calloc((size_t)n_threads * n_act, sizeof *p->act);
    p->row = calloc((size_t)n_threads * n_row, sizeof *p->row);
    if (!p->act || !p->row)
        goto fail;
    for (int32_t i = 0; i < n_threads; i++) {
        p->lane[i].act = p->act + (size_t)i * n_act;
        p->lane[i].row = p->row + (size_t)i * n_row;
    }
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
    free(p->row);
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

bool wnw__matmul_takes_by_eight(const struct ggml_tensor *w, int64_t n_tok)
{
    return w->type == GGML_TYPE_Q4_K && n_tok >= WNW_MANY && w->ne[0] % WNW_CHUNK == 0 &&
           w->ne[1] % WNW_EIGHT == 0 && wnw__matmul_at(1) != NULL;
}

static const float *row_of(const struct ggml_tensor *x, int32_t t)
{
    return (const float *)(const void *)((const char *)x->data + (size_t)t * x->nb[1]);
}

/* The activations of token t of n_tok, from the node's operand. */
static void convert(const struct wnw__matmul_scratch *p, enum wnw__operand_kind kind,
                    const struct ggml_tensor *node, int32_t t, int32_t n_tok, float *row,
                    struct wnw__act *act)
{
    const struct ggml_tensor *a = node->src[0], *b = node->src[1];
    const struct wnw__vec *vec = wnw__vec_at(0);
    const int32_t k = (int32_t)a->ne[0];
    const float *x = kind == WNW_OPERAND_PLAIN ? row_of(a, t) : row;
    if (kind == WNW_OPERAND_RMS_NORM)
        vec->rms_norm(row_of(a, t), b->data, k, p->rms_eps, row);
    else if (kind == WNW_OPERAND_SWIGLU)
        vec->swiglu(row_of(a, t), row_of(b, t), k, row);
    wnw__matmul_at(0)->act_from_f32(x, k, n_tok, act);
}

static void input_node(enum wnw__operand_kind kind, struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    const struct wnw__matmul_scratch *p = userdata;
    const int32_t n = (int32_t)dst->src[0]->ne[1], n_share = nth < p->n_threads ? nth : p->n_threads;
    if (ith >= n_share)
        return;
    for (int32_t t = (int32_t)((int64_t)n * ith / n_share); t < (int64_t)n * (ith + 1) / n_share; t++)
        convert(p, kind, dst, t, n, p->lane[ith].row, (struct wnw__act *)dst->data + t);
}

/* Computes what is left of share i of n of product k. */
static void take_share(struct wnw__matmul_scratch *p, const struct wnw__matmul *job, int k, int32_t i,
                       int32_t n, struct wnw__matmul_work *work)
{
    const int32_t first = wnw__matmul_share(job, i, n), end = wnw__matmul_share(job, i + 1, n);
    atomic_int *next = &p->lane[i].next[k];
    for (int32_t at; (at = first + atomic_fetch_add_explicit(next, 1, memory_order_relaxed)) < end;)
        wnw__matmul_piece(job, at, work);
}

/* The tensors of an operand, which come first among the sources of a node. */
static int n_sources(enum wnw__operand_kind kind)
{
    return kind == WNW_OPERAND_PLAIN || kind == WNW_OPERAND_READY ? 1 : 2;
}

/* Where the results of a node's products lie. */
enum results {
    TOGETHER, /* one after the other in each row of the node */
    APART,    /* each in a tensor of its own, which follows its weight among the sources */
    BY_EIGHT, /* the same, and rows of the weights lie by eight */
};

/* A thread begins with its own share of each product, whose rows lie one after the other as its prefetching expects, and then
 * helps the others. */
static void matmul_node(enum wnw__operand_kind kind, enum results results, struct ggml_tensor *dst, int ith,
                        int nth, void *userdata)
{
    struct wnw__matmul_scratch *p = userdata;
    struct ggml_tensor *const *w = dst->src + n_sources(kind);
    const int32_t n_share = nth < p->n_threads ? nth : p->n_threads;
    if (ith < n_share) {
        struct lane *lane = &p->lane[ith];
        struct wnw__matmul job = {.kernel = wnw__matmul_at(0),
                                  .n_tok = (int32_t)dst->ne[1],
                                  .act = kind == WNW_OPERAND_READY ? dst->src[0]->data : lane->act,
                                  .y = dst->data,
                                  .ld = dst->ne[0],
                                  .by_eight = results == BY_EIGHT};
        if (kind != WNW_OPERAND_READY)
            convert(p, kind, dst, 0, 1, lane->row, lane->act);
        for (int k = 0; k < WNW_MATMUL_TOGETHER && *w; k++, w++, job.y += job.n_row) {
            job.type = wnw__weight_type((int32_t)(*w)->type);
            job.rows = (*w)->data;
            job.stride = (*w)->nb[1];
            job.n_row = (int32_t)(*w)->ne[1];
            job.k = (int32_t)(*w)->ne[0];
            if (results != TOGETHER) {
                w++;
                job.y = (*w)->data;
                job.ld = job.n_row;
            }
            for (int32_t i = 0; i < n_share; i++)
                take_share(p, &job, k, (ith + i) % n_share, n_share, &lane->work);
        }
    }
    if (atomic_fetch_add_explicit(&p->left, 1, memory_order_acq_rel) + 1 == nth)
        reset(p);
}

/* ---- Nodes: one function for each kind of operand and place of results ---- */

typedef void node_fn(struct ggml_tensor *dst, int ith, int nth, void *userdata);

#define INPUT(name, kind)                                                               \
    static void input_##name(struct ggml_tensor *dst, int ith, int nth, void *userdata) \
    {                                                                                   \
        input_node(kind, dst, ith, nth, userdata);                                      \
    }
INPUT(plain, WNW_OPERAND_PLAIN)
INPUT(rms_norm, WNW_OPERAND_RMS_NORM)
INPUT(swiglu, WNW_OPERAND_SWIGLU)

#define MATMUL(name, kind, results)                                                      \
    static void matmul_##name(struct ggml_tensor *dst, int ith, int nth, void *userdata) \
    {                                                                                    \
        matmul_node(kind, results, dst, ith, nth, userdata);                             \
    }
MATMUL(plain, WNW_OPERAND_PLAIN, TOGETHER)
MATMUL(rms_norm, WNW_OPERAND_RMS_NORM, TOGETHER)
MATMUL(swiglu, WNW_OPERAND_SWIGLU, TOGETHER)
MATMUL(ready, WNW_OPERAND_READY, TOGETHER)
MATMUL(plain_apart, WNW_OPERAND_PLAIN, APART)
MATMUL(rms_norm_apart, WNW_OPERAND_RMS_NORM, APART)
MATMUL(swiglu_apart, WNW_OPERAND_SWIGLU, APART)
MATMUL(ready_apart, WNW_OPERAND_READY, APART)
MATMUL(ready_by_eight, WNW_OPERAND_READY, BY_EIGHT)

struct wnw__operand wnw__matmul_input(struct wnw__matmul_scratch *p, struct ggml_context *ctx,
                                      const struct wnw__operand *x)
{
    static node_fn *const fn[] = {input_plain, input_rms_norm, input_swiglu};
    struct ggml_tensor *args[2] = {x->a, x->b};
    const int64_t bytes = (int64_t)sizeof(struct wnw__act) * wnw__n_chunks((int32_t)x->a->ne[0]);
    if (x->a->ne[1] == 1)
        return *x;
    return (struct wnw__operand){.kind = WNW_OPERAND_READY,
                                 .a = ggml_custom_4d(ctx, GGML_TYPE_I8, bytes, x->a->ne[1], 1, 1, args,
                                                     n_sources(x->kind), fn[x->kind], GGML_N_TASKS_MAX, p)};
}

struct ggml_tensor *wnw__matmul_node(struct wnw__matmul_scratch *p, struct ggml_context *ctx,
                                     struct ggml_tensor *const *w, int n_w, const struct wnw__operand *input)
{
    static node_fn *const fn[] = {matmul_plain, matmul_rms_norm, matmul_swiglu, matmul_ready};
    struct ggml_tensor *args[2 + WNW_MATMUL_TOGETHER] = {input->a, input->b};
    const int n_arg = n_sources(input->kind);
    int64_t n_row = 0;
    for (int i = 0; i < n_w; i++) {
        args[n_arg + i] = w[i];
        n_row += w[i]->ne[1];
    }
    return ggml_custom_4d(ctx, GGML_TYPE_F32, n_row, input->a->ne[1], 1, 1, args, n_arg + n_w,
                          fn[input->kind], GGML_N_TASKS_MAX, p);
}

struct ggml_tensor *wnw__matmul_node_apart(struct wnw__matmul_scratch *p, struct ggml_context *ctx,
                                           struct ggml_tensor *const *w, struct ggml_tensor *const *y,
                                           int n_w, const struct wnw__operand *input)
{
    static node_fn *const fn[] = {matmul_plain_apart, matmul_rms_norm_apart, matmul_swiglu_apart,
                                  matmul_ready_apart};
    struct ggml_tensor *args[2 + 2 * WNW_MATMUL_TOGETHER] = {input->a, input->b};
    const int n_arg = n_sources(input->kind);
    for (int i = 0; i < n_w; i++) {
        args[n_arg + 2 * i] = w[i];
        args[n_arg + 2 * i + 1] = y[i];
    }
    return ggml_custom_4d(ctx, GGML_TYPE_F32, w[0]->ne[1], input->a->ne[1], 1, 1, args, n_arg + 2 * n_w,
                          fn[input->kind], GGML_N_TASKS_MAX, p);
}

struct ggml_tensor *wnw__matmul_node_by_eight(struct wnw__matmul_scratch *p, struct ggml_context *ctx,
                                              struct ggml_tensor *w, struct ggml_tensor *y,
                                              const struct wnw__operand *input)
{
    struct ggml_tensor *args[] = {input->a, w, y};
    return ggml_custom_4d(ctx, GGML_TYPE_F32, w->ne[1], input->a->ne[1], 1, 1, args, 3, matmul_ready_by_eight,
                          GGML_N_TASKS_MAX, p);
}
