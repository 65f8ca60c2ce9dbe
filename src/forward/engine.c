/* SPDX-License-Identifier: MIT */
#include "forward/engine.h"

#include "attend/attend.h"
#include "base/err.h"
#include "base/memory.h"
#include "forward/engine_impl.h"
#include "forward/matmul.h"
#include "winnow_tools.h"

#include <stdlib.h>
#include <string.h>

static int resolve_params(const wnw_engine_params *in, wnw_engine_params *out)
{
    *out = wnw_engine_default_params();
    WNW_TRY(WNW_SIZED_TAKE(wnw_engine_params, out, in));
    if (out->n_ubatch < 0 || out->n_ubatch > 65536)
        return wnw__fail(WNW_E_RANGE, "a ubatch of %d tokens: 1 to 65536 are allowed", (int)out->n_ubatch);
    if (out->n_threads < 0 || out->n_threads > 512)
        return wnw__fail(WNW_E_RANGE, "%d threads: 1 to 512 are allowed", (int)out->n_threads);
    if (out->attn != WNW_ATTN_OWN && out->attn != WNW_ATTN_GGML && out->attn != WNW_ATTN_F32)
        return wnw__fail(WNW_E_ARG, "attention number %d does not exist", (int)out->attn);
    out->n_ubatch = out->n_ubatch ? out->n_ubatch : 512;
    out->n_threads = out->n_threads ? out->n_threads : wnw_usable_cores();
    return WNW_OK;
}

/* The most columns of a weight. */
static int64_t longest_row(const wnw_model *m)
{
    int64_t k = m->hp.n_embd;
    for (int32_t il = 0; il < m->hp.n_layer; il++) {
        const struct wnw__layer_weights *l = &m->layers[il];
        k = l->wo->ne[0] > k ? l->wo->ne[0] : k;
        k = l->ffn_down->ne[0] > k ? l->ffn_down->ne[0] : k;
    }
    return k;
}

static int init_engine(wnw_engine *e)
{
    const struct wnw__hparams *hp = &e->m->hp;
    WNW_TRY(wnw__team_new(&e->team, e->params.n_threads));
    e->params.n_threads = e->team->pool.n_threads;
    /* ggml cuts the entries of one query by threads, so that their number shows in the result. */
    e->team->count.fixed = e->params.attn == WNW_ATTN_GGML;
    const struct wnw__attend_dims dims = {.model = wnw__model_shape(e->m),
                                          .n_threads = e->params.n_threads,
                                          .n_ubatch = e->params.n_ubatch,
                                          .float32 = e->params.attn != WNW_ATTN_OWN};
    WNW_TRY(wnw__attend_shared_new(&e->shared, &dims));
    if (!e->m->executor)
        WNW_TRY(wnw__matmul_new(&e->matmul, e->params.n_threads, longest_row(e->m), hp->rms_eps));
    e->ops = calloc((size_t)hp->n_layer, sizeof *e->ops);
    e->stages = calloc((size_t)hp->n_layer, WNW_N_POINTS);
    if (!e->ops || !e->stages)
        return wnw__fail(WNW_E_NOMEM, "no memory for an engine");
    for (int32_t il = 0; il < hp->n_layer; il++)
        e->ops[il] = (struct wnw__attend_op){
            .shared = e->shared, .il = il, .scale = hp->attn_scale, .batch = &e->attend};
    return e->m->executor ? e->m->executor->open(&e->run_by, e) : WNW_OK;
}

int wnw_engine_new(wnw_engine **out, const wnw_model *m, const wnw_engine_params *params)
{
    wnw_engine_params resolved;
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(m);
    WNW_TRY(resolve_params(params, &resolved));
    if (m->executor && resolved.attn == WNW_ATTN_GGML)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "the ggml attention is for families that winnow has graphs for; %s runs through libllama "
            "and takes the own attention",
            m->arch->name);
    wnw_engine *e = calloc(1, sizeof *e);
    if (!e)
        return wnw__fail(WNW_E_NOMEM, "no memory for an engine");
    e->m = m;
    e->params = resolved;
    const int rc = init_engine(e);
    if (rc != WNW_OK) {
        wnw_engine_free(e);
        return rc;
    }
    *out = e;
    return WNW_OK;
}

