/* SPDX-License-Identifier: MIT */
/*
 * Attention with standard ggml operations: set_rows into the arena and flash_attn_ext over views of it, slice
 * by slice. If all heads of a layer have the same length, one operation serves all heads, otherwise there is
 * one per KV head. This is slower than our own kernel, but for one slice it is the same sequence of
 * operations as llama.cpp's, and any backend can run it.
 */
#include "attend/attend.h"

#include "base/kv_types.h"
#include "kernel/kernel.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <math.h>
#include <stdlib.h>

/* One slice in one layer. */
struct arenas {
    struct ggml_tensor
        *rows; /* I64 [n_row * n_head_kv], destination rows; NULL = the layer is not in the graph */
    ggml_backend_buffer_t k_buf, v_buf; /* around the arenas */
};

struct mask {
    struct ggml_tensor *t; /* [n_kv, n_row] f16 */
    const struct wnw__attend_slice *slice;
    const struct wnw__kv_layer *layer;
    int32_t ih, len;
};

struct wnw__attend_ggml {
    const struct wnw__attend_batch *batch;
    int32_t n_layer, n_head_kv, n_slice;
    struct arenas *arenas; /* [n_layer][n_slice] */
    struct mask *masks;    /* [n_layer * n_slice * n_head_kv] at most */
    int32_t n_masks;
    struct ggml_tensor
        *hadamard[2]; /* [block, block] of keys, of values; NULL = no rows so far are rotated */
};

/* The slice and layer that `flash` and its helpers work on. */
struct layer_op {
    struct wnw__attend_ggml *ag;
    struct ggml_context *ctx;
    const struct wnw__attend_slice *slice;
    const struct wnw__cache *c;
    const struct wnw__kv_layer *l;
    struct arenas *arenas;
    float scale;
};

int wnw__attend_ggml_new(struct wnw__attend_ggml **out, const struct wnw__attend_batch *batch)
{
    const struct wnw__cache *c = batch->slice[0].cache;
    const size_t n_arenas = (size_t)c->n_layer * (size_t)batch->n_slice;
    struct wnw__attend_ggml *ag = calloc(1, sizeof *ag);
    *out = NULL;
    if (!ag)
        return wnw__fail(WNW_E_NOMEM, "no memory for an attention graph");
    ag->batch = batch;
    ag->n_layer = c->n_layer;
    ag->n_head_kv = c->n_head_kv;
    ag->n_slice = batch->n_slice;
    ag->arenas = calloc(n_arenas, sizeof *ag->arenas);
    ag->masks = calloc(n_arenas * (size_t)c->n_head_kv, sizeof *ag->masks);
    if (!ag->arenas || !ag->masks) {
        wnw__attend_ggml_free(ag);
        return wnw__fail(WNW_E_NOMEM, "no memory for an attention graph");
    }
    *out = ag;
    return WNW_OK;
}

void wnw__attend_ggml_free(struct wnw__attend_ggml *ag)
{
    if (!ag)
        return;
    for (int32_t i = 0; ag->arenas && i < ag->n_layer * ag->n_slice; i++) {
        ggml_backend_buffer_free(ag->arenas[i].k_buf);
        ggml_backend_buffer_free(ag->arenas[i].v_buf);
    }
    free(ag->arenas);
    free(ag->masks);
    free(ag);
}

size_t wnw__attend_ggml_nodes(const struct wnw__attend_batch *batch)
{
    return (size_t)batch->n_slice * (48 + 8 * (size_t)batch->slice[0].cache->n_head_kv);
}

/* The whole arena as a matrix of rows. The buffer object only tells ggml that the memory is the CPU's. */
static struct ggml_tensor *arena(const struct layer_op *p, uint8_t *data, ggml_backend_buffer_t *buf)
{
    if (!*buf)
        *buf = ggml_backend_cpu_buffer_from_ptr(data, p->l->mapped_bytes);
    struct ggml_tensor *t = ggml_new_tensor_2d(p->ctx, wnw__ggml_kv_type(p->c->type), p->c->d, p->l->n_rows);
    t->data = data;
    t->buffer = *buf;
    return t;
}

