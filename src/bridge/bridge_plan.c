/* SPDX-License-Identifier: MIT */
/* A sequence under libllama as the planner sees it: entries by the order of their tokens, keys and values as stored, and
 * the attention of the newest queries. */
#include "bridge/bridge_plan.h"

#include "base/memory.h"
#include "base/vectors.h"
#include "bridge/bridge_watch.h"
#include "kernel/kernel.h"
#include "plan/compress.h"
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Entries of a head that belong to the sequence. */
struct head {
    int32_t *pos, *row; /* [n] place among the sequence's tokens; row of the store. pos ascends */
    int32_t n;
};

struct view {
    struct wnw__bridge_backend *b;
    const struct wnw__bridge_live *live;
    int32_t n_layer, n_head, n_q_head, d;
    size_t entry_bytes;
    struct wnw__bridge_layer **layer; /* [n_layer] by the model's number; NULL: policies leave it alone */
    struct head *head;                /* [n_layer * n_head] */
    int32_t *rank;                    /* [cells] place of a cell's token, -1 = of another sequence */
    int32_t n_rank;
    int32_t il; /* the layer that is observed */
    int32_t *n_entry;
    struct wnw__buffer pos, keys, values, attn, queries;
};

static struct head *head_at(const struct view *v, int32_t il, int32_t ih)
{
    return &v->head[(int64_t)il * v->n_head + ih];
}

/* ---- What there is ---- */

static int list_head(struct view *v, int32_t il, int32_t ih)
{
    const struct wnw__kv_layer *kv = &v->layer[il]->rows.layers[0];
    const int32_t i = v->live->stream * v->n_head + ih, n = kv->len[i];
    struct head *h = head_at(v, il, ih);
    int32_t(*pair)[2] = malloc(((size_t)n + 1) * sizeof *pair);
    h->pos = malloc(2 * ((size_t)n + 1) * sizeof *h->pos);
    if (!pair || !h->pos) {
        free(pair);
        return wnw__fail(WNW_E_NOMEM, "no memory to list a head's entries");
    }
    for (int32_t row = 0; row < n; row++) {
        const int32_t cell = kv->pos[kv->off[i] + row], rank = cell < v->n_rank ? v->rank[cell] : -1;
        if (rank < 0)
            continue;
        pair[h->n][0] = rank;
        pair[h->n++][1] = row;
    }
    qsort(pair, (size_t)h->n, sizeof *pair, wnw__ascending_i32);
    h->row = h->pos + h->n;
    for (int32_t e = 0; e < h->n; e++) {
        h->pos[e] = pair[e][0];
        h->row[e] = pair[e][1];
    }
    free(pair);
    return WNW_OK;
}

static bool takes(const struct view *v, const struct wnw__bridge_layer *l)
{
    return l->kind == WNW_BRIDGE_RAGGED && !l->lost && !wnw__bridge_is_sliding(v->b, l);
}

/* Finds the layers that policies act on, which have one shape: an observation has one. */
static int list_layers(struct view *v)
{
    const struct wnw__bridge_cache *c = v->live->cache;
    const struct wnw__bridge_layer *first = NULL;
    for (int32_t i = 0; i < c->n_layer; i++)
        v->n_layer = c->layers[i]->il + 1 > v->n_layer ? c->layers[i]->il + 1 : v->n_layer;
    v->layer = calloc((size_t)v->n_layer + 1, sizeof *v->layer);
    if (!v->layer)
        return wnw__fail(WNW_E_NOMEM, "no memory to list layers");
    for (int32_t i = 0; i < c->n_layer; i++) {
        struct wnw__bridge_layer *l = c->layers[i];
        if (!takes(v, l))
            continue;
        first = first ? first : l;
        if (l->v_in_keys || l->d_k != l->d_v)
            return wnw__fail(WNW_E_UNSUPPORTED,
                             "policies need keys and values of one size; layer %d has %d and %d", (int)l->il,
                             (int)l->d_k, (int)l->d_v);
        if (l->n_head != first->n_head || l->d_k != first->d_k)
            return wnw__fail(WNW_E_UNSUPPORTED, "policies need layers with the same heads; %d and %d differ",
                             (int)first->il, (int)l->il);
        v->layer[l->il] = l;
    }
    if (!first)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "no layer of this cache is ours: policies have nothing to act on");
    v->n_head = first->n_head;
    v->n_q_head = first->n_q_head > 0 ? first->n_q_head : first->n_head;
    v->d = first->d_k;
    v->entry_bytes = first->rows.row_bytes + first->rows.v_row_bytes;
    return WNW_OK;
}

