/* SPDX-License-Identifier: MIT */
/*
 * The transformer graph: one function per block, one graph per ubatch. The order of operations is
 * llama.cpp's, so that with the ggml attention the logits are bit for bit its own.
 *
 * With our own attention the graph of a single token depends on nothing that changes while decoding (the
 * cache is reached through userdata), so it is built and planned once.
 */
#include "forward/forward.h"
#include "attend/attend_ggml.h"
#include "base/memory.h"
#include "forward/matmul.h"
#include "model/rope.h"
#include "observe/observe.h"
#include "observe/qstats.h"
#include "session/session.h"

#include <stdlib.h>
#include <string.h>

/* What ggml's allocator notes of a node and its sources, in bytes: about 450, and a quarter for hashing. */
enum { ALLOCATOR_NODE = 1024 };

void wnw__graph_free(struct wnw__graph *g)
{
    wnw__attend_ggml_free(g->ggml);
    if (g->alloc)
        ggml_gallocr_free(g->alloc);
    ggml_free(g->ctx);
    free(g->arena);
    free(g->work);
    free(g->q_tail);
    *g = (struct wnw__graph){0};
}

static struct ggml_tensor *rms_norm(struct ggml_context *ctx, const struct wnw__hparams *hp,
                                    struct ggml_tensor *x, struct ggml_tensor *w)
{
    return ggml_mul(ctx, ggml_rms_norm(ctx, x, hp->rms_eps), w);
}

/* x, and its bytes for our own products once one was made: several share them. */
struct operand {
    struct ggml_tensor *x, *bytes;
};

/* w x. The ggml attention stands for ggml's operations throughout: there products are ggml's too. */
static struct ggml_tensor *multiply(struct ggml_context *ctx, const wnw_session *s, struct ggml_tensor *w,
                                    struct operand *a)
{
    const int64_t n_tok = a->x->ne[1];
    if (s->params.attn == WNW_ATTN_GGML || !wnw__matmul_takes(w, n_tok))
        return ggml_mul_mat(ctx, w, a->x);
    if (!a->bytes)
        a->bytes = wnw__matmul_input(ctx, a->x);
    return wnw__matmul_node(s->matmul, ctx, wnw__model_original(s->m, w), a->bytes, n_tok);
}

/* w x + b, as heads [d, n, n_tok]. */
static struct ggml_tensor *project(struct ggml_context *ctx, const wnw_session *s, struct ggml_tensor *w,
                                   struct ggml_tensor *b, struct operand *x, int64_t d)
{
    struct ggml_tensor *y = multiply(ctx, s, w, x);
    if (b)
        y = ggml_add(ctx, y, b);
    return ggml_reshape_3d(ctx, y, d, y->ne[0] / d, y->ne[1]);
}

static struct ggml_tensor *rope(struct ggml_context *ctx, const wnw_session *s, int32_t il,
                                struct ggml_tensor *x, struct ggml_tensor *pos)
{
    const struct wnw__hparams *hp = &s->m->hp;
    const struct wnw__rope r = wnw__rope_of_layer(hp, il);
    return ggml_rope_ext(ctx, x, pos, s->m->w.rope_freqs, hp->n_rot, s->m->arch->rope_type, hp->n_ctx_train,
                         r.base, r.scale, 0.0f, 1.0f, 32.0f, 1.0f);
}

/* Copies the newest queries out: the attention's input may be overwritten once it has been read. */
static void tap_queries(struct wnw__graph *g, const wnw_session *s, int32_t il, struct ggml_tensor *q)
{
    const int64_t n = q->ne[2] < s->window.cap ? q->ne[2] : s->window.cap;
    struct ggml_tensor *tail =
        ggml_view_3d(g->ctx, q, q->ne[0], q->ne[1], n, q->nb[1], q->nb[2], (size_t)(q->ne[2] - n) * q->nb[2]);
    g->q_tail[il] = ggml_cont(g->ctx, tail);
    ggml_set_output(g->q_tail[il]);
    ggml_build_forward_expand(g->gf, g->q_tail[il]);
}

