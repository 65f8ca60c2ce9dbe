/* SPDX-License-Identifier: MIT */

#include "bridge/sequence/sequence.h"
#include "base/parallel.h"
#include "forward/team.h"
#include "kernel/kernel.h"

#include <stdlib.h>
#include <string.h>

/* ---- Entries ---- */

/* Lists the entries of a head from `at` on, in the order of their tokens. row_of [sequence_cells->n] is scratch. */
static void list_head(struct wnw__bridge_sequence *s, int32_t il, int32_t ih, int64_t at, int32_t *row_of)
{
    const struct wnw__kv_layer *kv = &s->layer[il]->rows.layers[0];
    const int32_t i = wnw__bridge_head_of_all(s, ih);
    int32_t n = 0;
    for (int32_t rank = 0; rank < s->sequence_cells->n; rank++)
        row_of[rank] = -1;
    for (int32_t row = 0; row < kv->len[i]; row++) {
        const int32_t cell = kv->pos[kv->off[i] + row], rank = cell < s->n_rank ? s->rank[cell] : -1;
        if (rank >= 0)
            row_of[rank] = row;
    }
    for (int32_t rank = 0; rank < s->sequence_cells->n; rank++)
        if (row_of[rank] >= 0) {
            s->list[il].pos[at + n] = rank;
            s->list[il].row[at + n++] = row_of[rank];
        }
    s->off[wnw__bridge_head(s, il, ih)] = at;
    s->n_entry[wnw__bridge_head(s, il, ih)] = n;
}

/* The number of first entries of a head that are settled. */
static int32_t count_settled(const struct wnw__bridge_sequence *s, int32_t il, int32_t ih)
{
    const struct wnw__bridge_layer *l = s->layer[il];
    const struct wnw__kv_layer *kv = &l->rows.layers[0];
    const int64_t at = s->off[wnw__bridge_head(s, il, ih)];
    int32_t n = 0;
    if (l->rows.aux_planes[WNW_AUX_SETTLED] == 0)
        return 0;
    const float *settled = wnw__cache_aux(kv, WNW_AUX_SETTLED, 0) + kv->off[wnw__bridge_head_of_all(s, ih)];
    while (n < s->n_entry[wnw__bridge_head(s, il, ih)] && settled[s->list[il].row[at + n]] > 0.0f)
        n++;
    return n;
}

/* Makes room for the list of a layer: its entries, and scratch of list_head after them. */
static int need_list(struct wnw__bridge_sequence *s, int32_t il)
{
    const int32_t n_head = s->shape.n_head_kv;
    const int32_t *len = s->layer[il]->rows.layers[0].len + (int64_t)s->sequence_cells->stream * n_head;
    struct wnw__bridge_list *list = &s->list[il];
    size_t n = 0;
    for (int32_t ih = 0; ih < n_head; ih++)
        n += (size_t)len[ih];
    list->pos = malloc((2 * n + (size_t)s->sequence_cells->n + 1) * sizeof *list->pos);
    if (!list->pos)
        return wnw__fail(WNW_E_NOMEM, "no memory to list a layer's entries");
    list->row = list->pos + n;
    list->scratch = list->row + n;
    list->n_settled = INT32_MAX;
    return WNW_OK;
}

static void list_layer(int32_t il, void *user)
{
    struct wnw__bridge_sequence *s = user;
    struct wnw__bridge_list *list = &s->list[il];
    int64_t at = 0;
    if (!wnw__layer_takes_part(&s->shape, il))
        return;
    for (int32_t ih = 0; ih < s->shape.n_head_kv; ih++) {
        list_head(s, il, ih, at, list->scratch);
        at += s->n_entry[wnw__bridge_head(s, il, ih)];
        const int32_t n = s->n_entry[wnw__bridge_head(s, il, ih)], known = s->sequence_cells->n_settled,
                      noted = count_settled(s, il, ih), settled = noted > known ? noted : known;
        list->n_settled = settled < list->n_settled ? settled : list->n_settled;
        list->n_settled = n < list->n_settled ? n : list->n_settled;
    }
}

/* ---- Layers ---- */

