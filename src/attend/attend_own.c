/* SPDX-License-Identifier: MIT */
/* Scratch of the own attention and its operations in a ggml graph. */
#include "attend/attend_impl.h"

#include <stdlib.h>
#include <string.h>

static int check_dims(const struct wnw__attend_dims *dims)
{
    if (dims->n_head_kv < 1 || dims->n_head < 1 || dims->n_head % dims->n_head_kv)
        return wnw__fail(WNW_E_ARG,
                         "attention with %d query heads needs a divisor of that as KV heads, not %d",
                         (int)dims->n_head, (int)dims->n_head_kv);
    if (wnw__row_bytes(dims->type, dims->d) == 0)
        return wnw__fail(WNW_E_ARG,
                         "head size %d does not fit cache type %s: quantised types need a multiple of 32",
                         (int)dims->d, wnw_kv_type_name(dims->type));
    if (dims->n_threads < 1 || dims->n_ubatch < 1)
        return wnw__fail(WNW_E_ARG, "attention needs at least one thread and one token, not %d and %d",
                         (int)dims->n_threads, (int)dims->n_ubatch);
    return WNW_OK;
}

static int32_t round_up(int32_t x, int32_t to)
{
    return (x + to - 1) / to * to;
}

/* Cache-line aligned and zeroed; n floats. */
static float *alloc_floats(size_t n)
{
    void *p = NULL;
    if (n > SIZE_MAX / sizeof(float) || posix_memalign(&p, 64, n * sizeof(float)) != 0)
        return NULL;
    memset(p, 0, n * sizeof(float));
    return p;
}

int wnw__attend_shared_new(struct wnw__attend_shared **out, const struct wnw__attend_dims *dims)
{
    WNW_TRY(check_dims(dims));
    struct wnw__attend_shared *sh = calloc(1, sizeof *sh);
    if (!sh)
        goto fail;
    sh->dims = *dims;
    sh->vec = wnw__vec_at(0);
    sh->group = dims->n_head / dims->n_head_kv;
    sh->rows = round_up(sh->group > WNW_ATTEND_ROWS ? sh->group : WNW_ATTEND_ROWS, WNW_ROWS_PAD);
    sh->ld = round_up(dims->d, WNW_TILE_PAD);
    sh->decode_rows = sh->group > WNW_ATTEND_DECODE_ROWS ? sh->group : WNW_ATTEND_DECODE_ROWS;
    if (sh->decode_rows > sh->group * WNW_ATTEND_DECODE_TOKENS)
        sh->decode_rows = sh->group * WNW_ATTEND_DECODE_TOKENS;
    sh->row_bytes = wnw__row_bytes(dims->type, dims->d);
    sh->work_floats = wnw__attend_work_floats(sh);
    if (sh->work_floats > SIZE_MAX / sizeof(float) / (size_t)dims->n_threads)
        goto fail;
    sh->work = alloc_floats(sh->work_floats * (size_t)dims->n_threads);
    sh->head_done = calloc((size_t)dims->n_head_kv, sizeof *sh->head_done);
    if (!sh->work || !sh->head_done || wnw__attend_shared_reserve(sh, 1) != WNW_OK)
        goto fail;
    for (int32_t ih = 0; ih < dims->n_head_kv; ih++)
        atomic_init(&sh->head_done[ih], 0);
    atomic_init(&sh->next, 0);
    atomic_init(&sh->left, 0);
    *out = sh;
    return WNW_OK;
fail:
    wnw__attend_shared_free(sh);
    return wnw__fail(WNW_E_NOMEM, "out of memory for attention scratch of %d threads", (int)dims->n_threads);
}

void wnw__attend_shared_free(struct wnw__attend_shared *sh)
{
    if (!sh)
        return;
    free(sh->work);
    free(sh->partial);
    free(sh->head_done);
    free(sh->row_max);
    free(sh);
}

int wnw__attend_shared_keep_rows(struct wnw__attend_shared *sh, bool keep)
{
    const size_t n = (size_t)sh->dims.n_head * (size_t)sh->dims.n_ubatch;
    if (keep == (sh->row_max != NULL))
        return WNW_OK;
    free(sh->row_max);
    sh->row_max = keep ? alloc_floats(2 * n) : NULL;
    sh->row_norm = sh->row_max ? sh->row_max + n : NULL;
    return !keep || sh->row_max ? WNW_OK
                                : wnw__fail(WNW_E_NOMEM, "out of memory for the softmax of %zu rows", n);
}

