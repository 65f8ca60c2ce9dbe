/* SPDX-License-Identifier: MIT */
/* A sequence under libllama as a source shows it (observe/source.h): entries by the order of their tokens, which takes the
 * place of positions, and what was noted while graphs ran. */
#include "bridge/sequence/sequence.h"

#include "base/parallel.h"
#include "bridge/sequence/track.h"
#include "forward/team.h"
#include "kernel/kernel.h"
#include "observe/projnorm.h"
#include "observe/queries.h"
#include "observe/source.h"
#include "observe/window.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* ---- Entries ---- */

static struct wnw__plan_layer entries_of(void *of, int32_t il)
{
    const struct wnw__bridge_sequence *s = of;
    const int64_t row = wnw__bridge_head(s, il, 0);
    return (struct wnw__plan_layer){.n_entry = s->n_entry + row,
                                    .pos = s->list[il].pos,
                                    .off = s->off + row,
                                    .n_settled = s->list[il].n_settled};
}

static void read_entries(void *of, int32_t il, enum wnw__stored what, int32_t ih, int32_t first, int32_t n,
                         float *dst)
{
    const struct wnw__bridge_sequence *s = of;
    const int32_t *row = s->list[il].row + s->off[wnw__bridge_head(s, il, ih)];
    for (int32_t e = first; e < first + n; e++, dst += s->shape.d)
        wnw__bridge_row_read(s, il, what, ih, row[e], dst);
}

/* ---- Queries ---- */

/* Queries of one of the attentions that read a layer. */
struct reader {
    const struct wnw__bridge_sequence *s;
    int32_t number;
};

/* The query of the token at a place as it is kept; NULL if none was. */
static const void *kept_at(const struct wnw__bridge_sequence *s, int32_t il, int32_t pos, int32_t reader)
{
    const struct wnw__bridge_layer *l = s->layer[il];
    return wnw__bridge_query(l, s->sequence_cells->stream * l->k.n_cell + s->sequence_cells->cell[pos],
                             reader);
}

/* The same where queries are kept as they are. */
static const float *query_at(const void *of, int32_t il, int32_t pos)
{
    const struct reader *r = of;
    return kept_at(r->s, il, pos, r->number);
}

/* The number of last tokens whose queries were kept, at most n; 0 where they were rounded and may not be. */
static int32_t n_kept(const struct wnw__bridge_sequence *s, int32_t il, int32_t n, bool rounded)
{
    int32_t kept = 0;
    if (!rounded && s->layer[il]->queries.type != WNW_KV_F32)
        return 0;
    while (kept < n && kept < s->sequence_cells->n && kept_at(s, il, s->sequence_cells->n - 1 - kept, 0))
        kept++;
    return kept;
}

/* A program that set the policy in time has read a state that was saved. */
static int none_kept(int32_t il)
{
    return wnw__fail(WNW_E_NOT_OBSERVED,
                     "no queries of layer %d were kept: they are kept of tokens that are read after the "
                     "policy was set, and are not part of a saved state",
                     (int)il);
}

/* Where several attentions read the layer, the attention is their mean, and the queries are those of the layer's own. */
static int add_window(struct wnw__bridge_sequence *s, struct wnw__source *source, const wnw_needs *needs,
                      const bool *heads, wnw_observation *obs)
{
    const int32_t n = n_kept(s, obs->il, needs->window, false), n_reader = s->layer[obs->il]->info.n_reader;
    const size_t size = (size_t)obs->n_head * (size_t)n * (size_t)obs->n;
    if (n == 0)
        return none_kept(obs->il);
    if (n < needs->window && n < s->sequence_cells->n)
        return wnw__fail(WNW_E_NOT_OBSERVED, "queries of the last %d tokens are wanted, and %d were kept",
                         (int)needs->window, (int)n);
    float *mean = n_reader > 1 ? wnw__bridge_room(s, WNW_ROOM_ATTN, size) : NULL;
    if (n_reader > 1 && !mean)
        return WNW_E_NOMEM;
    for (int32_t i = n_reader - 1; i >= 0; i--) {
        const struct reader reader = {.s = s, .number = i};
        const struct wnw__window_queries queries = {
            .of = &reader, .at = query_at, .n = n, .end = s->sequence_cells->n};
        WNW_TRY(wnw__window_attend(source, &queries, heads, obs));
        for (size_t k = 0; mean && k < size; k++)
            mean[k] = (i == n_reader - 1 ? 0.0f : mean[k]) + obs->window_attn[k] / (float)n_reader;
    }
    obs->window_attn = mean ? mean : obs->window_attn;
    return WNW_OK;
}

