/* SPDX-License-Identifier: MIT */
/*
 * The transformer graph: one function per block. The order of operations is llama.cpp's, so that with the
 * ggml attention the logits are bit for bit those of llama.cpp.
 *
 * With our own attention a graph depends on nothing that changes between batches of one shape: it reaches
 * caches, slices and recorders through the engine when it runs. So it is built and planned once per shape.
 */
#include "forward/graph.h"

#include "attend/attend.h"
#include "base/memory.h"
#include "forward/engine_impl.h"
#include "forward/matmul.h"
#include "forward/norm.h"
#include "model/rope.h"

#include <stdlib.h>
#include <string.h>

/* A bound on the bytes that ggml's allocator uses per node and its sources: about 450, and a quarter more for
 * hashing. */
enum { ALLOCATOR_NODE = 1024 };

void wnw__graph_free(struct wnw__graph *g)
{
    wnw__attend_ggml_free(g->ggml);
    if (g->alloc)
        ggml_gallocr_free(g->alloc);
    ggml_free(g->ctx);
    free(g->arena);
    free(g->work);
    free(g->records);
    free(g->stages);
    *g = (struct wnw__graph){0};
}

/* ---- Blocks ---- */

/* With the ggml attention every operation is ggml's. */
static bool is_all_ggml(const wnw_engine *e)
{
    return e->params.attn == WNW_ATTN_GGML;
}

static struct ggml_tensor *rms_norm(const struct wnw__graph *g, const wnw_engine *e, struct ggml_tensor *x,
                                    struct ggml_tensor *w)
{
    const struct wnw__hparams *hp = &e->m->hp;
    return is_all_ggml(e) ? ggml_mul(g->ctx, ggml_rms_norm(g->ctx, x, hp->rms_eps), w)
                          : wnw__norm_node(g->ctx, x, w, &hp->rms_eps);
}

/* The nodes of the graph since the last mark, up to t, are work of this kind. Only for engines that measure. */
static void mark(struct wnw__graph *g, wnw_engine *e, enum wnw__work_kind kind, struct ggml_tensor *t)
{
    if (!g->timed)
        return;
    ggml_build_forward_expand(g->gf, t);
    ggml_build_forward_expand(g->gf, wnw__mark_node(g->ctx, &e->times, kind, t));
}

/* What products multiply; the tensor that ggml's need, and what our own take, made for the first of them. */
struct operand {
    struct wnw__operand of;
    struct ggml_tensor *x;
    struct wnw__operand input;
};

static struct operand plain(struct ggml_tensor *x)
{
    return (struct operand){.of = {.kind = WNW_OPERAND_PLAIN, .a = x}, .x = x};
}

static struct operand rms_normed(struct ggml_tensor *x, struct ggml_tensor *w)
{
    return (struct operand){.of = {.kind = WNW_OPERAND_RMS_NORM, .a = x, .b = w}};
}

/* Makes the tensor. */
static void as_tensor(struct wnw__graph *g, wnw_engine *e, struct operand *a)
{
    if (a->x)
        return;
    a->x = a->of.kind == WNW_OPERAND_RMS_NORM ? rms_norm(g, e, a->of.a, a->of.b)
                                              : ggml_swiglu_split(g->ctx, a->of.a, a->of.b);
    a->of = plain(a->x).of;
    mark(g, e, WNW_WORK_OTHER, a->x);
}

/* Makes what our own products take. A single token's is made by each of them, which counts as their work. */
static void as_input(struct wnw__graph *g, wnw_engine *e, struct operand *a)
{
    if (a->input.a)
        return;
    a->input = wnw__matmul_input(e->matmul, g->ctx, &a->of);
    if (a->of.kind != WNW_OPERAND_PLAIN && a->input.kind == WNW_OPERAND_READY)
        mark(g, e, WNW_WORK_OTHER, a->input.a);
}

/* Whether our own kernels multiply w. */
static bool is_ours(const wnw_engine *e, const struct ggml_tensor *w, int64_t n_row)
{
    return !is_all_ggml(e) && wnw__matmul_takes(w, n_row, wnw__model_original(e->m, w) != w);
}