void wnw_engine_free(wnw_engine *e)
{
    if (!e)
        return;
    if (e->m->executor)
        e->m->executor->free(e->run_by);
    for (int i = 0; i < WNW_N_GRAPHS; i++)
        wnw__graph_free(&e->graphs[i]);
    wnw__attend_shared_free(e->shared);
    wnw__matmul_free(e->matmul);
    wnw__team_free(e->team);
    free(e->ops);
    free(e->slices);
    free(e->passes);
    free(e->stages);
    free(e);
}

const struct wnw_model *wnw__engine_model(const wnw_engine *e)
{
    return e->m;
}

const wnw_engine_params *wnw__engine_params(const wnw_engine *e)
{
    return &e->params;
}

struct wnw__pool *wnw__engine_pool(wnw_engine *e)
{
    return &e->team->pool;
}

void wnw__engine_release(wnw_engine *e)
{
    if (e->ran == &e->graphs[WNW_GRAPH_PROMPT])
        e->ran = NULL;
    wnw__graph_free(&e->graphs[WNW_GRAPH_PROMPT]);
}

const float *wnw__engine_logits(const wnw_engine *e, int32_t i)
{
    if (e->m->executor)
        return e->m->executor->logits(e->run_by, i);
    return (const float *)e->ran->logits->data + (size_t)i * (size_t)e->m->hp.n_vocab;
}

/* ---- A batch ---- */

static int need_slices(wnw_engine *e, int32_t n)
{
    if (n <= e->cap_slices)
        return WNW_OK;
    struct wnw__attend_slice *slices = calloc((size_t)n, sizeof *slices);
    struct wnw__record_pass *passes = calloc((size_t)n, sizeof *passes);
    if (!slices || !passes) {
        free(slices);
        free(passes);
        return wnw__fail(WNW_E_NOMEM, "no memory for a batch of %d sequences", (int)n);
    }
    free(e->slices);
    free(e->passes);
    e->slices = slices;
    e->passes = passes;
    e->cap_slices = n;
    return WNW_OK;
}

/* Describes the batch to the attention and to recorders. */
static int set_batch(wnw_engine *e, const struct wnw__batch *b)
{
    int32_t row = 0;
    WNW_TRY(need_slices(e, b->n_slice));
    e->batch = b;
    e->masks = false;
    for (int32_t i = 0; i < b->n_slice; i++) {
        const struct wnw__slice *s = &b->slice[i];
        e->slices[i] = (struct wnw__attend_slice){
            .cache = s->cache, .first_row = row, .n_row = s->n_row, .n_past = s->n_past, .masked = s->masked};
        e->passes[i] = (struct wnw__record_pass){.cache = s->cache,
                                                 .from = b->from,
                                                 .to = b->to,
                                                 .n_past = s->n_past,
                                                 .n = s->n_row,
                                                 .generated = s->generated};
        e->masks = e->masks || s->masked;
        row += s->n_row;
    }
    e->attend = (struct wnw__attend_batch){.slice = e->slices, .n_slice = b->n_slice, .n_row = b->n_row};
    return WNW_OK;
}

/* The own attention keeps the softmax of its rows from the first batch on in which a recorder reads it, and what
 * recorders read of columns. */
static int keep_statistics(wnw_engine *e, const struct wnw__batch *b)
{
    bool wanted = false;
    if (e->params.attn == WNW_ATTN_GGML)
        return WNW_OK;
    for (int32_t i = 0; i < b->n_slice; i++)
        wanted = wanted || wnw__recorders_read_softmax(b->slice[i].recorders);
    if (wanted)
        WNW_TRY(wnw__attend_shared_keep_rows(e->shared, true));
    for (int32_t i = 0; i < b->n_slice; i++) {
        e->passes[i].softmax_known = wanted;
        e->slices[i].columns = wnw__recorders_read_columns(b->slice[i].recorders, &e->passes[i]);
        if (wnw__attend_leaves_columns(e->shared, &e->slices[i]))
            e->passes[i].columns = e->slices[i].columns;
    }
    return WNW_OK;
}

