/* SPDX-License-Identifier: MIT */
/*
 * A layer in libllama's own layout, as far as it is used: the first `rows` cells of its tensors, counted over all streams.
 * Bytes after them were never written and are 0. Also what layers of both forms have: their buffers.
 */
#include "base/dropped.h"
#include "bridge/watch/watch.h"
#include "bridge/wrap/wrap.h"

#include <math.h>
#include <stdlib.h>

/* ---- Buffers ---- */

size_t wnw__wrap_align(const struct wnw__wrap *w, size_t bytes)
{
    const size_t a = ggml_backend_buft_get_alignment(w->xt);
    return (bytes + a - 1) / a * a;
}

size_t wnw__wrap_place_bytes(const struct wnw__wrap *w, const struct wnw__bridge_tensor *t, int64_t d,
                             int64_t rows)
{
    if (!t->base)
        return 0;
    const enum ggml_type type = t->type;
    const size_t row = ggml_row_size(type, d);
    const struct ggml_tensor one = {
        .type = type, .ne = {d, 1, 1, 1}, .nb = {ggml_type_size(type), row, row, row}};
    const size_t tail = ggml_backend_buft_get_alloc_size(w->xt, &one) - row;
    return wnw__wrap_align(w, (size_t)rows * row + tail);
}

/* ggml's RPC client keeps answers by the result alone, and what an attention needs for itself on a GPU goes by its keys, too. So their number
 * is put where no operation has a parameter. */
size_t wnw__wrap_result_bytes(const struct wnw__wrap *w, const struct ggml_tensor *t)
{
    struct ggml_tensor asked = *t;
    if (w->remote && w->pad == WNW_DEVICE_STEP && t->op == GGML_OP_FLASH_ATTN_EXT)
        asked.op_params[sizeof asked.op_params / sizeof *asked.op_params - 1] = (int32_t)t->src[1]->ne[1];
    return ggml_backend_buft_get_alloc_size(w->xt, &asked);
}

/* What X says is its largest buffer is what it likes to have: Vulkan says 1 GiB, and makes larger ones. So it is asked for the buffer. */
int wnw__wrap_buffer_new(ggml_backend_buffer_t *out, struct wnw__wrap *w, size_t bytes)
{
    *out = ggml_backend_buft_alloc_buffer(w->xt, bytes);
    if (!*out)
        return wnw__fail(WNW_E_NOMEM,
                         "%s has no memory for %zu bytes of a cache: a smaller context needs fewer",
                         wnw__wrap_x_name(w), bytes);
    ggml_backend_buffer_clear(*out, 0);
    return WNW_OK;
}

void wnw__wrap_freed(struct wnw__wrap *w)
{
    atomic_fetch_add_explicit(&w->freed, 1, memory_order_relaxed);
}

void wnw__wrap_buffer_drop(struct wnw__wrap *w, ggml_backend_buffer_t buffer)
{
    if (!buffer)
        return;
    ggml_backend_buffer_free(buffer);
    wnw__wrap_freed(w);
}

uint8_t *wnw__wrap_layer_at(const struct wnw__wrap_layer *w, bool is_v)
{
    return (uint8_t *)ggml_backend_buffer_get_base(w->buffer) + (is_v ? w->v_at : 0);
}

/* ---- Layers ---- */

int wnw__wrap_layer_new(struct wnw__bridge_layer *l, struct wnw__wrap *w)
{
    l->wrap = calloc(1, sizeof *l->wrap);
    if (!l->wrap)
        return wnw__fail(WNW_E_NOMEM, "no memory for layer %d", (int)l->il);
    l->wrap->w = w;
    l->far = &wnw__wrap_far;
    return WNW_OK;
}

/* A server computes one request after the other. */
void wnw__wrap_layer_wait(struct wnw__wrap_layer *w)
{
    if (w->user && !w->w->remote)
        ggml_backend_synchronize(w->user);
    w->user = NULL;
}

int wnw__wrap_layer_note(struct wnw__bridge_layer *l)
{
    if (!l->written)
        l->written = calloc((size_t)l->k.n_stream * (size_t)l->k.n_cell, 1);
    return l->written ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the cells of layer %d", (int)l->il);
}

static void free_heads(struct wnw__bridge_layer *l)
{
    struct wnw__wrap_layer *w = l->wrap;
    for (int32_t i = 0; w->heads && i < l->k.n_stream * l->n_head; i++) {
        free(w->heads[i].cell);
        free(w->heads[i].row);
    }
    free(w->heads);
    w->heads = NULL;
}

void wnw__wrap_renew(const struct wnw__bridge_layer *l, int64_t cell, int64_t n)
{
    const struct wnw__wrap_layer *w = l->wrap;
    for (int64_t i = cell * l->info.n_head; w->sums && i < (cell + n) * l->info.n_head; i++)
        w->sums[i] = 0.0f;
    for (int64_t i = cell * l->n_head; (w->gate || w->settled_marks) && i < (cell + n) * l->n_head; i++) {
        if (w->gate)
            w->gate[i] = NAN;
        if (w->settled_marks)
            w->settled_marks[i] = 0.0f;
    }
}

