/* SPDX-License-Identifier: MIT */
/*
 * Attention with standard ggml operations: set_rows into the arena, flash_attn_ext over views of it. Where
 * all heads of a layer have one length it is a single operation over all heads, else one per KV head. Slower
 * than our own kernel, but the same sequence of operations as llama.cpp, and any backend can run it.
 */
#include "attend/attend_ggml.h"
#include "session/session.h"

#include <math.h>
#include <stdlib.h>

struct mask {
    struct ggml_tensor *t; /* [n_kv, n_tok] f16 */
    const struct wnw__kv_layer *layer;
    const uint8_t *hidden; /* [hidden_n] or NULL */
    int32_t ih, len;
};

struct wnw__attend_ggml {
    const wnw_session *s;
    int32_t n_tok;
    struct ggml_tensor **rows;            /* [n_layer] I64 [n_tok * n_head_kv], destination rows */
    ggml_backend_buffer_t *k_buf, *v_buf; /* [n_layer] around the arenas */
    struct mask *masks;                   /* [n_layer * n_head_kv] at most */
    int32_t n_masks;
};

int wnw__attend_ggml_new(struct wnw__attend_ggml **out, const wnw_session *s)
{
    const size_t n_layer = (size_t)s->cache.n_layer;
    struct wnw__attend_ggml *ag = calloc(1, sizeof *ag);
    *out = ag;
    if (!ag)
        return wnw__fail(WNW_E_NOMEM, "no memory for an attention graph");
    ag->s = s;
    ag->rows = calloc(n_layer, sizeof(struct ggml_tensor *));
    ag->k_buf = calloc(n_layer, sizeof *ag->k_buf);
    ag->v_buf = calloc(n_layer, sizeof *ag->v_buf);
    ag->masks = calloc(n_layer * (size_t)s->cache.n_head_kv, sizeof *ag->masks);
    if (ag->rows && ag->k_buf && ag->v_buf && ag->masks)
        return WNW_OK;
    wnw__attend_ggml_free(ag);
    *out = NULL;
    return wnw__fail(WNW_E_NOMEM, "no memory for an attention graph");
}

void wnw__attend_ggml_free(struct wnw__attend_ggml *ag)
{
    if (!ag)
        return;
    for (int32_t il = 0; il < ag->s->cache.n_layer; il++) {
        if (ag->k_buf && ag->k_buf[il])
            ggml_backend_buffer_free(ag->k_buf[il]);
        if (ag->v_buf && ag->v_buf[il])
            ggml_backend_buffer_free(ag->v_buf[il]);
    }
    free(ag->rows);
    free(ag->k_buf);
    free(ag->v_buf);
    free(ag->masks);
    free(ag);
}

static enum ggml_type ggml_kv_type(wnw_kv_type t)
{
    switch (t) {
    case WNW_KV_F32:
        return GGML_TYPE_F32;
    case WNW_KV_Q8_0:
        return GGML_TYPE_Q8_0;
    case WNW_KV_Q4_0:
        return GGML_TYPE_Q4_0;
    default:
        return GGML_TYPE_F16;
    }
}

/* The whole arena as a matrix of rows. The buffer object only tells ggml that the memory is the CPU's. */
static struct ggml_tensor *arena(struct ggml_context *ctx, const struct wnw__cache *c,
                                 const struct wnw__kv_layer *l, uint8_t *data, ggml_backend_buffer_t *buf)
{
    if (!*buf)
        *buf = ggml_backend_cpu_buffer_from_ptr(data, l->mapped_bytes);
    struct ggml_tensor *t = ggml_new_tensor_2d(ctx, ggml_kv_type(c->type), c->d, l->n_rows);
    t->data = data;
    t->buffer = *buf;
    return t;
}

static int32_t pad_keys(const struct wnw__cache *c, int32_t n)
{
    return (n + c->growth - 1) / c->growth * c->growth;
}

/* Masks depend on a head's length alone unless something hides entries by position, so most layers share one. */
static struct ggml_tensor *mask_for(struct wnw__attend_ggml *ag, struct ggml_context *ctx, int32_t il,
                                    int32_t ih)
{
    const wnw_session *s = ag->s;
    const struct wnw__kv_layer *l = &s->cache.layers[il];
    const uint8_t *hidden = s->hidden ? s->hidden[(int64_t)il * s->cache.n_head_kv + ih] : NULL;
    for (int32_t i = 0; i < ag->n_masks && !hidden; i++) {
        const struct mask *m = &ag->masks[i];
        if (!m->hidden && m->len == l->len[ih] && m->layer->n_swa == l->n_swa)
            return m->t;
    }
    struct mask *m = &ag->masks[ag->n_masks++];
    *m = (struct mask){.layer = l, .hidden = hidden, .ih = ih, .len = l->len[ih]};
    m->t = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, pad_keys(&s->cache, m->len + ag->n_tok), ag->n_tok);
    ggml_set_input(m->t);
    return m->t;
}

static bool is_rectangular(const wnw_session *s, const struct wnw__kv_layer *l)
{
    for (int32_t ih = 1; ih < s->cache.n_head_kv; ih++) {
        if (l->len[ih] != l->len[0] || l->cap[ih] != l->cap[0])
            return false;
    }
    return !s->hidden;
}