/* x [n_embd, n_tok] -> attention output before the residual, [n_embd, n_tok]. */
static struct ggml_tensor *attention(struct wnw__graph *g, wnw_session *s, int32_t il, struct ggml_tensor *x)
{
    struct ggml_context *ctx = g->ctx;
    const struct wnw__hparams *hp = &s->m->hp;
    const struct wnw__layer_weights *l = &s->m->layers[il];
    struct operand in = {.x = x};
    struct ggml_tensor *q = project(ctx, s, l->wq, l->bq, &in, hp->n_embd_head);
    struct ggml_tensor *k = project(ctx, s, l->wk, l->bk, &in, hp->n_embd_head);
    struct ggml_tensor *v = project(ctx, s, l->wv, l->bv, &in, hp->n_embd_head);
    if (l->q_norm) {
        q = rms_norm(ctx, hp, q, l->q_norm);
        k = rms_norm(ctx, hp, k, l->k_norm);
    }
    struct ggml_tensor *stats = s->qstats ? wnw__qstats_build(s->qstats, ctx, il, q, g->pos) : NULL;
    if (stats)
        ggml_build_forward_expand(g->gf, stats);
    q = rope(ctx, s, il, q, g->pos);
    k = rope(ctx, s, il, k, g->pos);
    if (hp->q_scale != 1.0f)
        q = ggml_scale(ctx, q, hp->q_scale);
    if (g->q_tail)
        tap_queries(g, s, il, q);
    struct ggml_tensor *out = g->ggml ? wnw__attend_ggml_build(g->ggml, ctx, g->gf, &s->ops[il], q, k, v)
                                      : wnw__attend_own(ctx, &s->ops[il], q, k, v);
    wnw__trace_build(s, ctx, g->gf, il, q, out, g == &s->decode);
    return multiply(ctx, s, l->wo, &(struct operand){.x = out});
}

static struct ggml_tensor *feed_forward(struct ggml_context *ctx, const wnw_session *s, int32_t il,
                                        struct ggml_tensor *x)
{
    const struct wnw__layer_weights *l = &s->m->layers[il];
    struct operand in = {.x = x};
    struct ggml_tensor *up = multiply(ctx, s, l->ffn_up, &in);
    struct ggml_tensor *gate = multiply(ctx, s, l->ffn_gate, &in);
    struct ggml_tensor *h =
        s->m->arch->gelu ? ggml_geglu_split(ctx, gate, up) : ggml_swiglu_split(ctx, gate, up);
    return multiply(ctx, s, l->ffn_down, &(struct operand){.x = h});
}

static struct ggml_tensor *transformer_layer(struct wnw__graph *g, wnw_session *s, int32_t il,
                                             struct ggml_tensor *x)
{
    struct ggml_context *ctx = g->ctx;
    const struct wnw__hparams *hp = &s->m->hp;
    const struct wnw__layer_weights *l = &s->m->layers[il];
    struct ggml_tensor *cur = attention(g, s, il, rms_norm(ctx, hp, x, l->attn_norm));
    if (il == hp->n_layer - 1 && g->out_ids) {
        /* Only these rows are asked for; the feed-forward of the others would be thrown away. */
        cur = ggml_get_rows(ctx, cur, g->out_ids);
        x = ggml_get_rows(ctx, x, g->out_ids);
    }
    if (l->attn_post_norm)
        cur = rms_norm(ctx, hp, cur, l->attn_post_norm);
    struct ggml_tensor *mid = ggml_add(ctx, cur, x);
    cur = feed_forward(ctx, s, il, rms_norm(ctx, hp, mid, l->ffn_norm));
    if (l->ffn_post_norm)
        cur = rms_norm(ctx, hp, cur, l->ffn_post_norm);
    return ggml_add(ctx, cur, mid);
}