void wnw__wrap_layer_clear(struct wnw__bridge_layer *l)
{
    struct wnw__wrap_layer *w = l->wrap;
    if (!w)
        return;
    free_heads(l);
    wnw__wrap_layer_wait(w);
    wnw__wrap_buffer_drop(w->w, w->buffer);
    w->buffer = NULL;
    w->rows = 0;
    w->v_at = w->c_at = 0;
    w->ragged = w->settled = w->stale = w->holes = false;
    free(w->gate);
    free(w->settled_marks);
    free(w->sums);
    w->gate = w->settled_marks = w->sums = NULL;
    wnw__bridge_queries_free(&l->queries);
    l->lost = false;
    if (l->written)
        memset(l->written, 0, (size_t)l->k.n_stream * (size_t)l->k.n_cell);
}

void wnw__wrap_layer_free(struct wnw__bridge_layer *l)
{
    if (!l->wrap)
        return;
    wnw__wrap_layer_clear(l);
    ggml_backend_free(l->wrap->mover);
    free(l->wrap->sinks);
    free(l->wrap);
    l->wrap = NULL;
    l->far = NULL;
}

/* ---- Rows ---- */

static size_t row_bytes(const struct wnw__bridge_tensor *t)
{
    return t->base ? ggml_row_size(t->type, t->n_embd) : 0;
}

void wnw__wrap_bytes_at(struct ggml_tensor *t, ggml_backend_buffer_t buffer, uint8_t *at, size_t n)
{
    *t = (struct ggml_tensor){
        .type = GGML_TYPE_I8, .buffer = buffer, .ne = {(int64_t)n, 1, 1, 1}, .nb = {1, n, n, n}, .data = at};
}

static void copy_bytes(const struct wnw__wrap_layer *from, const struct wnw__wrap_layer *to, bool is_v,
                       size_t n)
{
    struct ggml_tensor a, b;
    if (n == 0)
        return;
    wnw__wrap_bytes_at(&a, from->buffer, wnw__wrap_layer_at(from, is_v), n);
    wnw__wrap_bytes_at(&b, to->buffer, wnw__wrap_layer_at(to, is_v), n);
    ggml_backend_tensor_copy(&a, &b);
}

int wnw__wrap_rect_grow(struct wnw__bridge_layer *l, int64_t rows)
{
    struct wnw__wrap_layer *w = l->wrap;
    const int64_t all = (int64_t)l->k.n_cell * l->k.n_stream;
    if (rows <= w->rows)
        return WNW_OK;
    if (rows > all)
        return wnw__fail(WNW_E_RANGE, "layer %d has %lld cells, and a graph reads %lld", (int)l->il,
                         (long long)all, (long long)rows);
    rows = rows > w->rows + w->rows / 4 ? rows : w->rows + w->rows / 4;
    rows = wnw__room_in_steps(rows, WNW_DEVICE_STEP);
    rows = rows < all ? rows : all;
    const size_t k = wnw__wrap_place_bytes(w->w, &l->k, l->k.n_embd, rows);
    ggml_backend_buffer_t buffer;
    WNW_TRY(wnw__wrap_buffer_new(&buffer, w->w, k + wnw__wrap_place_bytes(w->w, &l->v, l->v.n_embd, rows)));
    wnw__wrap_layer_wait(w);
    const struct wnw__wrap_layer old = *w;
    w->buffer = buffer;
    w->n_made++;
    w->v_at = k;
    w->rows = rows;
    if (old.buffer) {
        copy_bytes(&old, w, false, (size_t)old.rows * row_bytes(&l->k));
        copy_bytes(&old, w, true, (size_t)old.rows * row_bytes(&l->v));
        wnw__wrap_buffer_drop(w->w, old.buffer);
    }
    return WNW_OK;
}

int wnw__wrap_rect_read(const struct wnw__bridge_tensor *t, size_t at, size_t n, uint8_t *dst)
{
    struct wnw__wrap_layer *w = t->layer->wrap;
    const size_t there = (size_t)w->rows * row_bytes(t);
    const size_t left = at < there ? there - at : 0, part = n < left ? n : left;
    struct ggml_tensor x;
    if (part > 0) {
        wnw__wrap_layer_wait(w);
        wnw__wrap_bytes_at(&x, w->buffer, wnw__wrap_layer_at(w, t->is_v), there);
        ggml_backend_tensor_get(&x, dst, at, part);
    }
    memset(dst + part, 0, n - part);
    return WNW_OK;
}

int wnw__wrap_rect_write(struct wnw__bridge_tensor *t, size_t at, size_t n, const uint8_t *src)
{
    struct wnw__wrap_layer *w = t->layer->wrap;
    struct ggml_tensor x;
    if (n == 0)
        return WNW_OK;
    WNW_TRY(wnw__wrap_rect_grow(t->layer, (int64_t)((at + n - 1) / row_bytes(t)) + 1));
    wnw__wrap_layer_wait(w);
    wnw__wrap_bytes_at(&x, w->buffer, wnw__wrap_layer_at(w, t->is_v), (size_t)w->rows * row_bytes(t));
    ggml_backend_tensor_set(&x, src, at, n);
    if (t->is_v)
        return WNW_OK;
    WNW_TRY(wnw__wrap_layer_note(t->layer));
    memset(t->layer->written + at / row_bytes(t), 1, (at + n - 1) / row_bytes(t) + 1 - at / row_bytes(t));
    w->holes = w->holes || wnw__may_have_dropped(src, n);
    return WNW_OK;
}