static int32_t pad_keys(const struct wnw__cache *c, int32_t n)
{
    return (n + c->growth - 1) / c->growth * c->growth;
}

static bool has_bias(const struct layer_op *p)
{
    return p->l->aux[WNW_AUX_BIAS] != NULL;
}

/* A mask depends on the slice, the head's length and the layer's window alone, so most layers share one; unless entries have
 * biases, which are added with the mask. */
static struct ggml_tensor *mask_for(const struct layer_op *p, int32_t ih)
{
    struct wnw__attend_ggml *ag = p->ag;
    for (int32_t i = 0; i < ag->n_masks; i++) {
        const struct mask *m = &ag->masks[i];
        if (!has_bias(p) && m->slice == p->slice && m->len == p->l->len[ih] && m->layer->n_swa == p->l->n_swa)
            return m->t;
    }
    struct mask *m = &ag->masks[ag->n_masks++];
    *m = (struct mask){.slice = p->slice, .layer = p->l, .ih = ih, .len = p->l->len[ih]};
    m->t =
        ggml_new_tensor_2d(p->ctx, GGML_TYPE_F16, pad_keys(p->c, m->len + p->slice->n_row), p->slice->n_row);
    ggml_set_input(m->t);
    return m->t;
}

static bool is_rectangular(const struct layer_op *p)
{
    if (has_bias(p))
        return false;
    for (int32_t ih = 1; ih < p->c->n_head_kv; ih++) {
        if (p->l->len[ih] != p->l->len[0] || p->l->cap[ih] != p->l->cap[0])
            return false;
    }
    return true;
}

/* Attention of KV heads ih .. ih + n_heads - 1, which have the same length and capacity. q is a permuted view
 * [d, n_row, n_head]. */
static struct ggml_tensor *flash(const struct layer_op *p, int32_t ih, int32_t n_heads, struct ggml_tensor *q,
                                 struct ggml_tensor *ka, struct ggml_tensor *va)
{
    const struct wnw__cache *c = p->c;
    const int64_t group = q->ne[2] / c->n_head_kv;
    const int32_t n_kv = pad_keys(c, p->l->len[ih] + p->slice->n_row);
    const size_t at = (size_t)p->l->off[ih] * c->row_bytes, stride = (size_t)p->l->cap[ih] * c->row_bytes;
    struct ggml_tensor *k = ggml_view_3d(p->ctx, ka, c->d, n_kv, n_heads, c->row_bytes, stride, at);
    struct ggml_tensor *v = ggml_view_3d(p->ctx, va, c->d, n_kv, n_heads, c->row_bytes, stride, at);
    struct ggml_tensor *qh = n_heads == c->n_head_kv
                                 ? q
                                 : ggml_view_3d(p->ctx, q, q->ne[0], q->ne[1], group * n_heads, q->nb[1],
                                                q->nb[2], (size_t)(ih * group) * q->nb[2]);
    struct ggml_tensor *out = ggml_flash_attn_ext(p->ctx, qh, k, v, mask_for(p, ih), p->scale, 0.0f, 0.0f);
    ggml_prec_set_acc(out, GGML_PREC_F32);
    return out; /* [d, group * n_heads, n_row] */
}

/* The rows of the slice, a view of x [d, n, n_row of the batch]. */
static struct ggml_tensor *rows_of(const struct layer_op *p, struct ggml_tensor *x)
{
    if (p->slice->n_row == x->ne[2])
        return x;
    return ggml_view_3d(p->ctx, x, x->ne[0], x->ne[1], p->slice->n_row, x->nb[1], x->nb[2],
                        (size_t)p->slice->first_row * x->nb[2]);
}

static struct ggml_tensor *as_rows(const struct layer_op *p, struct ggml_tensor *x)
{
    return ggml_reshape_2d(p->ctx, ggml_is_contiguous(x) ? x : ggml_cont(p->ctx, x), x->ne[0],
                           x->ne[1] * x->ne[2]);
}