/* y[i] = w[i] a for n weights. */
static void multiply(struct wnw__graph *g, wnw_engine *e, struct ggml_tensor *const *w, int n,
                     struct operand *a, struct ggml_tensor **y)
{
    struct ggml_context *ctx = g->ctx;
    const int64_t n_row = a->of.a->ne[1];
    struct ggml_tensor *ours[WNW_MATMUL_TOGETHER]; /* NULL: ggml's */
    int n_ours = 0;
    for (int i = 0; i < n; i++) {
        wnw__times_product(&g->products[w[i] == e->m->w.output ? WNW_WORK_LOGITS : WNW_WORK_WEIGHTS], w[i],
                           n_row);
        ours[i] = is_ours(e, w[i], n_row) ? wnw__model_original(e->m, w[i]) : NULL;
        n_ours += ours[i] != NULL;
    }
    if (n_ours < n)
        as_tensor(g, e, a);
    if (n_ours > 0)
        as_input(g, e, a);
    /* Products of a single token are short, and between nodes threads wait for each other. */
    struct ggml_tensor *all =
        n_row == 1 && n_ours == n ? wnw__matmul_node(e->matmul, ctx, ours, n, &a->input) : NULL;
    size_t at = 0;
    for (int i = 0; i < n; at += (size_t)w[i]->ne[1] * sizeof(float), i++)
        if (all)
            y[i] = ggml_view_1d(ctx, all, w[i]->ne[1], at);
        else if (ours[i])
            y[i] = wnw__matmul_node(e->matmul, ctx, &ours[i], 1, &a->input);
        else
            y[i] = ggml_mul_mat(ctx, w[i], a->x);
}

static struct ggml_tensor *multiply_one(struct wnw__graph *g, wnw_engine *e, struct ggml_tensor *w,
                                        struct operand *a)
{
    struct ggml_tensor *y;
    multiply(g, e, &w, 1, a, &y);
    return y;
}

/* The bias or factor that a matrix may have; NULL = none. The order of the two is libllama's. */
static struct ggml_tensor *add_bias(struct ggml_context *ctx, struct ggml_tensor *y, struct ggml_tensor *bias)
{
    return bias ? ggml_add(ctx, y, bias) : y;
}

static struct ggml_tensor *times_factor(struct ggml_context *ctx, struct ggml_tensor *y,
                                        struct ggml_tensor *factor)
{
    return factor ? ggml_mul(ctx, y, factor) : y;
}

/* y as heads [d, n, n_row]. */
static struct ggml_tensor *heads(struct wnw__graph *g, wnw_engine *e, struct ggml_tensor *y,
                                 struct ggml_tensor *factor, struct ggml_tensor *bias, int64_t d)
{
    y = add_bias(g->ctx, times_factor(g->ctx, y, factor), bias);
    mark(g, e, WNW_WORK_WEIGHTS, y);
    return ggml_reshape_3d(g->ctx, y, d, y->ne[0] / d, y->ne[1]);
}

static struct ggml_tensor *rope(struct ggml_context *ctx, const struct wnw_model *m, int32_t il,
                                struct ggml_tensor *x, struct ggml_tensor *pos)
{
    const struct wnw__hparams *hp = &m->hp;
    const struct wnw__rope r = wnw__rope_of_layer(hp, il);
    return ggml_rope_ext(ctx, x, pos, m->w.rope_freqs, hp->n_rot, m->arch->rope_type, hp->n_ctx_train, r.base,
                         r.scale, 0.0f, 1.0f, 32.0f, 1.0f);
}

/* The sources are: the queries; the attention's output, or the queries again where there is none; the node
 * that must run before this one, or the queries again. */
