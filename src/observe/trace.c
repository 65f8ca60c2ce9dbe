/* SPDX-License-Identifier: MIT */
#include "forward/forward.h"
#include "session/session.h"

#include <stdlib.h>
#include <string.h>

void wnw__trace_drop_queries(struct wnw__trace *t, int32_t from, int32_t to)
{
    for (int32_t il = from; t->queries && il < to; il++) {
        free(t->queries[il].q);
        t->queries[il] = (struct wnw__queries){.row = t->queries[il].row};
    }
}

static void free_columns(struct wnw__trace *t)
{
    free(t->columns);
    free(t->packed);
    t->columns = NULL;
    t->packed = NULL;
}

void wnw__trace_free(struct wnw__trace *t, int32_t n_layer)
{
    wnw__trace_drop_queries(t, 0, n_layer);
    free_columns(t);
    free(t->queries);
    free(t->tokens);
    free(t->task_tokens);
    free(t->task_n);
    free(t->suffix);
    *t = (struct wnw__trace){0};
}

/* ---- Hooks of the forward pass ---- */

static int32_t grown(int32_t have, int32_t cap, int32_t n)
{
    /* A first prompt is reserved at once; what comes after it arrives in small pieces. */
    const int64_t need = (int64_t)have + n, more = have > 0 ? (int64_t)cap + cap / 8 : need;
    return (int32_t)(need > more ? need : more > INT32_MAX ? INT32_MAX : more);
}

static int reserve_queries(struct wnw__queries *k, int32_t n)
{
    if (k->n + n <= k->cap)
        return WNW_OK;
    const int32_t cap = grown(k->n, k->cap, n);
    float *q = realloc(k->q, (size_t)cap * k->row * sizeof *q);
    if (!q)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d queries of a layer", (int)cap);
    k->q = q;
    k->cap = cap;
    return WNW_OK;
}

static int reserve_tokens(struct wnw__trace *t, int32_t have, int32_t n)
{
    if (have + n <= t->cap_tokens)
        return WNW_OK;
    const int32_t cap = grown(have, t->cap_tokens, n);
    int32_t *tokens = realloc(t->tokens, (size_t)cap * sizeof *tokens);
    if (!tokens)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d token ids", (int)cap);
    t->tokens = tokens;
    t->cap_tokens = cap;
    return WNW_OK;
}

int wnw__trace_reserve(wnw_session *s, int32_t from, int32_t to, int32_t n)
{
    struct wnw__trace *t = &s->trace;
    if (t->aside)
        return WNW_OK;
    for (int32_t il = from; t->queries && il < to; il++) {
        if (t->queries[il].end != s->n_past)
            t->queries[il].n = 0; /* decoded tokens in between: queries must follow one another */
        WNW_TRY(reserve_queries(&t->queries[il], n));
    }
    return reserve_tokens(t, s->n_past, n);
}

/* src: q, attention. The second keeps the copy in order with the rest of the layer. */
static void copy_node(struct ggml_tensor *dst, int ith, int nth, void *userdata)
{
    const struct ggml_tensor *q = dst->src[0];
    const struct wnw__queries *k = userdata;
    const int64_t from = q->ne[2] * ith / nth, to = q->ne[2] * (ith + 1) / nth;
    memcpy(k->q + (size_t)(k->n + from) * k->row, (const float *)q->data + (size_t)from * k->row,
           (size_t)(to - from) * k->row * sizeof(float));
}

void wnw__trace_build(wnw_session *s, struct ggml_context *ctx, struct ggml_cgraph *gf, int32_t il,
                      struct ggml_tensor *q, struct ggml_tensor *out, bool decode)
{
    struct wnw__trace *t = &s->trace;
    if (t->queries && !t->aside && !decode) {
        struct ggml_tensor *args[2] = {ggml_is_contiguous(q) ? q : ggml_cont(ctx, q), out};
        ggml_build_forward_expand(gf, ggml_custom_4d(ctx, GGML_TYPE_F32, 1, 1, 1, 1, args, 2, copy_node,
                                                     GGML_N_TASKS_MAX, &t->queries[il]));
    }
    /* Policies leave sliding-window layers alone. */
    if (t->columns && s->cache.layers[il].n_swa == 0)
        wnw__columns_build(ctx, gf, &t->columns[il], q, out);
}

