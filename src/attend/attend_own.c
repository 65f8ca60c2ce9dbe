/* SPDX-License-Identifier: MIT */
/* Scratch memory of the own attention, and its operations in a ggml graph. */
#include "attend/attend_impl.h"

#include <stdlib.h>
#include <string.h>

static int check_dims(const struct wnw__attend_dims *dims)
{
    if (dims->model.n_head_kv < 1 || dims->model.n_head < 1 || dims->model.n_head % dims->model.n_head_kv)
        return wnw__fail(WNW_E_ARG,
                         "attention with %d query heads needs a divisor of that as KV heads, not %d",
                         (int)dims->model.n_head, (int)dims->model.n_head_kv);
    if (dims->model.d < 1)
        return wnw__fail(WNW_E_ARG, "attention heads need at least one element, not %d", (int)dims->model.d);
    if (dims->n_threads < 1 || dims->n_ubatch < 1)
        return wnw__fail(WNW_E_ARG, "attention needs at least one thread and one row, not %d and %d",
                         (int)dims->n_threads, (int)dims->n_ubatch);
    return WNW_OK;
}

/* Allocates n floats, zeroed and aligned to cache lines. */
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
    sh->bf16 = dims->float32 ? NULL : wnw__bf16_best();
    sh->score8 = dims->float32 ? NULL : wnw__score8_best();
    sh->group = dims->model.n_head / dims->model.n_head_kv;
    sh->rows = wnw__attend_round_up(sh->group > WNW_ATTEND_ROWS ? sh->group : WNW_ATTEND_ROWS, WNW_ROWS_PAD);
    sh->ld = wnw__attend_round_up(dims->model.d, WNW_TILE_PAD);
    sh->work_floats = wnw__attend_work_floats(sh);
    if (sh->work_floats > SIZE_MAX / sizeof(float) / (size_t)dims->n_threads)
        goto fail;
    sh->work = alloc_floats(sh->work_floats * (size_t)dims->n_threads);
    if (!sh->work)
        goto fail;
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
    free(sh->scratch);
    free(sh->head_done);
    free(sh->partial);
    free(sh->columns);
    free(sh->tiles);
    free(sh->row_max);
    free(sh);
}

int wnw__attend_shared_keep_rows(struct wnw__attend_shared *sh, bool keep)
{
    const size_t n = (size_t)sh->dims.model.n_head * (size_t)sh->dims.n_ubatch;
    if (keep == (sh->row_max != NULL))
        return WNW_OK;
    free(sh->row_max);
    sh->row_max = keep ? alloc_floats(2 * n) : NULL;
    sh->row_norm = sh->row_max ? sh->row_max + n : NULL;
    return !keep || sh->row_max ? WNW_OK
                                : wnw__fail(WNW_E_NOMEM, "out of memory for the softmax of %zu rows", n);
}

static int reserve_slices(struct wnw__attend_shared *sh, int32_t n)
{
    if (n <= sh->cap_slices)
        return WNW_OK;
    const size_t n_head = (size_t)n * (size_t)sh->dims.model.n_head_kv;
    struct wnw__attend_scratch *scratch = calloc((size_t)n, sizeof *scratch);
    atomic_int *head_done = calloc(n_head, sizeof *head_done);
    if (!scratch || !head_done) {
        free(scratch);
        free(head_done);
        return wnw__fail(WNW_E_NOMEM, "out of memory for attention over %d sequences", (int)n);
    }
    for (size_t i = 0; i < n_head; i++)
        atomic_init(&head_done[i], 0);
    free(sh->scratch);
    free(sh->head_done);
    sh->scratch = scratch;
    sh->head_done = head_done;
    sh->cap_slices = n;
    return WNW_OK;
}

/* The entries of the longest head in layers from .. to - 1. */
static int32_t longest_head(const struct wnw__cache *c, int32_t from, int32_t to)
{
    int32_t n = 0;
    for (int32_t il = from; il < to; il++) {
        for (int32_t ih = 0; ih < c->n_head_kv; ih++)
            n = c->layers[il].len[ih] > n ? c->layers[il].len[ih] : n;
    }
    return n;
}