/* The first layer after `last` and before `end` that has a cache on any device of the context; `end`: there is none. */
static int64_t layer_after(const struct wnw__bridge_backend *b, int64_t last, int64_t end)
{
    for (const struct wnw__bridge_backend *of = b->first ? b->first : b; of; of = b->first ? of->other : NULL)
        for (int32_t c = 0; c < of->n_cache; c++)
            for (int32_t i = 0; i < of->caches[c]->n_layer; i++) {
                const int32_t at = of->caches[c]->layers[i]->il;
                end = at > last && at < end ? at : end;
            }
    return end;
}

/* The number of layers with a cache that come before layer il of the model. Caches of one layer count as one. */
static int32_t count_before(const struct wnw__bridge_backend *b, int64_t il)
{
    int32_t n = 0;
    int64_t last = -1;
    for (bool found = true; found; n += found) {
        const int64_t next = layer_after(b, last, il);
        found = next < il;
        last = next;
    }
    return n;
}

int32_t wnw__bridge_number(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l)
{
    return count_before(b, l->il);
}

int32_t wnw__bridge_n_numbers(const struct wnw__bridge_backend *b)
{
    return count_before(b, INT64_MAX);
}

bool wnw__bridge_acts_on(const struct wnw__bridge_backend *b, const struct wnw__bridge_layer *l)
{
    return l->kind == WNW_BRIDGE_RAGGED && !l->lost && !wnw__bridge_is_sliding(b, l);
}

const struct wnw__bridge_layer *wnw__bridge_some_layer(const struct wnw__bridge_backend *b)
{
    for (int32_t c = 0; c < b->n_cache; c++)
        for (int32_t i = 0; i < b->caches[c]->n_layer; i++) {
            const struct wnw__bridge_layer *l = b->caches[c]->layers[i];
            if (l->kind == WNW_BRIDGE_RAGGED && !wnw__bridge_is_sliding(b, l))
                return l;
        }
    return NULL;
}

/* Query heads of a layer; before a graph has shown them, as many as KV heads. */
static int32_t query_heads(const struct wnw__bridge_layer *l)
{
    return l->info.n_reader > 0 ? l->info.n_head : l->n_head;
}

static bool is_like(const struct wnw__bridge_layer *a, const struct wnw__bridge_layer *b)
{
    return a->n_head == b->n_head && a->d_k == b->d_k && a->d_v == b->d_v &&
           query_heads(a) == query_heads(b) && a->v_in_keys == b->v_in_keys;
}

static int list_layers(struct wnw__bridge_sequence *s, const struct wnw__bridge_layer *like)
{
    const struct wnw__bridge_cache *c = s->sequence_cells->cache;
    s->shape.n_layer = wnw__bridge_n_numbers(s->b);
    s->layer = calloc((size_t)s->shape.n_layer + 1, sizeof *s->layer);
    s->left_alone = calloc((size_t)s->shape.n_layer + 1, sizeof *s->left_alone);
    if (!s->layer || !s->left_alone)
        return wnw__fail(WNW_E_NOMEM, "no memory to list layers");
    s->forms = calloc((size_t)s->shape.n_layer + 1, sizeof *s->forms);
    if (!s->forms)
        return wnw__fail(WNW_E_NOMEM, "no memory to list layers");
    for (int32_t i = 0; i < c->n_layer; i++) {
        struct wnw__bridge_layer *l = c->layers[i];
        if (!wnw__bridge_acts_on(s->b, l) || !is_like(l, like))
            continue;
        const int32_t number = wnw__bridge_number(s->b, l);
        s->layer[number] = l;
        s->forms[number] = l->info.form;
    }
    for (int32_t il = 0; il < s->shape.n_layer; il++)
        s->left_alone[il] = s->layer[il] == NULL;
    s->shape.left_alone = s->left_alone;
    s->shape.forms = s->forms;
    s->shape.n_head_kv = like->n_head;
    s->shape.n_head = query_heads(like);
    s->shape.d = like->d_k;
    s->entry_bytes = like->rows.row_bytes + like->rows.v_row_bytes;
    return WNW_OK;
}