void wnw__trace_commit(wnw_session *s, const struct wnw__span *span)
{
    struct wnw__trace *t = &s->trace;
    if (t->aside)
        return;
    if (span->from == 0)
        memcpy(t->tokens + s->n_past, span->tokens, (size_t)span->n * sizeof *t->tokens);
    for (int32_t il = span->from; t->queries && !span->decode && il < span->to; il++) {
        t->queries[il].n += span->n;
        t->queries[il].end = s->n_past + span->n;
    }
}

/* ---- What is kept ---- */

/* Some are kept from one run to the next. */
static void forget_graphs(wnw_session *s)
{
    wnw__graph_free(&s->prefill);
    wnw__graph_free(&s->decode);
}

static int need_queries(wnw_session *s)
{
    struct wnw__trace *t = &s->trace;
    if (t->queries)
        return WNW_OK;
    t->queries = calloc((size_t)s->cache.n_layer, sizeof *t->queries);
    if (!t->queries)
        return wnw__fail(WNW_E_NOMEM, "no memory for the queries of %d layers", (int)s->cache.n_layer);
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        t->queries[il].row = (size_t)s->m->hp.n_head * (size_t)s->m->hp.n_embd_head;
    forget_graphs(s);
    return WNW_OK;
}

static void release_queries(wnw_session *s)
{
    if (!s->trace.queries)
        return;
    wnw__trace_drop_queries(&s->trace, 0, s->cache.n_layer);
    free(s->trace.queries);
    s->trace.queries = NULL;
    forget_graphs(s);
}

int wnw__trace_need_columns(wnw_session *s)
{
    struct wnw__trace *t = &s->trace;
    WNW_TRY(wnw__attend_shared_keep_rows(s->shared, true));
    if (t->columns)
        return WNW_OK;
    t->columns = calloc((size_t)s->cache.n_layer, sizeof *t->columns);
    t->packed = malloc(wnw__columns_floats(s->shared) * sizeof *t->packed);
    if (!t->columns || !t->packed) {
        free_columns(t);
        return wnw__fail(WNW_E_NOMEM, "no memory for attention statistics");
    }
    wnw__trace_release_columns(s, true);
    forget_graphs(s);
    return WNW_OK;
}

void wnw__trace_release_columns(wnw_session *s, bool keep)
{
    struct wnw__trace *t = &s->trace;
    for (int32_t il = 0; t->columns && il < s->cache.n_layer; il++)
        t->columns[il] = (struct wnw__columns_op){
            .attend = &s->ops[il], .packed = t->packed, .rows_from_attn = s->params.attn == WNW_ATTN_OWN};
    if (keep)
        return;
    if (t->columns)
        forget_graphs(s);
    free_columns(t);
    wnw__attend_shared_keep_rows(s->shared, false);
}

static int need_numbers(wnw_session *s, enum wnw__aux kind)
{
    const int32_t n_plane = s->m->hp.n_head / s->m->hp.n_head_kv;
    return s->cache.aux_planes[kind] == n_plane ? WNW_OK : wnw__cache_set_aux(&s->cache, kind, n_plane);
}

/* Flags of what is kept. */
static uint32_t kept(const wnw_session *s)
{
    return (s->trace.queries ? WNW_NEED_QUERIES : 0u) |
           (s->cache.aux_planes[WNW_AUX_ATTN_SUM] > 0 ? WNW_NEED_ATTN_SUM : 0u) |
           (s->cache.aux_planes[WNW_AUX_ATTN_MAX] > 0 ? WNW_NEED_ATTN_MAX : 0u);
}

static int need_all(wnw_session *s, uint32_t flags)
{
    if (flags & WNW_NEED_QUERIES)
        WNW_TRY(need_queries(s));
    if (flags & WNW_NEED_ATTN_SUM)
        WNW_TRY(need_numbers(s, WNW_AUX_ATTN_SUM));
    if (flags & WNW_NEED_ATTN_MAX)
        WNW_TRY(need_numbers(s, WNW_AUX_ATTN_MAX));
    return flags & (WNW_NEED_ATTN_SUM | WNW_NEED_ATTN_MAX) ? wnw__trace_need_columns(s) : WNW_OK;
}