/* Makes room for all that the batch will store. On failure caches and recorders keep what they have. */
static int reserve(wnw_engine *e, const struct wnw__batch *b)
{
    WNW_TRY(set_batch(e, b));
    for (int32_t i = 0; i < b->n_slice; i++) {
        for (int32_t il = b->from; il < b->to; il++)
            WNW_TRY(
                wnw__cache_reserve_layer(b->slice[i].cache, il, b->slice[i].n_row, !b->slice[i].generated));
        WNW_TRY(wnw__recorders_reserve(b->slice[i].recorders, &e->passes[i]));
    }
    WNW_TRY(keep_statistics(e, b));
    return wnw__attend_shared_reserve(e->shared, &e->attend, b->from, b->to);
}

/* ---- The graph of a batch ---- */

/* Sets, for every layer and point, the largest number of stages that any slice wants. */
static void count_stages(wnw_engine *e)
{
    memset(e->stages, 0, (size_t)e->m->hp.n_layer * WNW_N_POINTS);
    for (int32_t il = e->batch->from; il < e->batch->to; il++)
        for (int point = 0; point < WNW_N_POINTS; point++) {
            uint8_t *most = &e->stages[il * WNW_N_POINTS + point];
            for (int32_t i = 0; i < e->batch->n_slice; i++) {
                const int n = wnw__recorders_stages(e->batch->slice[i].recorders, (enum wnw__point)point, il,
                                                    &e->passes[i]);
                *most = n > *most ? (uint8_t)n : *most;
            }
        }
}

/* Whether a recorder reads what the attention makes of all rows. */
static bool reads_all_rows(const struct wnw__recorders *r, const struct wnw__attend_slice *s)
{
    return s->columns || wnw__recorders_read_softmax(r) || wnw__recorders_read_output(r);
}

/* Notes from which row on the last layer's attention of every slice is needed. */
static void set_partial(wnw_engine *e)
{
    const struct wnw__batch *b = e->batch;
    const int32_t last = e->m->hp.n_layer - 1;
    e->ops[last].partial = b->to > last && b->n_out < b->n_row;
    for (int32_t i = 0, k = 0; i < b->n_slice && e->ops[last].partial; i++) {
        struct wnw__attend_slice *s = &e->slices[i];
        const int32_t end = s->first_row + s->n_row;
        s->first_out = k < b->n_out && b->out_row[k] < end ? b->out_row[k] - s->first_row : s->n_row;
        if (reads_all_rows(b->slice[i].recorders, s))
            s->first_out = 0;
        while (k < b->n_out && b->out_row[k] < end)
            k++;
    }
}

static bool is_decode(const struct wnw__batch *b)
{
    for (int32_t i = 0; i < b->n_slice; i++)
        if (!b->slice[i].generated)
            return false;
    return true;
}

/* Returns the graph that fits the batch, or else the one to build it in: the prompt's graph, or that of the
 * decode steps that has been unused for the longest time. */
static struct wnw__graph *find_graph(wnw_engine *e)
{
    struct wnw__graph *oldest = &e->graphs[WNW_GRAPH_DECODE];
    if (!is_decode(e->batch))
        return &e->graphs[WNW_GRAPH_PROMPT];
    for (int i = WNW_GRAPH_DECODE; i < WNW_N_GRAPHS; i++) {
        struct wnw__graph *g = &e->graphs[i];
        if (wnw__graph_fits(g, e))
            return g;
        oldest = g->last_run < oldest->last_run ? g : oldest;
    }
    return oldest;
}

static int set_positions(wnw_engine *e, struct ggml_tensor *t)
{
    int32_t *pos = malloc((size_t)e->batch->n_row * sizeof *pos);
    if (!pos)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d positions", (int)e->batch->n_row);
    for (int32_t i = 0; i < e->batch->n_slice; i++)
        for (int32_t k = 0; k < e->slices[i].n_row; k++)
            pos[e->slices[i].first_row + k] = e->slices[i].n_past + k;
    ggml_backend_tensor_set(t, pos, 0, (size_t)e->batch->n_row * sizeof *pos);
    free(pos);
    return WNW_OK;
}

static int set_inputs(wnw_engine *e, struct wnw__graph *g)
{
    const struct wnw__batch *b = e->batch;
    if (g->tokens)
        ggml_backend_tensor_set(g->tokens, b->token, 0, ggml_nbytes(g->tokens));
    if (g->x_in)
        ggml_backend_tensor_set(g->x_in, b->hidden, 0, ggml_nbytes(g->x_in));
    if (g->out_ids)
        ggml_backend_tensor_set(g->out_ids, b->out_row, 0, ggml_nbytes(g->out_ids));
    WNW_TRY(set_positions(e, g->pos));
    return g->ggml ? wnw__attend_ggml_fill(g->ggml) : WNW_OK;
}