/* Queries themselves are noted of a layer's own attention alone. */
static int check_readers(const struct wnw__bridge_sequence *s, int32_t il, const char *what)
{
    const int32_t n = s->layer[il]->info.n_reader;
    if (n < 2)
        return WNW_OK;
    return wnw__fail(WNW_E_UNSUPPORTED,
                     "%s of all %d attentions that read layer %d cannot be had: only the attention that "
                     "entries receive is noted of all",
                     what, (int)n, (int)il);
}

/* Queries of the last n tokens are there. Before these come tokens whose queries were given back, or not asked for; otherwise some were
 * lost, and the policy would take those that are left for the text. */
static int check_lost(const struct wnw__bridge_sequence *s, int32_t il, int32_t n)
{
    const struct wnw__bridge_sequence_cells *sequence_cells = s->sequence_cells;
    const struct wnw__bridge_note *note =
        n < sequence_cells->n ? wnw__bridge_note_of(sequence_cells, sequence_cells->n - n - 1) : NULL;
    return !note || note->write_order == 0 || note->judged || note->query_skipped
               ? WNW_OK
               : wnw__fail(
                     WNW_E_NOT_OBSERVED,
                     "queries of layer %d were lost, because memory ran out while the prompt was read, or "
                     "another policy wanted them in another form: read it again",
                     (int)il);
}

/* Queries of the last n tokens on their way to float32. */
struct taken {
    const struct wnw__bridge_sequence *s;
    int32_t il, n;
    size_t row; /* numbers of one token */
    float *to;
    atomic_bool beyond; /* a number is beyond the range of f16 */
};
enum { BLOCK = 32 }; /* tokens that a thread converts together */

static void take_block(int32_t i, void *user)
{
    struct taken *t = user;
    const int32_t first = t->s->sequence_cells->n - t->n;
    for (int32_t k = i * BLOCK; k < t->n && k < (i + 1) * BLOCK; k++) {
        const void *from = kept_at(t->s, t->il, first + k, 0);
        float *to = t->to + (size_t)k * t->row;
        if (t->s->layer[t->il]->queries.type == WNW_KV_F32)
            memcpy(to, from, t->row * sizeof *to);
        else if (!wnw__queries_widen(from, 1, (int32_t)t->row, to))
            atomic_store_explicit(&t->beyond, true, memory_order_relaxed);
    }
}

static int add_queries(struct wnw__bridge_sequence *s, const wnw_needs *needs, wnw_observation *obs)
{
    const int32_t n = n_kept(s, obs->il, s->sequence_cells->n, wnw__queries_rounded(needs->flags));
    const size_t row = (size_t)obs->n_head * (size_t)obs->n_embd_head;
    WNW_TRY(check_readers(s, obs->il, "every query"));
    if (n == 0)
        return none_kept(obs->il);
    WNW_TRY(check_lost(s, obs->il, n));
    struct taken t = {.s = s,
                      .il = obs->il,
                      .n = n,
                      .row = row,
                      .to = wnw__bridge_room(s, WNW_ROOM_QUERIES, (size_t)n * row)};
    if (!t.to)
        return WNW_E_NOMEM;
    wnw__parallel(wnw__bridge_pool(s->b), (n + BLOCK - 1) / BLOCK, take_block, &t);
    if (atomic_load_explicit(&t.beyond, memory_order_relaxed))
        return wnw__queries_beyond(obs->il);
    obs->queries = t.to;
    obs->n_queries = n;
    return WNW_OK;
}

/* ---- RoPE ---- */

/* E_UNSUPPORTED unless the layer's own attention turns its queries by plain RoPE. */
static int check_turns(const struct wnw__bridge_sequence *s, int32_t il, const char *what)
{
    const struct wnw__bridge_layer_info *f = &s->layer[il]->info;
    if (f->turns)
        return WNW_OK;
    return wnw__fail(WNW_E_UNSUPPORTED,
                     "%s cannot be had of layer %d: it does not turn whole queries by plain RoPE", what,
                     (int)il);
}