static int list_all(struct view *v)
{
    WNW_TRY(list_layers(v));
    for (int32_t i = 0; i < v->live->n; i++)
        v->n_rank = v->live->cell[i] + 1 > v->n_rank ? v->live->cell[i] + 1 : v->n_rank;
    v->head = calloc((size_t)v->n_layer * (size_t)v->n_head, sizeof *v->head);
    v->rank = malloc(((size_t)v->n_rank + 1) * sizeof *v->rank);
    v->n_entry = calloc((size_t)v->n_head, sizeof *v->n_entry);
    if (!v->head || !v->rank || !v->n_entry)
        return wnw__fail(WNW_E_NOMEM, "no memory to list entries");
    for (int32_t cell = 0; cell < v->n_rank; cell++)
        v->rank[cell] = -1;
    for (int32_t i = 0; i < v->live->n; i++)
        v->rank[v->live->cell[i]] = i;
    for (int32_t il = 0; il < v->n_layer; il++)
        for (int32_t ih = 0; v->layer[il] && ih < v->n_head; ih++)
            WNW_TRY(list_head(v, il, ih));
    return WNW_OK;
}

static void release(struct view *v)
{
    for (int64_t i = 0; v->head && i < (int64_t)v->n_layer * v->n_head; i++)
        free(v->head[i].pos);
    free(v->head);
    free(v->layer);
    free(v->rank);
    free(v->n_entry);
    wnw__buffer_free(&v->pos);
    wnw__buffer_free(&v->keys);
    wnw__buffer_free(&v->values);
    wnw__buffer_free(&v->attn);
    wnw__buffer_free(&v->queries);
}

/* ---- Observations ---- */

/* Entries first .. first+n-1 of a head as float32. */
static void read_rows(const struct view *v, int32_t il, bool is_v, int32_t ih, int32_t first, int32_t n,
                      float *dst)
{
    const struct wnw__bridge_layer *l = v->layer[il];
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    const struct head *h = head_at(v, il, ih);
    const int64_t off = kv->off[v->live->stream * v->n_head + ih];
    const enum ggml_type type = is_v ? l->v.type : l->k.type;
    const size_t row_bytes = is_v ? l->rows.v_row_bytes : l->rows.row_bytes;
    for (int32_t e = first; e < first + n; e++, dst += v->d) {
        const uint8_t *row = (is_v ? kv->v : kv->k) + (size_t)(off + h->row[e]) * row_bytes;
        if (type == GGML_TYPE_F32)
            memcpy(dst, row, (size_t)v->d * sizeof *dst);
        else
            ggml_get_type_traits(type)->to_float(row, dst, v->d);
    }
}

static const float *rows_of(const wnw_observation *obs, bool is_v, int32_t ih, int32_t first, int32_t n)
{
    struct view *v = obs->source;
    float *to = is_v ? v->values.p : v->keys.p;
    read_rows(v, obs->il, is_v, ih, first, n, to);
    return to;
}

static const float *observe_keys(const wnw_observation *obs, int32_t ih)
{
    return rows_of(obs, false, ih, 0, obs->n_entry[ih]);
}

static const float *observe_values(const wnw_observation *obs, int32_t ih)
{
    return rows_of(obs, true, ih, 0, obs->n_entry[ih]);
}

static const float *observe_key_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t n)
{
    return rows_of(obs, false, ih, first, n);
}

static const float *observe_value_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t n)
{
    return rows_of(obs, true, ih, first, n);
}

/* The query of a cell that a layer's ring holds, the newest of them; NULL if it holds none. */
static const float *query_of(const struct view *v, const struct wnw__bridge_layer *l, int32_t cell)
{
    const int32_t want = v->live->stream * l->k.n_cell + cell;
    for (int32_t i = 1; i <= l->q_room; i++) {
        const int32_t at = (l->q_at - i + l->q_room) % l->q_room;
        if (l->q_cell[at] == want)
            return l->q + (size_t)at * (size_t)l->n_q_head * (size_t)l->d_k;
    }
    return NULL;
}