int wnw__bridge_sequence_list(struct wnw__bridge_sequence *s, struct wnw__bridge_backend *b,
                              const struct wnw__bridge_sequence_cells *sequence_cells,
                              const struct wnw__bridge_layer *like)
{
    *s = (struct wnw__bridge_sequence){.b = b, .sequence_cells = sequence_cells};
    if (like->d_v > like->d_k)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "policies do not work on values that are longer than keys: layer %d has %d and %d",
                         (int)like->il, (int)like->d_v, (int)like->d_k);
    WNW_TRY(list_layers(s, like));
    const size_t n_layer = (size_t)s->shape.n_layer, n_row = n_layer * (size_t)s->shape.n_head_kv;
    for (int32_t i = 0; i < sequence_cells->n; i++)
        s->n_rank = sequence_cells->cell[i] + 1 > s->n_rank ? sequence_cells->cell[i] + 1 : s->n_rank;
    s->list = calloc(n_layer, sizeof *s->list);
    s->n_entry = calloc(n_row, sizeof *s->n_entry);
    s->off = calloc(n_row, sizeof *s->off);
    s->rank = malloc(((size_t)s->n_rank + 1) * sizeof *s->rank);
    if (!s->list || !s->n_entry || !s->off || !s->rank)
        return wnw__fail(WNW_E_NOMEM, "no memory to list entries");
    for (int32_t cell = 0; cell < s->n_rank; cell++)
        s->rank[cell] = -1;
    for (int32_t i = 0; i < sequence_cells->n; i++)
        s->rank[sequence_cells->cell[i]] = i;
    for (int32_t il = 0; il < s->shape.n_layer; il++)
        if (wnw__layer_takes_part(&s->shape, il))
            WNW_TRY(need_list(s, il));
    wnw__parallel(wnw__bridge_pool(b), s->shape.n_layer, list_layer, s);
    return WNW_OK;
}

void wnw__bridge_sequence_release(struct wnw__bridge_sequence *s)
{
    for (int32_t il = 0; s->list && il < s->shape.n_layer; il++)
        free(s->list[il].pos);
    for (size_t i = 0; i < sizeof s->room / sizeof *s->room; i++)
        wnw__buffer_free(&s->room[i]);
    free(s->list);
    free(s->n_entry);
    free(s->off);
    free(s->rank);
    free(s->layer);
    free(s->left_alone);
    free(s->forms);
    *s = (struct wnw__bridge_sequence){0};
}

/* ---- Rows ---- */

void wnw__bridge_row_read(const struct wnw__bridge_sequence *s, int32_t il, enum wnw__stored what, int32_t ih,
                          int32_t row, float *x)
{
    const struct wnw__bridge_layer *l = s->layer[il];
    const bool is_v = what == WNW_VALUES;
    const int32_t d = is_v ? l->d_v : l->d_k;
    wnw__bridge_layer_read(l, is_v, wnw__bridge_head_of_all(s, ih), row, x);
    if (d < s->shape.d)
        memset(x + d, 0, (size_t)(s->shape.d - d) * sizeof *x);
    wnw__hadamard(x, d, is_v && !l->v_in_keys ? l->info.v_block : l->info.k_block);
}

void wnw__bridge_row_write(const struct wnw__bridge_sequence *s, int32_t il, enum wnw__stored what,
                           int32_t ih, int32_t row, const float *x)
{
    struct wnw__bridge_layer *l = s->layer[il];
    const bool is_v = what == WNW_VALUES;
    const int32_t d = is_v ? l->d_v : l->d_k;
    float turned[WNW_BRIDGE_MOST_D];
    memcpy(turned, x, (size_t)d * sizeof *x);
    wnw__hadamard(turned, d, is_v ? l->info.v_block : l->info.k_block);
    wnw__bridge_layer_set(l, is_v, wnw__bridge_head_of_all(s, ih), row, turned);
}

/* ---- What work on it uses ---- */

struct wnw__pool *wnw__bridge_pool(struct wnw__bridge_backend *b)
{
    struct wnw__bridge_watch *w = &b->watch;
    if (w->team_threads != b->n_threads) {
        wnw__team_free(w->team);
        w->team = NULL;
        w->team_threads = b->n_threads;
        if (b->n_threads > 1 && wnw__team_new(&w->team, b->n_threads) != WNW_OK)
            w->team = NULL;
    }
    return w->team ? &w->team->pool : NULL;
}

float *wnw__bridge_room(struct wnw__bridge_sequence *s, enum wnw__bridge_room which, size_t n)
{
    struct wnw__buffer *b = &s->room[which];
    return wnw__buffer_need(b, n, sizeof(float), "observations") == WNW_OK ? b->p : NULL;
}