static void record_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    const struct wnw__record_op *op = userdata;
    const wnw_engine *e = op->e;
    const struct ggml_tensor *q = dst->src[0], *out = dst->src[1];
    for (int32_t i = 0; i < e->batch->n_slice; i++) {
        const size_t row = (size_t)e->slices[i].first_row;
        struct wnw__record_rows rows = {.pass = &e->passes[i],
                                        .point = op->point,
                                        .il = op->il,
                                        .stage = op->stage,
                                        .reader = op->reader,
                                        .token_stride = q->nb[2] / sizeof(float),
                                        .head_stride = q->nb[1] / sizeof(float),
                                        .attend = &e->ops[op->il],
                                        .i_slice = i};
        rows.q = (const float *)q->data + row * rows.token_stride;
        if (out != q)
            rows.out = (const float *)out->data + row * (size_t)out->ne[0];
        wnw__recorders_take(e->batch->slice[i].recorders, &rows, ith, nth);
    }
}

struct ggml_tensor *wnw__graph_record(struct ggml_context *ctx, struct wnw__record_op *op,
                                      struct ggml_tensor *q, struct ggml_tensor *out,
                                      struct ggml_tensor *before)
{
    struct ggml_tensor *args[3] = {q, out, before};
    return ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, args, 3, record_node, GGML_N_TASKS_MAX, op);
}

/* Adds a node for every stage that recorders want at the point. out is NULL in front of the attention. */
static void record(struct wnw__graph *g, wnw_engine *e, enum wnw__point point, int32_t il,
                   struct ggml_tensor *q, struct ggml_tensor *out)
{
    const int n_stage = g->stages[il * WNW_N_POINTS + (int32_t)point];
    struct ggml_tensor *args[3] = {q, out ? out : q, q};
    if (out || n_stage > 0)
        mark(g, e, out ? WNW_WORK_ATTENTION : WNW_WORK_OTHER, args[1]);
    for (int stage = 0; stage < n_stage; stage++) {
        struct wnw__record_op *op = &g->records[g->n_record++];
        *op = (struct wnw__record_op){.e = e, .point = point, .il = il, .stage = stage};
        args[2] = wnw__graph_record(g->ctx, op, q, args[1], args[2]);
        ggml_build_forward_expand(g->gf, args[2]);
    }
    if (n_stage > 0)
        mark(g, e, WNW_WORK_OBSERVATION, args[2]);
}

/* Shows recorders what the attention reads. The norm is computed by itself for them, so that the operand of the products,
 * and with it every bit of what follows, is the same as without recorders. */
static void record_input(struct wnw__graph *g, wnw_engine *e, int32_t il, const struct operand *in)
{
    if (g->stages[il * WNW_N_POINTS + WNW_POINT_INPUT] == 0)
        return;
    struct ggml_tensor *x = rms_norm(g, e, in->of.a, in->of.b);
    record(g, e, WNW_POINT_INPUT, il, ggml_reshape_3d(g->ctx, x, x->ne[0], 1, x->ne[1]), NULL);
}

/* Whether the rows of the layer's output are those alone that are asked for; what follows its attention is computed for no other. */
static bool is_pruned(const struct wnw__graph *g, const wnw_engine *e, int32_t il)
{
    return il == e->m->hp.n_layer - 1 && g->out_ids;
}

/* in [n_embd, n_row] -> attention output before the residual, [n_embd, n_row] or the rows that are asked for. With ggml's
 * attention all rows are multiplied, because libllama does so, and the bits of its products depend on how many there are. */
