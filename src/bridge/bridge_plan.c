/* SPDX-License-Identifier: MIT */
/* A sequence under libllama as a source shows it (observe/source.h): entries by the order of their tokens, keys and values
 * as the layers' stores have them, and the newest queries that the watch kept. */
#include "bridge/bridge_plan.h"

#include "base/memory.h"
#include "base/vectors.h"
#include "bridge/bridge_watch.h"
#include "observe/source.h"
#include "observe/window.h"
#include "plan/compress.h"
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

struct sequence {
    struct wnw__bridge_backend *b;
    const struct wnw__bridge_live *live;
    struct wnw__shape shape;
    bool *left_alone; /* [n_layer] of shape */
    size_t entry_bytes;
    struct wnw__bridge_layer **layer; /* [n_layer] by the model's number; NULL: policies leave it alone */
    /* Entries that belong to the sequence, those of each head in the order of their tokens. */
    int32_t *n_entry; /* [n_layer][n_head_kv] */
    int64_t *off;     /* [n_layer][n_head_kv] first entry of each head in its layer's arrays */
    struct list {
        int32_t *pos, *row; /* place among the sequence's tokens; row of the store within its head */
    } * list;               /* [n_layer] */
    int32_t *rank;          /* [n_rank] place of a cell's token, -1 = of another sequence */
    int32_t n_rank;
};

/* ---- What there is ---- */

/* Lists the entries of a head from `at` on; pair is scratch. */
static void list_head(struct sequence *s, int32_t il, int32_t ih, int64_t at, int32_t (*pair)[2])
{
    const struct wnw__kv_layer *kv = &s->layer[il]->rows.layers[0];
    const int32_t i = s->live->stream * s->shape.n_head_kv + ih;
    int32_t n = 0;
    for (int32_t row = 0; row < kv->len[i]; row++) {
        const int32_t cell = kv->pos[kv->off[i] + row], rank = cell < s->n_rank ? s->rank[cell] : -1;
        if (rank < 0)
            continue;
        pair[n][0] = rank;
        pair[n++][1] = row;
    }
    qsort(pair, (size_t)n, sizeof *pair, wnw__ascending_i32);
    for (int32_t e = 0; e < n; e++) {
        s->list[il].pos[at + e] = pair[e][0];
        s->list[il].row[at + e] = pair[e][1];
    }
    s->off[(int64_t)il * s->shape.n_head_kv + ih] = at;
    s->n_entry[(int64_t)il * s->shape.n_head_kv + ih] = n;
}

static int list_layer(struct sequence *s, int32_t il)
{
    const int32_t n_head = s->shape.n_head_kv;
    const int32_t *len = s->layer[il]->rows.layers[0].len + (int64_t)s->live->stream * n_head;
    size_t n = 0, longest = 0;
    for (int32_t ih = 0; ih < n_head; ih++) {
        n += (size_t)len[ih];
        longest = (size_t)len[ih] > longest ? (size_t)len[ih] : longest;
    }
    int32_t(*pair)[2] = malloc((longest + 1) * sizeof *pair);
    s->list[il].pos = malloc(2 * (n + 1) * sizeof *s->list[il].pos);
    if (!pair || !s->list[il].pos) {
        free(pair);
        return wnw__fail(WNW_E_NOMEM, "no memory to list a layer's entries");
    }
    s->list[il].row = s->list[il].pos + n;
    int64_t at = 0;
    for (int32_t ih = 0; ih < n_head; ih++) {
        list_head(s, il, ih, at, pair);
        at += s->n_entry[(int64_t)il * n_head + ih];
    }
    free(pair);
    return WNW_OK;
}

static bool takes(const struct sequence *s, const struct wnw__bridge_layer *l)
{
    return l->kind == WNW_BRIDGE_RAGGED && !l->lost && !wnw__bridge_is_sliding(s->b, l);
}

/* Policies need layers of one shape: an observation has one. */
static int check_layer(const struct wnw__bridge_layer *l, const struct wnw__bridge_layer *first)
{
    if (l->v_in_keys || l->d_k != l->d_v)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "policies need keys and values of one size; layer %d has %d and %d", (int)l->il,
                         (int)l->d_k, (int)l->d_v);
    if (l->n_head != first->n_head || l->d_k != first->d_k)
        return wnw__fail(WNW_E_UNSUPPORTED, "policies need layers with the same heads; %d and %d differ",
                         (int)first->il, (int)l->il);
    return WNW_OK;
}