/* Keeps nothing but what the flags name. */
static void release_rest(wnw_session *s, uint32_t flags)
{
    if (!(flags & WNW_NEED_QUERIES))
        release_queries(s);
    if (!(flags & WNW_NEED_ATTN_SUM))
        (void)wnw__cache_set_aux(&s->cache, WNW_AUX_ATTN_SUM, 0);
    if (!(flags & WNW_NEED_ATTN_MAX))
        (void)wnw__cache_set_aux(&s->cache, WNW_AUX_ATTN_MAX, 0);
    if (!(flags & (WNW_NEED_ATTN_SUM | WNW_NEED_ATTN_MAX)))
        wnw__trace_release_columns(s, false);
}

int wnw__trace_observe(wnw_session *s, const wnw_needs *needs)
{
    const uint32_t before = kept(s);
    const int rc = need_all(s, needs->flags);
    release_rest(s, rc == WNW_OK ? needs->flags : before);
    return rc;
}

int wnw__trace_set_tasks(struct wnw__trace *t, const int32_t *const *tokens, const int32_t *n_tokens,
                         int32_t n_tasks)
{
    size_t total = 0;
    for (int32_t i = 0; i < n_tasks; i++)
        total += (size_t)n_tokens[i];
    int32_t *all = malloc((total + 1) * sizeof *all), *n = malloc(((size_t)n_tasks + 1) * sizeof *n);
    if (!all || !n) {
        free(all);
        free(n);
        return wnw__fail(WNW_E_NOMEM, "no memory for %d tasks", (int)n_tasks);
    }
    free(t->task_tokens);
    free(t->task_n);
    t->task_tokens = all;
    t->task_n = n;
    t->n_tasks = n_tasks;
    for (int32_t i = 0; i < n_tasks; all += n[i++]) {
        n[i] = n_tokens[i];
        memcpy(all, tokens[i], (size_t)n[i] * sizeof *all);
    }
    return WNW_OK;
}

int wnw__trace_set_suffix(struct wnw__trace *t, const int32_t *tokens, int32_t n)
{
    int32_t *copy = n > 0 ? malloc((size_t)n * sizeof *copy) : NULL;
    if (n > 0 && !copy)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d tokens of a template", (int)n);
    if (n > 0)
        memcpy(copy, tokens, (size_t)n * sizeof *copy);
    free(t->suffix);
    t->suffix = copy;
    t->n_suffix = n;
    return WNW_OK;
}

static int copy_tasks(struct wnw__trace *to, const struct wnw__trace *from)
{
    const int32_t **tokens = malloc(((size_t)from->n_tasks + 1) * sizeof *tokens);
    if (!tokens)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d tasks", (int)from->n_tasks);
    const int32_t *at = from->task_tokens;
    for (int32_t i = 0; i < from->n_tasks; at += from->task_n[i++])
        tokens[i] = at;
    const int rc = wnw__trace_set_tasks(to, tokens, from->task_n, from->n_tasks);
    free(tokens);
    return rc;
}

static int copy_queries(struct wnw__queries *to, const struct wnw__queries *from)
{
    WNW_TRY(reserve_queries(to, from->n));
    if (from->n > 0)
        memcpy(to->q, from->q, (size_t)from->n * from->row * sizeof *to->q);
    to->n = from->n;
    to->end = from->end;
    return WNW_OK;
}

int wnw__trace_copy(wnw_session *to, const wnw_session *from)
{
    const struct wnw__trace *t = &from->trace;
    WNW_TRY(reserve_tokens(&to->trace, 0, from->n_past));
    if (from->n_past > 0)
        memcpy(to->trace.tokens, t->tokens, (size_t)from->n_past * sizeof *t->tokens);
    to->trace.n_mixed = t->n_mixed;
    WNW_TRY(copy_tasks(&to->trace, t));
    WNW_TRY(wnw__trace_set_suffix(&to->trace, t->suffix, t->n_suffix));
    if (t->queries)
        WNW_TRY(need_queries(to));
    for (int32_t il = 0; t->queries && il < from->cache.n_layer; il++)
        WNW_TRY(copy_queries(&to->trace.queries[il], &t->queries[il]));
    return t->columns ? wnw__trace_need_columns(to) : WNW_OK;
}
