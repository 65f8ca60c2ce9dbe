/* SPDX-License-Identifier: MIT */
/*
 * Gates on hidden states where X's memory is not the host's. A linear gate is one product: W [n_head_kv][n_embd] times what the attention of a
 * layer reads. So X computes it, and the host fetches n_head_kv numbers of a token in place of n_embd. Other forms are evaluated by the host,
 * from copies, as all are where the host reads X's memory: then nothing is sent, and scores are those of the device WINNOW, bit for bit.
 */
#include "bridge/sequence/sequence.h"
#include "bridge/wrap/wrap.h"
#include "profile/profile.h"

#include <stdlib.h>

/* Bytes of a layer's table up to the next one. */
static size_t table_bytes(const struct wnw__wrap *w, const struct wnw__input_gate *g, int32_t n_head)
{
    return wnw__wrap_align(w, (size_t)n_head * (size_t)g->n_embd * sizeof(float));
}

/* A layer's product with hidden states x, without memory. */
static struct ggml_tensor *product(struct ggml_context *ctx, const struct wnw__input_gate *g, int32_t n_head,
                                   struct ggml_tensor *x, struct ggml_tensor **table)
{
    *table = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, g->n_embd, n_head);
    return ggml_mul_mat(ctx, *table, x);
}

/* Whether X computes such products. */
static int ask(bool *can, struct wnw__wrap *w, const struct wnw__input_gate *g, int32_t n_head)
{
    enum { N_TENSOR = 6, N_ROW = 16 };
    struct ggml_context *ctx =
        ggml_init((struct ggml_init_params){.mem_size = N_TENSOR * ggml_tensor_overhead(), .no_alloc = true});
    if (!ctx)
        return wnw__fail(WNW_E_NOMEM, "no memory to ask what %s computes", wnw__wrap_x_name(w));
    *can = true;
    for (int64_t n = 1; n <= N_ROW && *can; n += N_ROW - 1) {
        struct ggml_tensor *table;
        *can = wnw__wrap_supports(
            w, product(ctx, g, n_head, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, g->n_embd, n), &table));
    }
    ggml_free(ctx);
    return WNW_OK;
}

/* Sends the tables of all layers. No graph reads what was there. */
static int upload(struct wnw__wrap_run *r, const struct wnw__input_gate *g, const struct wnw__shape *shape)
{
    const size_t table = table_bytes(r->w, g, shape->n_head_kv), all = table * (size_t)shape->n_layer;
    WNW_TRY(wnw__wrap_memory_need(r, &r->gates, all));
    uint8_t *host = calloc(all, 1);
    if (!host)
        return wnw__fail(WNW_E_NOMEM, "no memory for the gates of %d layers", (int)shape->n_layer);
    for (int32_t il = 0; il < shape->n_layer; il++)
        memcpy(host + table * (size_t)il, g->number + wnw__input_numbers(g, shape) * il,
               (size_t)shape->n_head_kv * (size_t)g->n_embd * sizeof(float));
    struct ggml_tensor t;
    wnw__wrap_bytes_at(&t, r->gates.buffer, ggml_backend_buffer_get_base(r->gates.buffer), all);
    ggml_backend_tensor_set(&t, host, 0, all);
    free(host);
    return WNW_OK;
}

int wnw__wrap_gates_need(struct wnw__bridge_backend *b)
{
    struct wnw__wrap_run *r = b->wrap;
    const struct wnw__input_gate *g = wnw__bridge_gates_of(b);
    if (!g || g->form != WNW_INPUT_LINEAR || ggml_backend_buft_is_host(r->w->xt)) {
        r->gates_on_x = false;
        r->gates_of = NULL;
        return WNW_OK;
    }
    if (r->gates_of == g->number && r->gates_profile == b->watch.n_profile)
        return WNW_OK;
    const struct wnw__shape *shape = &b->watch.profile->model;
    r->gates_of = NULL;
    WNW_TRY(ask(&r->gates_on_x, r->w, g, shape->n_head_kv));
    if (r->gates_on_x)
        WNW_TRY(upload(r, g, shape));
    r->gates_of = g->number;
    r->gates_profile = b->watch.n_profile;
    return WNW_OK;
}

struct ggml_tensor *wnw__wrap_gates_product(struct wnw__bridge_backend *b, struct ggml_context *ctx,
                                            const struct wnw__bridge_layer *l, struct ggml_tensor *x)
{
    struct wnw__wrap_run *r = b->wrap;
    const struct wnw__input_gate *g = wnw__bridge_gates_of(b);
    struct ggml_tensor *table, *y = product(ctx, g, l->n_head, x, &table);
    ggml_backend_tensor_alloc(r->gates.buffer, table,
                              (uint8_t *)ggml_backend_buffer_get_base(r->gates.buffer) +
                                  table_bytes(r->w, g, l->n_head) * (size_t)wnw__bridge_number(b, l));
    return y;
}

int wnw__wrap_gates_keep(struct wnw__bridge_backend *b, const struct wnw__bridge_site *p,
                         const float *products, int64_t n)
{
    const struct wnw__bridge_layer *l = p->layer;
    const struct wnw__input_gate *g = wnw__bridge_gates_of(b);
    const int32_t n_head = l->n_head;
    const float *bias = g->number +
                        wnw__input_numbers(g, &b->watch.profile->model) * wnw__bridge_number(b, l) +
                        (int64_t)n_head * g->n_embd;
    float *score = malloc((size_t)n_head * sizeof *score);
    if (!score)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of gates");
    wnw__wrap_need_gates(l);
    for (int64_t t = 0; t < n; t++) {
        for (int32_t ih = 0; ih < n_head; ih++)
            score[ih] = products[t * n_head + ih] + bias[ih];
        wnw__wrap_keep_gate(l, wnw__bridge_store_cell(p->store, t), score, 1);
    }
    free(score);
    return WNW_OK;
}