/* The largest number of pieces that wnw__attend_cut makes of a head of up to n entries, new rows included. */
static int32_t most_pieces(int32_t n)
{
    const int32_t pieces = n / WNW_ATTEND_PIECE + 1;
    return pieces < WNW_ATTEND_PIECES ? pieces : WNW_ATTEND_PIECES;
}

/* Makes *array an array of at least n floats, of *cap, zeroed where it is new. */
static int need(float **array, size_t *cap, size_t n)
{
    if (n <= *cap)
        return WNW_OK;
    float *larger = alloc_floats(n);
    if (!larger)
        return wnw__fail(WNW_E_NOMEM, "out of memory for %zu bytes of attention scratch", n * sizeof *larger);
    free(*array);
    *array = larger;
    *cap = n;
    return WNW_OK;
}

static int reserve_columns(struct wnw__attend_shared *sh, const struct wnw__attend_columns_room *room)
{
    size_t cap = sh->tiles_floats * (size_t)sh->dims.n_threads;
    WNW_TRY(need(&sh->columns, &sh->cap_columns, room->columns));
    if (room->tiles <= sh->tiles_floats)
        return WNW_OK;
    WNW_TRY(need(&sh->tiles, &cap, room->tiles * (size_t)sh->dims.n_threads));
    sh->tiles_floats = room->tiles;
    return WNW_OK;
}

int wnw__attend_shared_reserve(struct wnw__attend_shared *sh, const struct wnw__attend_batch *batch,
                               int32_t from, int32_t to)
{
    struct wnw__attend_columns_room room = {0};
    size_t at = 0;
    WNW_TRY(reserve_slices(sh, batch->n_slice));
    for (int32_t i = 0; i < batch->n_slice; i++) {
        const struct wnw__attend_slice *s = &batch->slice[i];
        const int32_t n = longest_head(s->cache, from, to) + s->n_row;
        sh->scratch[i] = (struct wnw__attend_scratch){.at = at, .n = wnw__attend_round_up(n, WNW_TILE)};
        if (wnw__attend_leaves_columns(sh, s))
            wnw__attend_reserve_columns(sh, s, &sh->scratch[i], &room);
        if (!wnw__attend_is_decode(sh, s->n_row))
            continue;
        /* A block that later rows of the slice find quantised counts twice. */
        sh->scratch[i].pieces = most_pieces(n + (s->cache->n_tail > 0 ? WNW_CACHE_BLOCK : 0));
        at += (size_t)sh->dims.model.n_head_kv * (size_t)sh->scratch[i].pieces *
              (size_t)(s->n_row * sh->group) * (size_t)(sh->ld + 2);
    }
    WNW_TRY(need(&sh->partial, &sh->cap_partial, at));
    return reserve_columns(sh, &room);
}

/* Quantises entries of KV head ih that rows of the slice find quantised: of those stored before the ith of nth
 * parts, of the new ones those in rows first .. last-1, which the same thread has written. */
static void quantise(const struct wnw__attend_job *job, int32_t ih, int32_t first, int32_t last, int ith,
                     int nth)
{
    const struct wnw__cache *c = job->slice->cache;
    const int32_t len = job->layer->len[ih], from = wnw__cache_quantised_to(c, job->layer, ih, 0);
    const int32_t to = wnw__cache_quantised_to(c, job->layer, ih, job->slice->n_row - 1);
    const int32_t stored = (to < len ? to : len) - from, to_row = to - len;
    if (from == to)
        return;
    if (stored > 0)
        wnw__cache_quantise(c, job->layer, ih, from + (int32_t)((int64_t)stored * ith / nth),
                            from + (int32_t)((int64_t)stored * (ith + 1) / nth));
    first = from - len > first ? from - len : first;
    wnw__cache_quantise(c, job->layer, ih, len + first, len + (last < to_row ? last : to_row));
}