/* Hidden states that come into the span. */
static struct ggml_tensor *input(struct wnw__graph *g, const wnw_session *s, const struct wnw__span *span)
{
    const struct wnw__hparams *hp = &s->m->hp;
    if (span->from > 0) {
        g->x_in = ggml_new_tensor_2d(g->ctx, GGML_TYPE_F32, hp->n_embd, span->n);
        ggml_set_input(g->x_in);
        return g->x_in;
    }
    g->tokens = ggml_new_tensor_1d(g->ctx, GGML_TYPE_I32, span->n);
    ggml_set_input(g->tokens);
    struct ggml_tensor *x = ggml_get_rows(g->ctx, s->m->w.tok_embd, g->tokens);
    return hp->embd_scale != 1.0f ? ggml_scale(g->ctx, x, hp->embd_scale) : x;
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
    WNW_TRY(wnw__memory_look(WNW_MEMORY_SMALL, "a graph"));
    g->ctx = ggml_init((struct ggml_init_params){.mem_size = size, .mem_buffer = g->arena, .no_alloc = true});
    return g->ctx ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for a graph of %zu nodes", max_nodes);
}

static int build(struct wnw__graph *g, wnw_session *s, const struct wnw__span *span)
{
    const struct wnw__hparams *hp = &s->m->hp;
    const size_t per_layer = 96 + (s->params.attn == WNW_ATTN_GGML ? wnw__attend_ggml_nodes(&s->batch) : 0);
    const size_t max_nodes = (size_t)(span->to - span->from) * per_layer + 64;
    WNW_TRY(new_context(g, max_nodes));
    g->gf = ggml_new_graph_custom(g->ctx, max_nodes, false);
    g->from = span->from;
    g->to = span->to;
    g->n = span->n;
    g->pos = ggml_new_tensor_1d(g->ctx, GGML_TYPE_I32, span->n);
    ggml_set_input(g->pos);
    if (span->to == hp->n_layer && span->n_out < span->n) {
        g->out_ids = ggml_new_tensor_1d(g->ctx, GGML_TYPE_I32, span->n_out);
        ggml_set_input(g->out_ids);
    }
    if (s->params.attn == WNW_ATTN_GGML)
        WNW_TRY(wnw__attend_ggml_new(&g->ggml, &s->batch));
    if (s->window.cap > 0 && (!span->decode || s->window.decode)) {
        g->q_tail = calloc((size_t)hp->n_layer, sizeof(struct ggml_tensor *));
        if (!g->q_tail)
            return wnw__fail(WNW_E_NOMEM, "no memory for %d layers", (int)hp->n_layer);
    }
    struct ggml_tensor *x = input(g, s, span);
    for (int32_t il = span->from; il < span->to; il++)
        x = transformer_layer(g, s, il, x);
    if (span->to < hp->n_layer) {
        g->x_out = x;
    } else {
        x = rms_norm(g->ctx, hp, x, s->m->w.output_norm);
        g->logits = x = ggml_mul_mat(g->ctx, s->m->w.output, x);
    }
    ggml_set_output(x);
    ggml_build_forward_expand(g->gf, x);
    return WNW_OK;
}

/* Gives the graph memory. Buffers of an earlier graph are reused where they are large enough. */
static int allocate(struct wnw__graph *g, int32_t n_threads)
{
    WNW_TRY(wnw__memory_look((size_t)ggml_graph_n_nodes(g->gf) * ALLOCATOR_NODE + WNW_MEMORY_SMALL,
                             "the allocator of a graph"));
    if (!g->alloc)
        g->alloc = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    /* Placed anew each time: left to itself ggml notices other nodes than in the graph before, but not that
     * inputs and weights come in another order, as they do when heads share masks in another way. */
    if (!g->alloc || !ggml_gallocr_reserve(g->alloc, g->gf) || !ggml_gallocr_alloc_graph(g->alloc, g->gf))
        return wnw__fail(WNW_E_NOMEM, "no memory for the activations of a graph");
    g->plan = ggml_graph_plan(g->gf, n_threads, NULL);
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
    free(g->q_tail);
    *g = (struct wnw__graph){.arena = g->arena,
                             .arena_size = g->arena_size,
                             .alloc = g->alloc,
                             .work = g->work,
                             .work_size = g->work_size};
}

