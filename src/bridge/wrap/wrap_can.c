/* SPDX-License-Identifier: MIT */
/* What X must compute so that a layer can be ragged. It is asked before the layer is one: X ends the process at what it does not know. */
#include "bridge/wrap/wrap.h"

#include <stdlib.h>

enum { CAP = 256, N_ROW = 16, N_TENSOR = 64 };

struct asked {
    struct wnw__wrap *w;
    struct ggml_context *ctx;
    struct ggml_tensor *refused; /* the first; NULL: none */
};

static struct ggml_tensor *ask(struct asked *a, struct ggml_tensor *op)
{
    if (!a->refused && !wnw__wrap_supports(a->w, op))
        a->refused = op;
    return op;
}

static struct ggml_tensor *f32(struct asked *a, int64_t n0, int64_t n1)
{
    return ggml_new_tensor_2d(a->ctx, GGML_TYPE_F32, n0, n1);
}

/* Keys or values: rows are written, and moved as words. */
static struct ggml_tensor *ask_rows(struct asked *a, enum ggml_type type, int64_t d, int64_t n_head)
{
    const int64_t rows = CAP * n_head, bytes = (int64_t)ggml_row_size(type, d);
    struct ggml_tensor *t = ggml_new_tensor_2d(a->ctx, type, d, rows),
                       *index = ggml_new_tensor_1d(a->ctx, GGML_TYPE_I32, n_head);
    ask(a, ggml_set_rows(a->ctx, t, f32(a, d, n_head), index));
    if (bytes % 4 == 0)
        ask(a, ggml_get_rows(a->ctx, ggml_new_tensor_2d(a->ctx, GGML_TYPE_I32, bytes / 4, rows), index));
    const size_t head = (size_t)CAP * t->nb[1];
    return ggml_view_4d(a->ctx, t, d, CAP, 1, n_head, t->nb[1], head, head, 0);
}

/* Masks of heads, from libllama's, which is f16. */
static struct ggml_tensor *ask_masks(struct asked *a, int64_t n_row, int64_t n_head)
{
    const int64_t rows = CAP * n_head;
    struct ggml_tensor *number = f32(a, 1, rows), *m = f32(a, n_row, CAP + 1),
                       *seen = ggml_new_tensor_1d(a->ctx, GGML_TYPE_I32, rows),
                       *mask = ggml_new_tensor_2d(a->ctx, GGML_TYPE_F16, CAP, n_row);
    ask(a,
        ggml_set_rows(a->ctx, number, f32(a, 1, n_head), ggml_new_tensor_1d(a->ctx, GGML_TYPE_I32, n_head)));
    ask(a, ggml_cpy(a->ctx, ggml_reshape_1d(a->ctx, number, rows), seen));
    ask(a, ggml_cpy(a->ctx, ggml_transpose(a->ctx, mask),
                    ggml_view_2d(a->ctx, m, n_row, CAP, m->nb[1], m->nb[1])));
    struct ggml_tensor *found = ask(a, ggml_get_rows(a->ctx, m, seen));
    const size_t head = (size_t)CAP * found->nb[1];
    found = ggml_view_4d(a->ctx, found, n_row, CAP, 1, n_head, found->nb[1], head, head, 0);
    mask = ggml_new_tensor_4d(a->ctx, GGML_TYPE_F16, CAP, n_row, 1, n_head);
    ask(a, ggml_cpy(a->ctx, ggml_permute(a->ctx, found, 1, 0, 2, 3), mask));
    return mask;
}

/* What is computed once more where a policy wants to know what entries receive. */
static void ask_sums(struct asked *a, struct ggml_tensor *k, struct ggml_tensor *q, struct ggml_tensor *mask)
{
    struct ggml_tensor *keys = f32(a, k->ne[0], CAP);
    ask(a, ggml_cpy(a->ctx, ggml_view_2d(a->ctx, k, k->ne[0], CAP, k->nb[1], 0), keys));
    struct ggml_tensor *s =
        ask(a, ggml_mul_mat(a->ctx, keys,
                            ggml_view_3d(a->ctx, q, q->ne[0], q->ne[1], q->ne[2], q->nb[1], q->nb[2], 0)));
    s = ask(a, ggml_soft_max_ext(a->ctx, s, ggml_view_2d(a->ctx, mask, CAP, q->ne[1], mask->nb[1], 0), 1.0f,
                                 0.0f));
    s = ask(a, ggml_cont(a->ctx, ggml_permute(a->ctx, s, 1, 0, 2, 3)));
    ask(a, ggml_sum_rows(a->ctx, s));
}