/* Sets the queries [n_q_head][n_window][d] of the sequence's last tokens; returns how many there are, up to the window. */
static int32_t gather_queries(struct view *v, int32_t il, int32_t window, float *queries)
{
    const struct wnw__bridge_layer *l = v->layer[il];
    int32_t n = 0;
    while (n < window && n < v->live->n && query_of(v, l, v->live->cell[v->live->n - 1 - n]))
        n++;
    for (int32_t w = 0; w < n; w++) {
        const float *q = query_of(v, l, v->live->cell[v->live->n - n + w]);
        for (int32_t h = 0; h < v->n_q_head; h++)
            memcpy(queries + ((size_t)h * (size_t)n + (size_t)w) * (size_t)v->d, q + (size_t)h * (size_t)v->d,
                   (size_t)v->d * sizeof *queries);
    }
    return n;
}

/* attn[n_q_head][n_window][n]: softmax over the entries that each query sees. */
static int window_attention(struct view *v, const wnw_needs *needs, wnw_observation *obs)
{
    const struct wnw__bridge_layer *l = v->layer[obs->il];
    const size_t n = (size_t)obs->n, rows = (size_t)v->n_q_head * (size_t)needs->window;
    if (!l->q || l->n_q_head != v->n_q_head)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "no queries of layer %d were kept: set the policy before the prompt is read",
                         (int)obs->il);
    WNW_TRY(wnw__buffer_need(&v->queries, rows * (size_t)v->d, sizeof(float), "observations"));
    WNW_TRY(wnw__buffer_need(&v->attn, rows * n, sizeof(float), "observations"));
    WNW_TRY(wnw__buffer_need(&v->keys, n * (size_t)v->d, sizeof(float), "observations"));
    float *queries = v->queries.p, *attn = v->attn.p;
    const int32_t n_window = gather_queries(v, obs->il, needs->window, queries);
    if (n_window < needs->window && n_window < v->live->n)
        return wnw__fail(WNW_E_NOT_OBSERVED, "queries of the last %d tokens are wanted, and %d were kept",
                         (int)needs->window, (int)n_window);
    for (int32_t h = 0; h < v->n_q_head; h++) {
        const int32_t ih = h / (v->n_q_head / v->n_head), n_entry = obs->n_entry[ih];
        const float *q = queries + (size_t)h * (size_t)n_window * (size_t)v->d;
        float *row = attn + (size_t)h * (size_t)n_window * n;
        memset(row, 0, (size_t)n_window * n * sizeof *row);
        wnw__mul_nt(q, n_window, observe_keys(obs, ih), n_entry, v->d, l->scale, row, (int64_t)n);
        for (int32_t w = 0; w < n_window; w++, row += n) {
            for (int32_t e = n_entry - 1;
                 e >= 0 && head_at(v, obs->il, ih)->pos[e] > obs->n_past - n_window + w; e--)
                row[e] = -INFINITY;
            wnw__softmax(row, n_entry);
        }
    }
    obs->n_window = n_window;
    obs->window_attn = attn;
    obs->window_queries = queries;
    return WNW_OK;
}

static int observe(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs,
                   wnw_observation *obs)
{
    struct view *v = src->user;
    int32_t n = 0;
    for (int32_t ih = 0; ih < v->n_head; ih++) {
        v->n_entry[ih] = head_at(v, il, ih)->n;
        n = v->n_entry[ih] > n ? v->n_entry[ih] : n;
    }
    WNW_TRY(wnw__buffer_need(&v->pos, (size_t)v->n_head * (size_t)n, sizeof(int32_t), "observations"));
    for (int32_t ih = 0; ih < v->n_head; ih++)
        for (int32_t e = 0; e < n; e++)
            ((int32_t *)v->pos.p)[(int64_t)ih * n + e] = e < v->n_entry[ih] ? head_at(v, il, ih)->pos[e] : -1;
    *obs = (wnw_observation){.il = il,
                             .n_layer = v->n_layer,
                             .n_head = v->n_q_head,
                             .n_head_kv = v->n_head,
                             .n_embd_head = v->d,
                             .n = n,
                             .n_past = v->live->n,
                             .n_entry = v->n_entry,
                             .pos = v->pos.p,
                             .attn_scale = v->layer[il]->scale,
                             .source = v};
    if (needs->flags & WNW_NEED_WINDOW_ATTN)
        WNW_TRY(window_attention(v, needs, obs));
    WNW_TRY(wnw__buffer_need(&v->keys, (size_t)n * (size_t)v->d, sizeof(float), "observations"));
    WNW_TRY(wnw__buffer_need(&v->values, (size_t)n * (size_t)v->d, sizeof(float), "observations"));
    if (needs->flags & WNW_NEED_KEYS) {
        obs->keys = observe_keys;
        obs->key_rows = observe_key_rows;
    }
    if (needs->flags & WNW_NEED_VALUES) {
        obs->values = observe_values;
        obs->value_rows = observe_value_rows;
    }
    return WNW_OK;
}