void wnw__attend_store(const struct wnw__attend_op *op, const float *k, const float *v, int ith, int nth)
{
    const int32_t from = (int32_t)((int64_t)op->batch->n_row * ith / nth);
    const int32_t to = (int32_t)((int64_t)op->batch->n_row * (ith + 1) / nth);
    for (int32_t i = 0; i < op->batch->n_slice; i++) {
        const struct wnw__attend_job job = wnw__attend_job_of(op, i);
        int32_t first = from - job.slice->first_row, last = to - job.slice->first_row;
        first = first > 0 ? first : 0;
        last = last < job.slice->n_row ? last : job.slice->n_row;
        for (int32_t ih = 0; ih < op->shared->dims.model.n_head_kv; ih++) {
            wnw__attend_write(&job, ih, first, last, k, v);
            quantise(&job, ih, first, last, ith, nth);
        }
    }
}

double wnw__attend_pairs(const struct wnw__kv_layer *layer, int32_t ih, int32_t n_row)
{
    const double len = layer->len[ih], n = n_row, window = layer->n_swa;
    const double before_full = window - len - 1; /* rows that see less than a whole window */
    if (layer->n_swa <= 0 || n <= before_full)
        return n * len + n * (n + 1) / 2;
    const double growing = before_full > 0 ? before_full : 0;
    return growing * len + growing * (growing + 1) / 2 + (n - growing) * window;
}

/* ---- Graph operations ---- */

/* The sources are k and v. */
static void store_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    wnw__attend_store(userdata, dst->src[0]->data, dst->src[1]->data, ith, nth);
}

/* The sources are q and the result of store_node. */
static void stored_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    wnw__attend_run(userdata, dst->src[0]->data, NULL, NULL, dst->data, ith, nth);
}

/* The sources are q, k and v. */
static void storing_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    wnw__attend_run(userdata, dst->src[0]->data, dst->src[1]->data, dst->src[2]->data, dst->data, ith, nth);
}

static struct ggml_tensor *packed(struct ggml_context *ctx, struct ggml_tensor *t)
{
    return ggml_is_contiguous(t) ? t : ggml_cont(ctx, t);
}

struct ggml_tensor *wnw__attend_own(struct ggml_context *ctx, struct wnw__attend_op *op,
                                    struct ggml_tensor *q, struct ggml_tensor *k, struct ggml_tensor *v)
{
    const int64_t n_row = q->ne[2], n_embd = q->ne[0] * q->ne[1];
    struct ggml_tensor *args[3] = {packed(ctx, q), packed(ctx, k), packed(ctx, v)};
    /* If the whole batch is this small, every slice of it has few rows, and the rows are stored piece by
     * piece. */
    if (wnw__attend_is_decode(op->shared, (int32_t)n_row))
        return ggml_custom_4d(ctx, GGML_TYPE_F32, n_embd, n_row, 1, 1, args, 3, storing_node,
                              GGML_N_TASKS_MAX, op);
    /* Storing is a node of its own, because every row must be stored before any thread reads, and an
     * operation has no barrier. */
    args[1] = ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, args + 1, 2, store_node, GGML_N_TASKS_MAX, op);
    return ggml_custom_4d(ctx, GGML_TYPE_F32, n_embd, n_row, 1, 1, args, 2, stored_node, GGML_N_TASKS_MAX,
                          op);
}

struct ggml_tensor *wnw__attend_again(struct ggml_context *ctx, struct wnw__attend_op *op,
                                      struct ggml_tensor *q)
{
    struct ggml_tensor *args[1] = {packed(ctx, q)};
    return ggml_custom_4d(ctx, GGML_TYPE_F32, q->ne[0] * q->ne[1], q->ne[2], 1, 1, args, 1, stored_node,
                          GGML_N_TASKS_MAX, op);
}