/* Finds the layers that policies act on. */
static int list_layers(struct sequence *s)
{
    const struct wnw__bridge_cache *c = s->live->cache;
    const struct wnw__bridge_layer *first = NULL;
    for (int32_t i = 0; i < c->n_layer; i++)
        s->shape.n_layer = c->layers[i]->il + 1 > s->shape.n_layer ? c->layers[i]->il + 1 : s->shape.n_layer;
    s->layer = calloc((size_t)s->shape.n_layer + 1, sizeof *s->layer);
    s->left_alone = calloc((size_t)s->shape.n_layer + 1, sizeof *s->left_alone);
    if (!s->layer || !s->left_alone)
        return wnw__fail(WNW_E_NOMEM, "no memory to list layers");
    for (int32_t i = 0; i < c->n_layer; i++) {
        struct wnw__bridge_layer *l = c->layers[i];
        if (!takes(s, l))
            continue;
        first = first ? first : l;
        WNW_TRY(check_layer(l, first));
        s->layer[l->il] = l;
    }
    if (!first)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "no layer of this cache is ours: policies have nothing to act on");
    for (int32_t il = 0; il < s->shape.n_layer; il++)
        s->left_alone[il] = s->layer[il] == NULL;
    s->shape.left_alone = s->left_alone;
    s->shape.n_head_kv = first->n_head;
    s->shape.n_head = first->n_q_head > 0 ? first->n_q_head : first->n_head;
    s->shape.d = first->d_k;
    s->entry_bytes = first->rows.row_bytes + first->rows.v_row_bytes;
    return WNW_OK;
}

static int list_all(struct sequence *s)
{
    WNW_TRY(list_layers(s));
    const size_t n_layer = (size_t)s->shape.n_layer, n_row = n_layer * (size_t)s->shape.n_head_kv;
    for (int32_t i = 0; i < s->live->n; i++)
        s->n_rank = s->live->cell[i] + 1 > s->n_rank ? s->live->cell[i] + 1 : s->n_rank;
    s->list = calloc(n_layer, sizeof *s->list);
    s->n_entry = calloc(n_row, sizeof *s->n_entry);
    s->off = calloc(n_row, sizeof *s->off);
    s->rank = malloc(((size_t)s->n_rank + 1) * sizeof *s->rank);
    if (!s->list || !s->n_entry || !s->off || !s->rank)
        return wnw__fail(WNW_E_NOMEM, "no memory to list entries");
    for (int32_t cell = 0; cell < s->n_rank; cell++)
        s->rank[cell] = -1;
    for (int32_t i = 0; i < s->live->n; i++)
        s->rank[s->live->cell[i]] = i;
    for (int32_t il = 0; il < s->shape.n_layer; il++)
        if (wnw__layer_takes_part(&s->shape, il))
            WNW_TRY(list_layer(s, il));
    return WNW_OK;
}

static void release(struct sequence *s)
{
    for (int32_t il = 0; s->list && il < s->shape.n_layer; il++)
        free(s->list[il].pos);
    free(s->list);
    free(s->n_entry);
    free(s->off);
    free(s->rank);
    free(s->layer);
    free(s->left_alone);
}

/* ---- The source ---- */

static struct wnw__plan_layer entries_of(void *of, int32_t il)
{
    const struct sequence *s = of;
    const int64_t row = (int64_t)il * s->shape.n_head_kv;
    return (struct wnw__plan_layer){.n_entry = s->n_entry + row, .pos = s->list[il].pos, .off = s->off + row};
}

static void read_entries(void *of, int32_t il, enum wnw__stored what, int32_t ih, int32_t first, int32_t n,
                         float *dst)
{
    const struct sequence *s = of;
    const struct wnw__bridge_layer *l = s->layer[il];
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    const bool is_v = what == WNW_VALUES;
    const int32_t *row = s->list[il].row + s->off[(int64_t)il * s->shape.n_head_kv + ih];
    const int64_t off = kv->off[s->live->stream * s->shape.n_head_kv + ih];
    const enum ggml_type type = is_v ? l->v.type : l->k.type;
    const size_t row_bytes = is_v ? l->rows.v_row_bytes : l->rows.row_bytes;
    for (int32_t e = first; e < first + n; e++, dst += s->shape.d) {
        const uint8_t *x = (is_v ? kv->v : kv->k) + (size_t)(off + row[e]) * row_bytes;
        if (type == GGML_TYPE_F32)
            memcpy(dst, x, (size_t)s->shape.d * sizeof *dst);
        else
            ggml_get_type_traits(type)->to_float(x, dst, s->shape.d);
    }
}

/* The query [n_head][d] of the token at a place, the newest that the layer's ring holds of its cell; NULL if it holds
 * none. */