static int add_stats(struct wnw__bridge_sequence *s, wnw_observation *obs)
{
    const struct wnw__bridge_sequence_cells *sequence_cells = s->sequence_cells;
    const size_t n = (size_t)obs->n_head * (size_t)obs->n_embd_head;
    WNW_TRY(check_turns(s, obs->il, "statistics of queries"));
    WNW_TRY(check_readers(s, obs->il, "statistics of queries"));
    const struct wnw__qstats *stats =
        s->b->watch.tracks
            ? wnw__bridge_tracks_of(s->b->watch.tracks, sequence_cells->cache, sequence_cells->stream,
                                    sequence_cells->cell[sequence_cells->n - 1])
            : NULL;
    if (!stats)
        return wnw__fail(
            WNW_E_NOT_OBSERVED,
            "no statistics of these tokens' queries were gathered: set the policy before the prompt is read");
    const struct wnw__shape *of = &wnw__qstats_params(stats)->model;
    if (!wnw__layer_takes_part(of, obs->il))
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "statistics of queries are gathered of layers with one shape; layer %d has another",
                         (int)obs->il);
    float *mean = wnw__bridge_room(s, WNW_ROOM_MEAN, n),
          *cov = wnw__bridge_room(s, WNW_ROOM_COV, n * (size_t)obs->n_embd_head);
    if (!mean || !cov)
        return WNW_E_NOMEM;
    obs->n_query_stats = wnw__qstats_get(stats, obs->il, mean, cov);
    obs->query_mean = mean;
    obs->query_cov = cov;
    return WNW_OK;
}

static int add_rope(struct wnw__bridge_sequence *s, const wnw_needs *needs, wnw_observation *obs)
{
    const struct wnw__bridge_layer_info *f = &s->layer[obs->il]->info;
    if (needs->flags & WNW_NEED_ROPE)
        WNW_TRY(check_turns(s, obs->il, "rotation by position"));
    if (!f->turns)
        return WNW_OK;
    float *theta = wnw__bridge_room(s, WNW_ROOM_THETA, (size_t)f->n_rot / 2);
    if (!theta)
        return WNW_E_NOMEM;
    wnw__bridge_theta(f, theta);
    obs->rope_theta = theta;
    obs->n_rot = f->n_rot;
    obs->rope_neox = f->neox;
    obs->n_ctx_train = f->n_ctx_train;
    return WNW_OK;
}

/* ---- What entries keep, and weights ---- */

static int add_numbers(struct wnw__bridge_sequence *s, const wnw_observation *obs, enum wnw__aux kind,
                       const float **out)
{
    const struct wnw__bridge_layer *l = s->layer[obs->il];
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    const int32_t group = wnw__shape_group(&s->shape);
    if (l->rows.aux_planes[kind] != group)
        return wnw__fail(
            WNW_E_NOT_OBSERVED,
            "no sums of attention were gathered in layer %d: set the policy before the prompt is read",
            (int)obs->il);
    float *to = wnw__bridge_room(s, kind == WNW_AUX_ATTN_SUM ? WNW_ROOM_SUM : WNW_ROOM_MAX,
                                 (size_t)obs->n_head * (size_t)obs->n);
    if (!to)
        return WNW_E_NOMEM;
    *out = to;
    for (int32_t h = 0; h < obs->n_head; h++, to += obs->n) {
        const int32_t ih = h / group;
        const int32_t *row = s->list[obs->il].row + s->off[wnw__bridge_head(s, obs->il, ih)];
        const float *from = wnw__cache_aux(kv, kind, h % group) + kv->off[wnw__bridge_head_of_all(s, ih)];
        for (int32_t e = 0; e < obs->n; e++)
            to[e] = e < obs->n_entry[ih] ? from[row[e]] : 0.0f;
    }
    return WNW_OK;
}

static int add_gates(struct wnw__bridge_sequence *s, wnw_observation *obs)
{
    const struct wnw__bridge_layer *l = s->layer[obs->il];
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    if (l->rows.aux_planes[WNW_AUX_GATE] == 0)
        return wnw__bridge_gates_missing(s->b, l);
    float *to = wnw__bridge_room(s, WNW_ROOM_GATE, (size_t)obs->n_head_kv * (size_t)obs->n);
    if (!to)
        return WNW_E_NOMEM;
    obs->input_score = to;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++, to += obs->n) {
        const int32_t *row = s->list[obs->il].row + s->off[wnw__bridge_head(s, obs->il, ih)];
        const float *from = wnw__cache_aux(kv, WNW_AUX_GATE, 0) + kv->off[wnw__bridge_head_of_all(s, ih)];
        for (int32_t e = 0; e < obs->n; e++) {
            to[e] = e < obs->n_entry[ih] ? from[row[e]] : 0.0f;
            if (isnan(to[e]))
                return wnw__bridge_gates_missing(s->b, l);
        }
    }
    return WNW_OK;
}