static struct ggml_tensor *attention(struct wnw__graph *g, wnw_engine *e, int32_t il, struct operand in)
{
    struct ggml_context *ctx = g->ctx;
    const struct wnw__hparams *hp = &e->m->hp;
    const struct wnw__layer_weights *l = &e->m->layers[il];
    struct ggml_tensor *qkv[3];
    mark(g, e, WNW_WORK_OTHER, in.of.a);
    record_input(g, e, il, &in);
    multiply(g, e, (struct ggml_tensor *[]){l->wq, l->wk, l->wv}, 3, &in, qkv);
    struct ggml_tensor *q = heads(g, e, qkv[0], l->q_factor, l->bq, hp->n_embd_head);
    struct ggml_tensor *k = heads(g, e, qkv[1], l->k_factor, l->bk, hp->n_embd_head);
    struct ggml_tensor *v = heads(g, e, qkv[2], l->v_factor, l->bv, hp->n_embd_head);
    if (l->q_norm) {
        q = rms_norm(g, e, q, l->q_norm);
        k = rms_norm(g, e, k, l->k_norm);
    }
    record(g, e, WNW_POINT_QUERIES, il, q, NULL);
    q = rope(ctx, e->m, il, q, g->pos);
    k = rope(ctx, e->m, il, k, g->pos);
    if (hp->q_scale != 1.0f)
        q = ggml_scale(ctx, q, hp->q_scale);
    if (g->masks)
        q = wnw__attend_mask_queries(ctx, &e->ops[il], q);
    mark(g, e, WNW_WORK_OTHER, q);
    mark(g, e, WNW_WORK_OTHER, k);
    struct ggml_tensor *out = g->ggml ? wnw__attend_ggml_build(g->ggml, ctx, g->gf, &e->ops[il], q, k, v)
                                      : wnw__attend_own(ctx, &e->ops[il], q, k, v);
    if (g->masks)
        out = wnw__attend_mask(ctx, &e->ops[il], out);
    record(g, e, WNW_POINT_ATTENTION, il, ggml_is_contiguous(q) ? q : ggml_cont(ctx, q), out);
    if (is_pruned(g, e, il) && !g->ggml)
        out = ggml_get_rows(ctx, out, g->out_ids);
    struct operand heads_out = plain(out);
    out = multiply_one(g, e, l->wo, &heads_out);
    out = add_bias(ctx, times_factor(ctx, out, l->o_factor), l->bo);
    mark(g, e, WNW_WORK_WEIGHTS, out);
    return out;
}

static struct ggml_tensor *feed_forward(struct wnw__graph *g, wnw_engine *e, int32_t il, struct operand in)
{
    const struct wnw__layer_weights *l = &e->m->layers[il];
    struct ggml_tensor *wide[2]; /* up and gate */
    mark(g, e, WNW_WORK_OTHER, in.of.a);
    multiply(g, e, (struct ggml_tensor *[]){l->ffn_up, l->ffn_gate}, 2, &in, wide);
    wide[0] = times_factor(g->ctx, add_bias(g->ctx, wide[0], l->up_bias), l->up_factor);
    wide[1] = times_factor(g->ctx, add_bias(g->ctx, wide[1], l->gate_bias), l->gate_factor);
    mark(g, e, WNW_WORK_WEIGHTS, wide[0]);
    mark(g, e, WNW_WORK_WEIGHTS, wide[1]);
    if (e->m->arch->gelu) {
        in = plain(ggml_geglu_split(g->ctx, wide[1], wide[0]));
        mark(g, e, WNW_WORK_OTHER, in.x);
    } else {
        in = (struct operand){.of = {.kind = WNW_OPERAND_SWIGLU, .a = wide[1], .b = wide[0]}};
    }
    struct ggml_tensor *down = multiply_one(g, e, l->ffn_down, &in);
    down = times_factor(g->ctx, add_bias(g->ctx, down, l->down_bias), l->down_factor);
    mark(g, e, WNW_WORK_WEIGHTS, down);
    return down;
}

static struct ggml_tensor *transformer_layer(struct wnw__graph *g, wnw_engine *e, int32_t il,
                                             struct ggml_tensor *x)
{
    struct ggml_context *ctx = g->ctx;
    const struct wnw__layer_weights *l = &e->m->layers[il];
    struct ggml_tensor *cur = attention(g, e, il, rms_normed(x, l->attn_norm));
    if (is_pruned(g, e, il)) {
        cur = g->ggml ? ggml_get_rows(ctx, cur, g->out_ids) : cur;
        x = ggml_get_rows(ctx, x, g->out_ids);
    }
    if (l->attn_post_norm)
        cur = rms_norm(g, e, cur, l->attn_post_norm);
    struct ggml_tensor *mid = ggml_add(ctx, cur, x);
    cur = feed_forward(g, e, il, rms_normed(mid, l->ffn_norm));
    if (l->ffn_post_norm)
        cur = rms_norm(g, e, cur, l->ffn_post_norm);
    cur = ggml_add(ctx, cur, mid);
    if (cur->ne[1] == g->n_row)
        record(g, e, WNW_POINT_STATE, il, ggml_reshape_3d(ctx, cur, cur->ne[0], 1, cur->ne[1]), NULL);
    return cur;
}