/* Heads ih .. ih + n_heads - 1, which have the same length and capacity. q [d, n_tok, n_head] permuted. */
static struct ggml_tensor *flash(struct wnw__attend_ggml *ag, struct ggml_context *ctx, int32_t il,
                                 int32_t ih, int32_t n_heads, struct ggml_tensor *q, struct ggml_tensor *ka,
                                 struct ggml_tensor *va)
{
    const struct wnw__cache *c = &ag->s->cache;
    const struct wnw__kv_layer *l = &c->layers[il];
    const int64_t group = q->ne[2] / c->n_head_kv;
    const int32_t n_kv = pad_keys(c, l->len[ih] + ag->n_tok);
    const size_t at = (size_t)l->off[ih] * c->row_bytes, stride = (size_t)l->cap[ih] * c->row_bytes;
    struct ggml_tensor *k = ggml_view_3d(ctx, ka, c->d, n_kv, n_heads, c->row_bytes, stride, at);
    struct ggml_tensor *v = ggml_view_3d(ctx, va, c->d, n_kv, n_heads, c->row_bytes, stride, at);
    struct ggml_tensor *qh = n_heads == c->n_head_kv
                                 ? q
                                 : ggml_view_3d(ctx, q, q->ne[0], q->ne[1], group * n_heads, q->nb[1],
                                                q->nb[2], (size_t)(ih * group) * q->nb[2]);
    struct ggml_tensor *out =
        ggml_flash_attn_ext(ctx, qh, k, v, mask_for(ag, ctx, il, ih), ag->s->ops[il].scale, 0.0f, 0.0f);
    ggml_prec_set_acc(out, GGML_PREC_F32);
    return out; /* [d, group * n_heads, n_tok] */
}

struct ggml_tensor *wnw__attend_ggml_build(struct wnw__attend_ggml *ag, struct ggml_context *ctx,
                                           struct ggml_cgraph *gf, int32_t il, struct ggml_tensor *q,
                                           struct ggml_tensor *k, struct ggml_tensor *v)
{
    const struct wnw__cache *c = &ag->s->cache;
    const struct wnw__kv_layer *l = &c->layers[il];
    ag->n_tok = (int32_t)q->ne[2];
    ag->rows[il] = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, (int64_t)ag->n_tok * c->n_head_kv);
    ggml_set_input(ag->rows[il]);
    struct ggml_tensor *ka = arena(ctx, c, l, l->k, &ag->k_buf[il]);
    struct ggml_tensor *va = arena(ctx, c, l, l->v, &ag->v_buf[il]);
    const int64_t n_new = k->ne[1] * k->ne[2];
    /* Stored before it is read: the graph has no edge that says so, only this order. */
    ggml_build_forward_expand(gf, ggml_set_rows(ctx, ka, ggml_reshape_2d(ctx, k, c->d, n_new), ag->rows[il]));
    ggml_build_forward_expand(gf, ggml_set_rows(ctx, va, ggml_reshape_2d(ctx, v, c->d, n_new), ag->rows[il]));

    struct ggml_tensor *qp = ggml_permute(ctx, q, 0, 2, 1, 3);
    struct ggml_tensor *out = NULL;
    if (is_rectangular(ag->s, l)) {
        out = flash(ag, ctx, il, 0, c->n_head_kv, qp, ka, va);
    } else {
        for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
            struct ggml_tensor *head = flash(ag, ctx, il, ih, 1, qp, ka, va);
            out = out ? ggml_concat(ctx, out, head, 1) : head;
        }
    }
    return ggml_reshape_2d(ctx, out, q->ne[0] * q->ne[1], ag->n_tok);
}

static void fill_mask(const struct mask *m, int32_t n_past, int32_t n_tok, int32_t hidden_n,
                      ggml_fp16_t *data)
{
    const ggml_fp16_t open = ggml_fp32_to_fp16(0.0f), shut = ggml_fp32_to_fp16(-INFINITY);
    const int32_t *pos = m->layer->pos + m->layer->off[m->ih];
    const int64_t n_kv = m->t->ne[0];
    for (int32_t t = 0; t < n_tok; t++) {
        const int32_t p = n_past + t;
        for (int64_t i = 0; i < n_kv; i++) {
            bool sees = i < m->len + t + 1;
            if (sees && m->layer->n_swa > 0)
                sees = p - (i < m->len ? pos[i] : n_past + (int32_t)i - m->len) < m->layer->n_swa;
            if (sees && m->hidden && i < hidden_n)
                sees = !m->hidden[i];
            data[t * n_kv + i] = sees ? open : shut;
        }
    }
}

int wnw__attend_ggml_fill(struct wnw__attend_ggml *ag)
{
    const wnw_session *s = ag->s;
    const struct wnw__cache *c = &s->cache;
    for (int32_t i = 0; i < ag->n_masks; i++) {
        const struct mask *m = &ag->masks[i];
        if (!m->t->data)
            continue;
        ggml_fp16_t *data = malloc(ggml_nbytes(m->t));
        if (!data)
            return wnw__fail(WNW_E_NOMEM, "no memory for an attention mask of %zu bytes", ggml_nbytes(m->t));
        fill_mask(m, s->n_past, ag->n_tok, s->hidden_n, data);
        ggml_backend_tensor_set(m->t, data, 0, ggml_nbytes(m->t));
        free(data);
    }
    int64_t *rows = malloc((size_t)ag->n_tok * (size_t)c->n_head_kv * sizeof *rows);
    if (!rows)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d row indices", (int)ag->n_tok);
    for (int32_t il = 0; il < c->n_layer; il++) {
        const struct wnw__kv_layer *l = &c->layers[il];
        for (int32_t t = 0; t < ag->n_tok; t++) {
            for (int32_t ih = 0; ih < c->n_head_kv; ih++)
                rows[(int64_t)t * c->n_head_kv + ih] = l->off[ih] + l->len[ih] + t;
        }
        if (ag->rows[il] && ag->rows[il]->data)
            ggml_backend_tensor_set(ag->rows[il], rows, 0, ggml_nbytes(ag->rows[il]));
    }
    free(rows);
    return WNW_OK;
}