static void tell_failure(const wnw_engine *e)
{
    for (int32_t i = 0; i < e->batch->n_slice; i++)
        wnw__recorders_tell(e->batch->slice[i].recorders, e->batch->from, e->batch->to,
                            WNW_EVENT_PASS_FAILED);
}

static int compute(wnw_engine *e, struct wnw__graph *g)
{
    WNW_TRY(set_inputs(e, g));
    WNW_TRY(wnw__memory_check(WNW_MEMORY_SMALL, "the threads of a graph"));
    if (wnw__team_compute(e->team, g->gf, &g->plan, e->batch->n_row) == GGML_STATUS_SUCCESS)
        return WNW_OK;
    tell_failure(e);
    return wnw__fail(WNW_E_BACKEND, "ggml could not compute the graph of %d tokens", (int)e->batch->n_row);
}

static int execute(wnw_engine *e)
{
    const struct wnw__batch *b = e->batch;
    if (b->from > 0 || b->to < e->m->hp.n_layer)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "%s runs through libllama, which takes a batch through all layers at once: layer by layer is "
            "not possible",
            e->m->arch->name);
    const int rc = e->m->executor->run(e->run_by);
    if (rc != WNW_OK)
        tell_failure(e);
    return rc;
}

/* Entries and notes of the batch, which has been computed, count from now on. */
static void commit(wnw_engine *e)
{
    const struct wnw__batch *b = e->batch;
    for (int32_t i = 0; i < b->n_slice; i++) {
        for (int32_t il = b->from; il < b->to; il++)
            wnw__cache_commit_layer(b->slice[i].cache, il, b->slice[i].n_past, b->slice[i].n_row);
        wnw__recorders_commit(b->slice[i].recorders, &e->passes[i]);
    }
}

/* Counts the work of the batch, which has been computed and not yet committed. */
static void count_work(wnw_engine *e, const struct wnw__graph *g)
{
    const struct wnw__times_shape shape = {.model = wnw__model_shape(e->m), .ops = e->ops};
    if (e->times.on)
        wnw__times_count(&e->times, e->batch, e->passes, &shape, g->products);
}

int wnw__engine_run(wnw_engine *e, const struct wnw__batch *b)
{
    e->ran = NULL;
    wnw__times_begin(&e->times);
    WNW_TRY(reserve(e, b));
    count_stages(e);
    if (e->m->executor) {
        WNW_TRY(execute(e));
        commit(e);
        return WNW_OK;
    }
    set_partial(e);
    struct wnw__graph *g = find_graph(e);
    if (!wnw__graph_fits(g, e))
        WNW_TRY(wnw__graph_build(g, e));
    g->last_run = ++e->n_run;
    WNW_TRY(compute(e, g));
    count_work(e, g);
    commit(e);
    if (g->x_out)
        ggml_backend_tensor_get(g->x_out, b->hidden, 0, ggml_nbytes(g->x_out));
    wnw__times_end(&e->times);
    e->ran = g;
    return WNW_OK;
}

/* ---- Times ---- */

int wnw_engine_measure(wnw_engine *e, bool on)
{
    WNW_REQUIRE(e);
    if (on && e->m->executor)
        return wnw__fail(WNW_E_UNSUPPORTED, "times of parts are of our own graphs; %s runs through libllama",
                         e->m->arch->name);
    if (on)
        wnw__times_start(&e->times);
    e->times.on = on;
    return WNW_OK;
}

int wnw_engine_get_times(const wnw_engine *e, wnw_engine_times *out)
{
    wnw_engine_times times = wnw_engine_times_default();
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_engine_times, out));
    wnw__sized_give(out, &times);
    WNW_REQUIRE(e);
    const wnw_work *part = e->times.part;
    times.n_pass = e->times.n_pass;
    times.n_token = e->times.n_token;
    times.weights = part[WNW_WORK_WEIGHTS];
    times.attention = part[WNW_WORK_ATTENTION];
    times.observation = part[WNW_WORK_OBSERVATION];
    times.logits = part[WNW_WORK_LOGITS];
    times.other = part[WNW_WORK_OTHER];
    wnw__sized_give(out, &times);
    return WNW_OK;
}