static struct ggml_tensor *logits(struct wnw__graph *g, wnw_engine *e, struct ggml_tensor *x)
{
    struct ggml_context *ctx = g->ctx;
    const struct wnw__weights *w = &e->m->w;
    const float cap = e->m->hp.logit_cap;
    struct operand last = rms_normed(x, w->output_norm);
    mark(g, e, WNW_WORK_OTHER, x);
    x = multiply_one(g, e, w->output, &last);
    x = add_bias(ctx, times_factor(ctx, x, w->output_factor), w->output_bias);
    if (cap != 0.0f)
        x = ggml_scale(ctx, ggml_tanh(ctx, ggml_scale(ctx, x, 1.0f / cap)), cap);
    mark(g, e, WNW_WORK_LOGITS, x);
    return x;
}

/* ---- A graph ---- */

/* The hidden states that enter the graph's first layer. */
static struct ggml_tensor *input(struct wnw__graph *g, const struct wnw_model *m)
{
    if (g->from > 0) {
        g->x_in = ggml_new_tensor_2d(g->ctx, GGML_TYPE_F32, m->hp.n_embd, g->n_row);
        ggml_set_input(g->x_in);
        return g->x_in;
    }
    g->tokens = ggml_new_tensor_1d(g->ctx, GGML_TYPE_I32, g->n_row);
    ggml_set_input(g->tokens);
    struct ggml_tensor *x = ggml_get_rows(g->ctx, m->w.tok_embd, g->tokens);
    return m->hp.embd_scale != 1.0f ? ggml_scale(g->ctx, x, m->hp.embd_scale) : x;
}

static int new_context(struct wnw__graph *g, size_t max_nodes)
{
    const size_t size = max_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(max_nodes, false);
    if (size > g->arena_size) {
        free(g->arena);
        g->arena = malloc(size);
        g->arena_size = g->arena ? size : 0;
        if (!g->arena)
            return wnw__fail(WNW_E_NOMEM, "no memory for a graph of %zu nodes", max_nodes);
    }
    WNW_TRY(wnw__memory_check(WNW_MEMORY_SMALL, "a graph"));
    g->ctx = ggml_init((struct ggml_init_params){.mem_size = size, .mem_buffer = g->arena, .no_alloc = true});
    return g->ctx ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for a graph of %zu nodes", max_nodes);
}

/* Notes the shape of the engine's present batch as the one that the graph is built for. */
static int set_shape(struct wnw__graph *g, const wnw_engine *e)
{
    const struct wnw__batch *b = e->batch;
    const size_t n = (size_t)e->m->hp.n_layer * WNW_N_POINTS;
    size_t n_record = 0;
    for (size_t i = 0; i < n; i++)
        n_record += e->stages[i];
    if (!g->stages)
        g->stages = malloc(n);
    g->records = calloc(n_record + 1, sizeof *g->records);
    if (!g->stages || !g->records)
        return wnw__fail(WNW_E_NOMEM, "no memory for a graph of %d layers", (int)(b->to - b->from));
    memcpy(g->stages, e->stages, n);
    g->from = b->from;
    g->to = b->to;
    g->n_row = b->n_row;
    g->n_out = b->n_out;
    g->masks = e->masks;
    g->timed = e->times.on;
    return WNW_OK;
}