static int prepare(wnw_session *s, struct wnw__graph *g, const struct wnw__span *span)
{
    /* Lengths are read when it runs, so that the graph of a decoded token stays, and that of one layer is
     * good for every ubatch. */
    const bool part = span->to - span->from < s->m->hp.n_layer;
    const bool same = g->from == span->from && g->to == span->to && g->n == span->n;
    if (g->ctx && s->params.attn == WNW_ATTN_OWN && (span->decode || (part && same)))
        return WNW_OK;
    clear_graph(g);
    int rc = build(g, s, span);
    if (rc == WNW_OK)
        rc = allocate(g, s->params.n_threads);
    if (rc != WNW_OK)
        clear_graph(g);
    return rc;
}

static int set_inputs(wnw_session *s, struct wnw__graph *g, const struct wnw__span *span)
{
    if (g->tokens)
        ggml_backend_tensor_set(g->tokens, span->tokens, 0, (size_t)span->n * sizeof *span->tokens);
    if (g->x_in)
        ggml_backend_tensor_set(g->x_in, span->x, 0, ggml_nbytes(g->x_in));
    int32_t *pos = malloc((size_t)span->n * sizeof *pos);
    if (!pos)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d positions", (int)span->n);
    for (int32_t i = 0; i < span->n; i++)
        pos[i] = s->n_past + i;
    ggml_backend_tensor_set(g->pos, pos, 0, (size_t)span->n * sizeof *pos);
    free(pos);
    /* Of n tokens the last n_out. */
    for (int32_t i = 0; g->out_ids && i < span->n_out; i++) {
        const int32_t row = span->n - span->n_out + i;
        ggml_backend_tensor_set(g->out_ids, &row, (size_t)i * sizeof row, sizeof row);
    }
    return g->ggml ? wnw__attend_ggml_fill(g->ggml) : WNW_OK;
}

/* Puts the newest queries of the span into the window's ring. */
static void keep_queries(wnw_session *s, const struct wnw__graph *g, int32_t n)
{
    const struct wnw__window *w = &s->window;
    const size_t row = (size_t)s->m->hp.n_head * (size_t)s->m->hp.n_embd_head;
    const int32_t fresh = n < w->cap ? n : w->cap;
    for (int32_t il = g->from; il < g->to; il++) {
        float *q = w->q + (size_t)il * (size_t)w->cap * row;
        for (int32_t i = 0; i < fresh;) {
            const int32_t at = (s->n_past + n - fresh + i) % w->cap;
            const int32_t run = fresh - i < w->cap - at ? fresh - i : w->cap - at;
            ggml_backend_tensor_get(g->q_tail[il], q + (size_t)at * row, (size_t)i * row * sizeof *q,
                                    (size_t)run * row * sizeof *q);
            i += run;
        }
    }
}

/* What the attention of the next n tokens reads: one slice, all of this session. */
static void set_batch(wnw_session *s, int32_t n)
{
    s->slice = (struct wnw__attend_slice){.cache = &s->cache,
                                          .n_row = n,
                                          .n_past = s->n_past,
                                          .hidden = (const uint8_t *const *)s->hidden,
                                          .hidden_n = s->hidden_n};
    s->batch = (struct wnw__attend_batch){.slice = &s->slice, .n_slice = 1, .n_row = n};
}

int wnw__forward_span(wnw_session *s, const struct wnw__span *span)
{
    struct wnw__graph *g = span->decode ? &s->decode : &s->prefill;
    const int32_t n = span->n;
    for (int32_t il = span->from; il < span->to; il++)
        WNW_TRY(wnw__cache_reserve_layer(&s->cache, il, n, !span->decode));
    WNW_TRY(wnw__trace_reserve(s, span->from, span->to, n));
    set_batch(s, n);
    WNW_TRY(wnw__attend_shared_reserve(s->shared, &s->batch, span->from, span->to));
    WNW_TRY(prepare(s, g, span));
    WNW_TRY(set_inputs(s, g, span));
    WNW_TRY(wnw__memory_look(WNW_MEMORY_SMALL, "the threads of a graph"));
    if (ggml_graph_compute(g->gf, &g->plan) != GGML_STATUS_SUCCESS)
        return wnw__fail(WNW_E_BACKEND, "ggml could not compute the graph of %d tokens", (int)n);
    for (int32_t il = span->from; il < span->to; il++)
        wnw__cache_commit_layer(&s->cache, il, s->n_past, n);
    wnw__trace_commit(s, span);
    if (g->q_tail)
        keep_queries(s, g, n);
    if (g->x_out)
        ggml_backend_tensor_get(g->x_out, span->x, 0, ggml_nbytes(g->x_out));
    return WNW_OK;
}