static int projection(void *owner, int32_t il, struct wnw__proj_weight *out)
{
    const struct wnw__bridge_sequence *s = owner;
    const struct wnw__bridge_layer *l = s->layer[il];
    const struct ggml_tensor *w = l->v_in_keys ? NULL : l->info.wo;
    if (!w || l->d_v != l->d_k || w->ne[0] != (int64_t)s->shape.n_head * l->d_v)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "norms after the output projection cannot be had of layer %d: its weight does not "
                         "follow the attention as the file has it",
                         (int)il);
    *out = (struct wnw__proj_weight){.type = w->type,
                                     .data = w->data,
                                     .n_head = s->shape.n_head,
                                     .n_head_kv = s->shape.n_head_kv,
                                     .d = l->d_v,
                                     .n_out = (int32_t)w->ne[1]};
    return WNW_OK;
}

/* ---- The source ---- */

static int add(void *owner, struct wnw__source *source, const wnw_needs *needs, const bool *heads,
               wnw_observation *obs)
{
    struct wnw__bridge_sequence *s = owner;
    obs->attn_scale = s->layer[obs->il]->info.scale;
    if (s->taking)
        return wnw__bridge_sample_take(s, source, obs);
    WNW_TRY(add_rope(s, needs, obs));
    if (needs->flags & WNW_NEED_PROJ_NORM) {
        struct wnw__proj_weight weight;
        WNW_TRY(projection(s, obs->il, &weight)); /* before a policy asks for numbers */
    }
    if (needs->flags & WNW_NEED_WINDOW_ATTN)
        WNW_TRY(add_window(s, source, needs, heads, obs));
    if (needs->flags & WNW_NEED_EVERY_QUERY)
        WNW_TRY(add_queries(s, needs, obs));
    if (needs->flags & WNW_NEED_QUERY_STATS)
        WNW_TRY(add_stats(s, obs));
    if (needs->flags & WNW_NEED_ATTN_SUM)
        WNW_TRY(add_numbers(s, obs, WNW_AUX_ATTN_SUM, &obs->attn_sum));
    if (needs->flags & WNW_NEED_ATTN_MAX)
        WNW_TRY(add_numbers(s, obs, WNW_AUX_ATTN_MAX, &obs->attn_max));
    if (needs->flags & WNW_NEED_INPUT_GATE)
        WNW_TRY(add_gates(s, obs));
    if (needs->flags & WNW_NEED_SECOND_PASS)
        WNW_TRY(wnw__bridge_sample_show(s, obs));
    return WNW_OK;
}

/* The number of first tokens, a header of the template included, that a compression has judged. */
static int32_t count_judged(const struct wnw__bridge_sequence_cells *sequence_cells)
{
    int32_t n = sequence_cells->n_prefix;
    for (const struct wnw__bridge_note *note;
         n < sequence_cells->n && (note = wnw__bridge_note_of(sequence_cells, n)); n++)
        if (!note->judged)
            break;
    return n > sequence_cells->n_prefix ? n : 0;
}

int wnw__bridge_source(struct wnw__plan_source *src, struct wnw__bridge_sequence *s)
{
    *src = (struct wnw__plan_source){.shape = s->shape,
                                     .n_past = s->sequence_cells->n,
                                     .n_prefix = s->sequence_cells->n_prefix,
                                     .n_judged = count_judged(s->sequence_cells),
                                     .ratio_base = s->sequence_cells->n,
                                     .n_excluded = s->sequence_cells->n_prefix,
                                     .entry_bytes = {.each = s->entry_bytes},
                                     .profile = s->b->watch.profile};
    return wnw__source_open(
        src, &(struct wnw__source_of){.entries = {.of = s, .layer = entries_of, .read = read_entries},
                                      .n_past = &s->sequence_cells->n,
                                      .pool = wnw__bridge_pool(s->b),
                                      .proj = s->b->watch.proj,
                                      .projection = projection,
                                      .add = add,
                                      .owner = s});
}