static int build(struct wnw__graph *g, wnw_engine *e)
{
    const struct wnw__batch *b = e->batch;
    const struct wnw__hparams *hp = &e->m->hp;
    const bool ggml = e->params.attn == WNW_ATTN_GGML;
    WNW_TRY(set_shape(g, e));
    const size_t per_layer = 112 + (ggml ? wnw__attend_ggml_nodes(&e->attend) : 0);
    const size_t max_nodes = (size_t)(b->to - b->from) * per_layer + 64;
    WNW_TRY(new_context(g, max_nodes));
    g->gf = ggml_new_graph_custom(g->ctx, max_nodes, false);
    g->pos = ggml_new_tensor_1d(g->ctx, GGML_TYPE_I32, b->n_row);
    ggml_set_input(g->pos);
    if (b->to == hp->n_layer && b->n_out < b->n_row) {
        g->out_ids = ggml_new_tensor_1d(g->ctx, GGML_TYPE_I32, b->n_out);
        ggml_set_input(g->out_ids);
    }
    if (ggml)
        WNW_TRY(wnw__attend_ggml_new(&g->ggml, &e->attend));
    struct ggml_tensor *x = input(g, e->m);
    for (int32_t il = b->from; il < b->to; il++)
        x = transformer_layer(g, e, il, x);
    if (b->to < hp->n_layer) {
        g->x_out = x;
    } else {
        g->logits = x = logits(g, e, x);
    }
    ggml_set_output(x);
    ggml_build_forward_expand(g->gf, x);
    return WNW_OK;
}

/* Gives the graph memory. Buffers of an earlier graph are used again if they are large enough. */
static int allocate(struct wnw__graph *g, const struct wnw__team *team)
{
    WNW_TRY(wnw__memory_check((size_t)ggml_graph_n_nodes(g->gf) * ALLOCATOR_NODE + WNW_MEMORY_SMALL,
                              "the allocator of a graph"));
    if (!g->alloc)
        g->alloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    /* Memory is planned again for each graph. ggml notices when nodes differ from those of the graph before. It does
     * not notice another order of inputs and weights, as when heads share other masks. */
    if (!g->alloc || !ggml_gallocr_reserve(g->alloc, g->gf) || !ggml_gallocr_alloc_graph(g->alloc, g->gf))
        return wnw__fail(WNW_E_NOMEM, "no memory for the activations of a graph");
    g->plan = ggml_graph_plan(g->gf, team->pool.n_threads, team->threads);
    if (g->plan.work_size > g->work_size) {
        free(g->work);
        g->work = malloc(g->plan.work_size);
        g->work_size = g->work ? g->plan.work_size : 0;
        if (!g->work)
            return wnw__fail(WNW_E_NOMEM, "no memory for %zu bytes of work space", g->plan.work_size);
    }
    g->plan.work_data = g->work;
    return WNW_OK;
}

/* Forgets the graph but keeps its memory for the next one. */
static void clear_graph(struct wnw__graph *g)
{
    wnw__attend_ggml_free(g->ggml);
    ggml_free(g->ctx);
    free(g->records);
    *g = (struct wnw__graph){.stages = g->stages,
                             .arena = g->arena,
                             .arena_size = g->arena_size,
                             .alloc = g->alloc,
                             .work = g->work,
                             .work_size = g->work_size};
}

bool wnw__graph_fits(const struct wnw__graph *g, const wnw_engine *e)
{
    const struct wnw__batch *b = e->batch;
    return g->ctx && !g->ggml && g->from == b->from && g->to == b->to && g->n_row == b->n_row &&
           (b->to < e->m->hp.n_layer || g->n_out == b->n_out) && g->masks == e->masks &&
           g->timed == e->times.on &&
           memcmp(g->stages, e->stages, (size_t)e->m->hp.n_layer * WNW_N_POINTS) == 0;
}

int wnw__graph_build(struct wnw__graph *g, wnw_engine *e)
{
    clear_graph(g);
    int rc = build(g, e);
    if (rc == WNW_OK)
        rc = allocate(g, e->team);
    if (rc != WNW_OK)
        clear_graph(g);
    return rc;
}