/* x, contiguous and of heads of d elements, times the matrix by which keys or values are rotated. */
static struct ggml_tensor *rotated(const struct layer_op *p, enum wnw__stored what, struct ggml_tensor *x)
{
    const int64_t block = wnw__cache_block(p->c, what);
    struct ggml_tensor **matrix = &p->ag->hadamard[what];
    if (block == 0)
        return x;
    if (!*matrix) {
        *matrix = ggml_new_tensor_2d(p->ctx, GGML_TYPE_F32, block, block);
        ggml_set_input(*matrix);
    }
    struct ggml_tensor *flat = ggml_is_contiguous(x) ? x : ggml_cont(p->ctx, x);
    flat = ggml_mul_mat(p->ctx, *matrix, ggml_reshape_2d(p->ctx, flat, block, ggml_nelements(x) / block));
    return ggml_reshape_3d(p->ctx, flat, x->ne[0], x->ne[1], x->ne[2]);
}

/* Attention of the slice, [d * n_head, n_row of the slice]. */
static struct ggml_tensor *attend_slice(const struct layer_op *p, struct ggml_cgraph *gf,
                                        struct ggml_tensor *q, struct ggml_tensor *k, struct ggml_tensor *v)
{
    struct ggml_context *ctx = p->ctx;
    struct arenas *arenas = p->arenas;
    arenas->rows = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, (int64_t)p->slice->n_row * p->c->n_head_kv);
    ggml_set_input(arenas->rows);
    struct ggml_tensor *ka = arena(p, p->l->k, &arenas->k_buf);
    struct ggml_tensor *va = arena(p, p->l->v, &arenas->v_buf);
    /* Rows must be stored before they are read. No edge of the graph says so, only the order of its nodes. */
    ggml_build_forward_expand(
        gf, ggml_set_rows(ctx, ka, as_rows(p, rotated(p, WNW_KEYS, rows_of(p, k))), arenas->rows));
    ggml_build_forward_expand(
        gf, ggml_set_rows(ctx, va, as_rows(p, rotated(p, WNW_VALUES, rows_of(p, v))), arenas->rows));

    struct ggml_tensor *qp = ggml_permute(ctx, rotated(p, WNW_KEYS, rows_of(p, q)), 0, 2, 1, 3);
    struct ggml_tensor *out = NULL;
    if (is_rectangular(p)) {
        out = flash(p, 0, p->c->n_head_kv, qp, ka, va);
    } else {
        for (int32_t ih = 0; ih < p->c->n_head_kv; ih++) {
            struct ggml_tensor *head = flash(p, ih, 1, qp, ka, va);
            out = out ? ggml_concat(ctx, out, head, 1) : head;
        }
    }
    return ggml_reshape_2d(ctx, rotated(p, WNW_VALUES, out), q->ne[0] * q->ne[1], p->slice->n_row);
}

struct ggml_tensor *wnw__attend_ggml_build(struct wnw__attend_ggml *ag, struct ggml_context *ctx,
                                           struct ggml_cgraph *gf, const struct wnw__attend_op *op,
                                           struct ggml_tensor *q, struct ggml_tensor *k,
                                           struct ggml_tensor *v)
{
    struct ggml_tensor *out = NULL;
    for (int32_t i = 0; i < ag->n_slice; i++) {
        const struct wnw__attend_slice *slice = &ag->batch->slice[i];
        const struct layer_op p = {.ag = ag,
                                   .ctx = ctx,
                                   .slice = slice,
                                   .c = slice->cache,
                                   .l = &slice->cache->layers[op->il],
                                   .arenas = &ag->arenas[op->il * ag->n_slice + i],
                                   .scale = op->scale};
        struct ggml_tensor *rows = attend_slice(&p, gf, q, k, v);
        out = out ? ggml_concat(ctx, out, rows, 1) : rows;
    }
    return out;
}