static const float *query_at(const void *of, int32_t il, int32_t pos)
{
    const struct sequence *s = of;
    const struct wnw__bridge_layer *l = s->layer[il];
    const int32_t want = s->live->stream * l->k.n_cell + s->live->cell[pos];
    for (int32_t i = 1; i <= l->q_room; i++) {
        const int32_t at = (l->q_at - i + l->q_room) % l->q_room;
        if (l->q_cell[at] == want)
            return l->q + (size_t)at * (size_t)l->n_q_head * (size_t)l->d_k;
    }
    return NULL;
}

/* Adds the attention of the queries that were kept of the layer. */
static int add_window(void *owner, struct wnw__source *source, const wnw_needs *needs, const bool *heads,
                      wnw_observation *obs)
{
    const struct sequence *s = owner;
    const struct wnw__bridge_layer *l = s->layer[obs->il];
    struct wnw__window_queries queries = {.of = s, .at = query_at, .end = s->live->n};
    obs->attn_scale = l->scale;
    if (!(needs->flags & WNW_NEED_WINDOW_ATTN))
        return WNW_OK;
    if (!l->q || l->n_q_head != s->shape.n_head)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "no queries of layer %d were kept: set the policy before the prompt is read",
                         (int)obs->il);
    while (queries.n < needs->window && queries.n < s->live->n &&
           query_at(s, obs->il, s->live->n - 1 - queries.n))
        queries.n++;
    if (queries.n < needs->window && queries.n < s->live->n)
        return wnw__fail(WNW_E_NOT_OBSERVED, "queries of the last %d tokens are wanted, and %d were kept",
                         (int)needs->window, (int)queries.n);
    return wnw__window_attend(source, &queries, heads, obs);
}

static int plan_of(struct sequence *s, wnw_plan **plan, wnw_report *report)
{
    struct wnw__plan_source src = {.shape = s->shape,
                                   .n_past = s->live->n,
                                   .ratio_base = s->live->n,
                                   .entry_bytes = {.each = s->entry_bytes}};
    WNW_TRY(wnw__source_open(
        &src, &(struct wnw__source_of){.entries = {.of = s, .layer = entries_of, .read = read_entries},
                                       .n_past = &s->live->n,
                                       .add = add_window,
                                       .owner = s}));
    const int rc = wnw__plan_make(plan, s->b->watch.policy, &s->b->watch.size, &src, report);
    wnw__source_close(&src);
    return rc;
}

/* ---- Dropping ---- */

/* Drops the entries of a head whose places are not among kept[n]. */
static int drop_others(const struct sequence *s, int32_t il, int32_t ih, const int32_t *kept, int64_t n)
{
    const int64_t i = (int64_t)il * s->shape.n_head_kv + ih;
    const int32_t *pos = s->list[il].pos + s->off[i];
    int32_t *out = malloc(((size_t)s->n_entry[i] + 1) * sizeof *out), n_out = 0;
    int64_t k = 0;
    if (!out)
        return wnw__fail(WNW_E_NOMEM, "no memory to drop entries");
    for (int32_t e = 0; e < s->n_entry[i]; e++) {
        while (k < n && kept[k] < pos[e])
            k++;
        if (k == n || kept[k] != pos[e])
            out[n_out++] = s->live->cell[pos[e]];
    }
    qsort(out, (size_t)n_out, sizeof *out, wnw__ascending_i32);
    const int rc = n_out > 0 ? wnw__bridge_layer_drop(s->layer[il], s->live->stream, ih, out, n_out) : WNW_OK;
    free(out);
    return rc;
}

static int apply(struct sequence *s, const wnw_plan *plan)
{
    const int32_t n_head = s->shape.n_head_kv;
    for (int32_t il = 0; il < s->shape.n_layer; il++)
        for (int32_t ih = 0; wnw__layer_takes_part(&s->shape, il) && ih < n_head; ih++) {
            const int64_t i = (int64_t)il * n_head + ih;
            WNW_TRY(drop_others(s, il, ih, plan->pos + plan->off[i], plan->off[i + 1] - plan->off[i]));
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
    struct sequence s = {.b = b, .live = live};
    wnw_plan *plan = NULL;
    wnw_report report = {WNW_INIT(wnw_report)};
    int rc = live->cache->note ? list_all(&s) : wnw__fail(WNW_E_ARG, "the cache is gone");
    if (rc == WNW_OK)
        rc = plan_of(&s, &plan, &report);
    rc = rc == WNW_OK ? apply(&s, plan) : rc;
    mark_seen(live);
    if (rc == WNW_OK)
        wnw__log(WNW_LOG_INFO, "winnow: of %d tokens, %.0f entries per head are kept", (int)live->n,
                 report.kept_mean);
    wnw_plan_free(plan);
    release(&s);
    return rc;
}