static void ask_all(struct asked *a, const struct wnw__bridge_flash *f, int64_t n_row, bool sums)
{
    const struct wnw__bridge_layer *l = f->layer;
    const int64_t n_head = f->shape.n_head, group = f->q->ne[2] / n_head;
    struct ggml_tensor *k = ask_rows(a, l->k.type, f->shape.d_k, n_head),
                       *v = l->v.base ? ask_rows(a, l->v.type, f->shape.d_v, n_head) : k,
                       *q = ggml_new_tensor_4d(a->ctx, GGML_TYPE_F32, f->shape.d_k, n_row, group, n_head),
                       *mask = ask_masks(a, n_row, n_head);
    if (!l->v.base)
        v = ggml_view_4d(a->ctx, k, f->shape.d_v, CAP, 1, n_head, k->nb[1], k->nb[2], k->nb[3], 0);
    struct ggml_tensor *r = ggml_flash_attn_ext(a->ctx, q, k, v, mask, 1.0f, 0.0f, 0.0f);
    memcpy(r->op_params, f->node->op_params, sizeof r->op_params);
    if (f->sinks)
        ggml_flash_attn_ext_add_sinks(r, ggml_new_tensor_1d(a->ctx, GGML_TYPE_F32, group));
    ask(a, r);
    if (sums)
        ask_sums(a, k, q, mask);
}

static int refuse(const struct asked *a, const struct wnw__bridge_flash *f)
{
    return wnw__fail(WNW_E_UNSUPPORTED, "%s does not compute %s for heads of %d numbers with keys in %s",
                     wnw__wrap_x_name(a->w), ggml_op_name(a->refused->op), (int)f->shape.d_k,
                     ggml_type_name(f->layer->k.type));
}

int wnw__wrap_can(struct wnw__wrap *w, const struct wnw__bridge_flash *f, bool sums)
{
    const int64_t n_row[] = {1, N_ROW};
    struct asked a = {.w = w};
    a.ctx = ggml_init((struct ggml_init_params){
        .mem_size = 2 * N_TENSOR * ggml_tensor_overhead(), .mem_buffer = NULL, .no_alloc = true});
    if (!a.ctx)
        return wnw__fail(WNW_E_NOMEM, "no memory to ask what %s computes", wnw__wrap_x_name(w));
    for (size_t i = 0; i < sizeof n_row / sizeof *n_row && !a.refused; i++)
        ask_all(&a, f, n_row[i], sums);
    const int rc = a.refused ? refuse(&a, f) : WNW_OK;
    ggml_free(a.ctx);
    return rc;
}

int wnw__wrap_can_store(struct wnw__wrap *w, const struct ggml_tensor *t)
{
    struct asked a = {.w = w};
    a.ctx = ggml_init((struct ggml_init_params){
        .mem_size = N_TENSOR * ggml_tensor_overhead(), .mem_buffer = NULL, .no_alloc = true});
    if (!a.ctx)
        return wnw__fail(WNW_E_NOMEM, "no memory to ask what %s computes", wnw__wrap_x_name(w));
    ask(&a, ggml_set_rows(a.ctx, ggml_new_tensor_2d(a.ctx, t->type, t->ne[0], CAP), f32(&a, t->ne[0], 1),
                          ggml_new_tensor_1d(a.ctx, GGML_TYPE_I64, 1)));
    const int rc = a.refused ? wnw__fail(WNW_E_UNSUPPORTED,
                                         "%s does not store keys and values of type %s: take another type",
                                         wnw__wrap_x_name(w), ggml_type_name(t->type))
                             : WNW_OK;
    ggml_free(a.ctx);
    return rc;
}