int wnw__attend_shared_reserve(struct wnw__attend_shared *sh, int32_t max_len)
{
    int32_t pieces = max_len / WNW_ATTEND_PIECE + 1;
    if (pieces > WNW_ATTEND_PIECES)
        pieces = WNW_ATTEND_PIECES;
    if (pieces <= sh->pieces)
        return WNW_OK;
    const size_t floats = (size_t)sh->dims.n_head_kv * (size_t)pieces * (size_t)sh->decode_rows;
    float *partial = alloc_floats(floats * (size_t)(sh->ld + 2));
    if (!partial)
        return wnw__fail(WNW_E_NOMEM, "out of memory for attention scratch of %d entries per head",
                         (int)max_len);
    free(sh->partial);
    sh->partial = partial;
    sh->pieces = pieces;
    return WNW_OK;
}

void wnw__attend_write(const struct wnw__attend_op *op, int32_t ih, int32_t first, int32_t last,
                       const float *k, const float *v)
{
    const struct wnw__attend_dims *dims = &op->shared->dims;
    const struct wnw__kv_layer *layer = op->layer;
    for (int32_t t = first; t < last; t++) {
        const int64_t src = ((int64_t)t * dims->n_head_kv + ih) * dims->d;
        const size_t dst = (size_t)(layer->off[ih] + layer->len[ih] + t) * op->shared->row_bytes;
        wnw__rows_from_f32(dims->type, k + src, 1, dims->d, layer->k + dst);
        wnw__rows_from_f32(dims->type, v + src, 1, dims->d, layer->v + dst);
    }
}

void wnw__attend_store(const struct wnw__attend_op *op, const float *k, const float *v, int32_t n_tok,
                       int ith, int nth)
{
    const int32_t first = (int32_t)((int64_t)n_tok * ith / nth);
    const int32_t last = (int32_t)((int64_t)n_tok * (ith + 1) / nth);
    for (int32_t ih = 0; ih < op->shared->dims.n_head_kv; ih++)
        wnw__attend_write(op, ih, first, last, k, v);
}

void wnw__attend_run(const struct wnw__attend_op *op, const float *q, int32_t n_tok, float *out, int ith,
                     int nth)
{
    if (wnw__attend_is_decode(op->shared, n_tok))
        wnw__attend_decode(op, q, NULL, NULL, n_tok, out, ith, nth);
    else
        wnw__attend_prefill(op, q, n_tok, out, ith, nth);
}

/* ---- Graph operations ---- */

/* src: k, v */
static void store_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    const struct ggml_tensor *k = dst->src[0], *v = dst->src[1];
    wnw__attend_store(userdata, k->data, v->data, (int32_t)k->ne[2], ith, nth);
}

/* src: q, result of store_node */
static void prefill_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    const struct ggml_tensor *q = dst->src[0];
    wnw__attend_prefill(userdata, q->data, (int32_t)q->ne[2], dst->data, ith, nth);
}

/* src: q, k, v */
static void decode_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    const struct ggml_tensor *q = dst->src[0], *k = dst->src[1], *v = dst->src[2];
    wnw__attend_decode(userdata, q->data, k->data, v->data, (int32_t)q->ne[2], dst->data, ith, nth);
}

static struct ggml_tensor *packed(struct ggml_context *ctx, struct ggml_tensor *t)
{
    return ggml_is_contiguous(t) ? t : ggml_cont(ctx, t);
}

struct ggml_tensor *wnw__attend_own(struct ggml_context *ctx, struct wnw__attend_op *op,
                                    struct ggml_tensor *q, struct ggml_tensor *k, struct ggml_tensor *v)
{
    const int64_t n_tok = q->ne[2], n_embd = q->ne[0] * q->ne[1];
    struct ggml_tensor *args[3] = {packed(ctx, q), packed(ctx, k), packed(ctx, v)};
    if (wnw__attend_is_decode(op->shared, (int32_t)n_tok))
        return ggml_custom_4d(ctx, GGML_TYPE_F32, n_embd, n_tok, 1, 1, args, 3, decode_node, GGML_N_TASKS_MAX,
                              op);
    /* A node of its own: every row must be stored before any thread reads, and an operation has no barrier. */
    args[1] = ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, args + 1, 2, store_node, GGML_N_TASKS_MAX, op);
    return ggml_custom_4d(ctx, GGML_TYPE_F32, n_embd, n_tok, 1, 1, args, 2, prefill_node, GGML_N_TASKS_MAX,
                          op);
}