static bool is_skipped(const struct wnw__plan_source *src, int32_t il)
{
    return ((const struct view *)src->user)->layer[il] == NULL;
}

static int32_t n_entry(const struct wnw__plan_source *src, int32_t il, int32_t ih)
{
    return head_at(src->user, il, ih)->n;
}

static const int32_t *positions(const struct wnw__plan_source *src, int32_t il, int32_t ih)
{
    return head_at(src->user, il, ih)->pos;
}

/* ---- Dropping ---- */

/* Drops the entries of a head whose places are not among kept[n]. */
static int drop_others(const struct view *v, int32_t il, int32_t ih, const int32_t *kept, int64_t n)
{
    const struct head *h = head_at(v, il, ih);
    int32_t *out = malloc(((size_t)h->n + 1) * sizeof *out), n_out = 0;
    int64_t k = 0;
    if (!out)
        return wnw__fail(WNW_E_NOMEM, "no memory to drop entries");
    for (int32_t e = 0; e < h->n; e++) {
        while (k < n && kept[k] < h->pos[e])
            k++;
        if (k == n || kept[k] != h->pos[e])
            out[n_out++] = v->live->cell[h->pos[e]];
    }
    qsort(out, (size_t)n_out, sizeof *out, wnw__ascending_i32);
    const int rc = n_out > 0 ? wnw__bridge_layer_drop(v->layer[il], v->live->stream, ih, out, n_out) : WNW_OK;
    free(out);
    return rc;
}

static int apply(struct view *v, const wnw_plan *plan)
{
    for (int32_t il = 0; il < v->n_layer; il++)
        for (int32_t ih = 0; v->layer[il] && ih < v->n_head; ih++) {
            const int64_t i = (int64_t)il * v->n_head + ih;
            WNW_TRY(drop_others(v, il, ih, plan->pos + plan->off[i], plan->off[i + 1] - plan->off[i]));
        }
    return WNW_OK;
}

/* Also after a failure, which the next token would only repeat. */
static void mark_seen(const struct wnw__bridge_live *live)
{
    for (int32_t i = 0; live->cache->note && i < live->n; i++)
        live->cache->note[(int64_t)live->stream * live->cache->n_cell + live->cell[i]].seen = true;
}

int wnw__bridge_compress(struct wnw__bridge_backend *b, const struct wnw__bridge_live *live)
{
    struct view v = {.b = b, .live = live};
    wnw_plan *plan = NULL;
    wnw_report report = {WNW_INIT(wnw_report)};
    int rc = live->cache->note ? list_all(&v) : wnw__fail(WNW_E_ARG, "the cache is gone");
    if (rc == WNW_OK) {
        const struct wnw__plan_source source = {
            .n_layer = v.n_layer,
            .n_head = v.n_q_head,
            .n_head_kv = v.n_head,
            .n_embd_head = v.d,
            .n_past = live->n,
            .ratio_base = live->n,
            .entry_bytes = {.each = v.entry_bytes},
            .user = &v,
            .is_skipped = is_skipped,
            .n_entry = n_entry,
            .positions = positions,
            .observe = observe,
        };
        rc = wnw__plan_make(&plan, b->watch.policy, &b->watch.size, &source, &report);
    }
    rc = rc == WNW_OK ? apply(&v, plan) : rc;
    mark_seen(live);
    if (rc == WNW_OK)
        wnw__log(WNW_LOG_INFO, "winnow: of %d tokens, %.0f entries per head are kept", (int)live->n,
                 report.kept_mean);
    wnw_plan_free(plan);
    release(&v);
    return rc;
}