static void fill_mask(const struct mask *m, ggml_fp16_t *data)
{
    const ggml_fp16_t open = ggml_fp32_to_fp16(0.0f), shut = ggml_fp32_to_fp16(-INFINITY);
    const int32_t *pos = m->layer->pos + m->layer->off[m->ih];
    const int32_t n_past = m->slice->n_past;
    const int64_t n_kv = m->t->ne[0];
    const float *bias = wnw__cache_bias(m->layer, m->ih);
    for (int32_t t = 0; t < m->slice->n_row; t++) {
        const int32_t p = n_past + t;
        for (int64_t i = 0; i < n_kv; i++) {
            bool sees = i < m->len + t + 1;
            if (sees && m->layer->n_swa > 0)
                sees = p - (i < m->len ? pos[i] : n_past + (int32_t)i - m->len) < m->layer->n_swa;
            data[t * n_kv + i] = sees ? open : shut;
            if (sees && bias && i < m->len)
                data[t * n_kv + i] = ggml_fp32_to_fp16(bias[i]);
        }
    }
}

static int fill_masks(const struct wnw__attend_ggml *ag)
{
    for (int32_t i = 0; i < ag->n_masks; i++) {
        const struct mask *m = &ag->masks[i];
        if (!m->t->data)
            continue;
        ggml_fp16_t *data = malloc(ggml_nbytes(m->t));
        if (!data)
            return wnw__fail(WNW_E_NOMEM, "no memory for an attention mask of %zu bytes", ggml_nbytes(m->t));
        fill_mask(m, data);
        ggml_backend_tensor_set(m->t, data, 0, ggml_nbytes(m->t));
        free(data);
    }
    return WNW_OK;
}

/* Fills the row indices of a slice, layer by layer. rows is scratch for [n_row][n_head_kv] of them. */
static void fill_rows(const struct wnw__attend_ggml *ag, int32_t i_slice, int64_t *rows)
{
    const struct wnw__attend_slice *slice = &ag->batch->slice[i_slice];
    for (int32_t il = 0; il < ag->n_layer; il++) {
        const struct wnw__kv_layer *l = &slice->cache->layers[il];
        struct ggml_tensor *t = ag->arenas[il * ag->n_slice + i_slice].rows;
        if (!t || !t->data)
            continue;
        for (int32_t i = 0; i < slice->n_row; i++) {
            for (int32_t ih = 0; ih < ag->n_head_kv; ih++)
                rows[(int64_t)i * ag->n_head_kv + ih] = l->off[ih] + l->len[ih] + i;
        }
        ggml_backend_tensor_set(t, rows, 0, ggml_nbytes(t));
    }
}

static int fill_matrix(struct ggml_tensor *t)
{
    if (!t || !t->data)
        return WNW_OK;
    const int64_t n = t->ne[0];
    float *data = calloc((size_t)(n * n), sizeof *data);
    if (!data)
        return wnw__fail(WNW_E_NOMEM, "no memory for a rotation by %lld elements", (long long)n);
    for (int64_t i = 0; i < n; i++)
        data[i * n + i] = 1.0f;
    wnw__hadamard(data, n * n, (int32_t)n);
    ggml_backend_tensor_set(t, data, 0, ggml_nbytes(t));
    free(data);
    return WNW_OK;
}

int wnw__attend_ggml_fill(struct wnw__attend_ggml *ag)
{
    WNW_TRY(fill_masks(ag));
    WNW_TRY(fill_matrix(ag->hadamard[WNW_KEYS]));
    WNW_TRY(fill_matrix(ag->hadamard[WNW_VALUES]));
    int64_t *rows = malloc((size_t)ag->batch->n_row * (size_t)ag->n_head_kv * sizeof *rows);
    if (!rows)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d row indices", (int)ag->batch->n_row);
    for (int32_t i = 0; i < ag->n_slice; i++)
        fill_rows(ag, i, rows);
    free(rows);
    return WNW_OK;
}