void wnw__forward_advance(wnw_session *s, const struct wnw__span *span)
{
    struct wnw__window *w = &s->window;
    const bool kept = w->cap > 0 && (!span->decode || w->decode);
    if (kept) {
        const int32_t before = w->end == s->n_past ? w->n : 0; /* queries must follow one another */
        w->n = before < w->cap - span->n ? before + span->n : w->cap;
        w->end = s->n_past + span->n;
    }
    s->n_past += span->n;
}

/* Whether none of x[n] is infinite or not a number: of such a value times 0 comes a NaN, and it stays one in
 * a sum. Sixteen sums, so that the loop is a few vector instructions. */
static bool all_finite(const float *x, int64_t n)
{
    float sum[16] = {0};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int k = 0; k < 16; k++)
            sum[k] += x[i + k] * 0.0f;
    for (; i < n; i++)
        sum[0] += x[i] * 0.0f;
    for (int k = 1; k < 16; k++)
        sum[0] += sum[k];
    return sum[0] == 0.0f;
}

/* Row i of the graph's logits to s->logits. Damaged weights show here at the latest, because every layer's
 * output ends in them. */
static int take_logits(wnw_session *s, const struct ggml_tensor *logits, int64_t i, int32_t position)
{
    const size_t row = (size_t)s->m->hp.n_vocab * sizeof *s->logits;
    ggml_backend_tensor_get(logits, s->logits, (size_t)i * row, row);
    s->has_logits = all_finite(s->logits, s->m->hp.n_vocab);
    if (s->has_logits)
        return WNW_OK;
    return wnw__fail(WNW_E_NOT_FINITE,
                     "the model's output at position %d has values that are not numbers: weights in its file "
                     "are damaged, or its values are too large for a KV cache of type %s (f32 has the widest "
                     "range)",
                     (int)position, wnw_kv_type_name(s->params.kv_type));
}

int wnw__forward_logits(wnw_session *s, const struct wnw__span *span, int32_t first, wnw_logits_fn on_logits,
                        void *user)
{
    const struct wnw__graph *g = span->decode ? &s->decode : &s->prefill;
    const int32_t before = s->n_past - span->n; /* the span has been counted */
    for (int32_t i = 0; on_logits && i < span->n; i++) {
        WNW_TRY(take_logits(s, g->logits, i, before + i));
        if (!on_logits(first + i, s->logits, user))
            return wnw__fail(WNW_E_CANCELLED, "cancelled at token %d", (int)(first + i));
    }
    return on_logits ? WNW_OK : take_logits(s, g->logits, g->logits->ne[1] - 1, s->n_past - 1);
}

int wnw__forward(wnw_session *s, const int32_t *tokens, int32_t n, int32_t first, bool decode,
                 wnw_logits_fn on_logits, void *user)
{
    const int32_t n_out = on_logits ? n : decode ? 1 : wnw__nll_rows(&s->nll, s->n_past, n);
    const struct wnw__span span = {
        .to = s->m->hp.n_layer, .tokens = tokens, .n = n, .n_out = n_out, .decode = decode};
    WNW_TRY(wnw__forward_span(s, &span));
    if (!decode)
        wnw__session_take_nll(s, tokens, n, s->prefill.logits);
    wnw__forward_advance(s, &span);
    /* Without memory to trim, entries that have left the window stay for another time; attention does not
     * look at them. The tokens are read, and a failure would deny it. */
    for (int32_t il = 0; il < s->m->hp.n_layer; il++)
        (void)wnw__cache_trim_swa(&s->cache, il, s->n_past);
    return wnw__forward_logits(s, &span, first, on_logits, user);
}
