/* SPDX-License-Identifier: MIT */
#include "bridge/sequence/track.h"

#include "bridge/sequence/sequence.h"

#include <stdlib.h>
#include <string.h>

/* The most timelines that are remembered; the one that was continued the longest ago goes. */
enum { MOST = 64 };

struct track {
    const struct wnw__bridge_cache *cache;
    int32_t stream, cell, write_order; /* the newest cell, and its note's order: it may be written again */
    struct wnw__qstats *stats;
};

/* Rows of the current graph that follow each other in a timeline. */
struct run {
    struct wnw__qstats *stats;
    int64_t first_row;
    int32_t n, first; /* rows; place of the first in its timeline */
};

struct wnw__bridge_tracks {
    struct wnw__qstats_params params;
    bool *left_alone;   /* [n_layer] of params */
    struct track *list; /* [n], the one that was continued last at the end */
    int32_t n, cap;
    struct run *runs; /* [n_run] */
    int32_t n_run, cap_run;
};

static const struct wnw__bridge_note *note_of(const struct wnw__bridge_cache *c, int32_t stream, int32_t cell)
{
    return &c->note[(int64_t)stream * c->n_cell + cell];
}

/* ---- All ---- */

static bool suits(const struct wnw__bridge_layer *l, const struct wnw__bridge_layer *first)
{
    return l->info.turns && l->n_head == first->n_head && l->d_k == first->d_k &&
           l->info.n_head == first->info.n_head && l->info.q_scale == first->info.q_scale;
}

int wnw__bridge_tracks_new(struct wnw__bridge_tracks **out, const struct wnw__bridge_backend *b,
                           const struct wnw__bridge_cache *c)
{
    const struct wnw__bridge_watch *w = &b->watch;
    struct wnw__bridge_tracks *t = *out = calloc(1, sizeof *t);
    const struct wnw__bridge_layer *first = NULL;
    const int32_t n_layer = wnw__bridge_n_numbers(b);
    if (t)
        t->left_alone = malloc((size_t)n_layer + 1);
    if (!t || !t->left_alone) {
        free(t);
        *out = NULL;
        return wnw__fail(WNW_E_NOMEM, "no memory for statistics of queries");
    }
    memset(t->left_alone, 1, (size_t)n_layer + 1);
    for (int32_t i = 0; i < w->n_site; i++) {
        const struct wnw__bridge_layer *l = w->sites[i].layer;
        first = !first && suits(l, l) ? l : first;
        if (first && l->cache == c && suits(l, first))
            t->left_alone[wnw__bridge_number(b, l)] = false;
    }
    t->params = (struct wnw__qstats_params){.model = {.n_layer = n_layer, .left_alone = t->left_alone},
                                            .n_threads = b->n_threads,
                                            .skip = w->needs.skip};
    if (first) {
        t->params.model.n_head = first->info.n_head;
        t->params.model.n_head_kv = first->n_head;
        t->params.model.d = first->d_k;
        t->params.scale = first->info.q_scale;
    }
    return WNW_OK;
}

void wnw__bridge_tracks_free(struct wnw__bridge_tracks *t)
{
    for (int32_t i = 0; t && i < t->n; i++)
        wnw__qstats_free(t->list[i].stats);
    if (t) {
        free(t->list);
        free(t->runs);
        free(t->left_alone);
    }
    free(t);
}

/* ---- Rows ---- */

static void drop(struct wnw__bridge_tracks *t, int32_t i)
{
    for (int32_t r = 0; r < t->n_run; r++)
        if (t->runs[r].stats == t->list[i].stats)
            t->runs[r] = (struct run){.first_row = -1};
    wnw__qstats_free(t->list[i].stats);
    memmove(&t->list[i], &t->list[i + 1], (size_t)(--t->n - i) * sizeof *t->list);
}

static bool is_there(const struct track *k)
{
    return k->cache->n_layer > 0 && k->cache->note &&
           note_of(k->cache, k->stream, k->cell)->write_order == k->write_order;
}

/* The timeline that ends with a cell, -1 = none. */
static int32_t find(const struct wnw__bridge_tracks *t, const struct wnw__bridge_cache *c, int32_t stream,
                    int32_t cell)
{
    for (int32_t i = t->n - 1; cell >= 0 && i >= 0; i--)
        if (t->list[i].cache == c && t->list[i].stream == stream && t->list[i].cell == cell &&
            is_there(&t->list[i]))
            return i;
    return -1;
}

/* Begins a timeline at the end of the list. */
static int begin(struct wnw__bridge_tracks *t)
{
    for (int32_t i = t->n - 1; i >= 0; i--)
        if (!is_there(&t->list[i]))
            drop(t, i);
    if (t->n == MOST)
        drop(t, 0);
    if (t->n == t->cap) {
        const int32_t cap = t->cap > 0 ? 2 * t->cap : 4;
        struct track *more = realloc(t->list, (size_t)cap * sizeof *more);
        if (!more)
            return wnw__fail(WNW_E_NOMEM, "no memory for statistics of queries");
        t->list = more;
        t->cap = cap;
    }
    t->list[t->n] = (struct track){0};
    WNW_TRY(wnw__qstats_new(&t->list[t->n].stats, &t->params));
    t->n++;
    return WNW_OK;
}

void wnw__bridge_tracks_begin(struct wnw__bridge_tracks *t)
{
    t->n_run = 0;
}

static int add_run(struct wnw__bridge_tracks *t, const struct run *run)
{
    struct run *last = t->n_run > 0 ? &t->runs[t->n_run - 1] : NULL;
    if (last && last->stats == run->stats && last->first_row + last->n == run->first_row) {
        last->n++;
        return WNW_OK;
    }
    if (t->n_run == t->cap_run) {
        const int32_t cap = t->cap_run > 0 ? 2 * t->cap_run : 16;
        struct run *more = realloc(t->runs, (size_t)cap * sizeof *more);
        if (!more)
            return wnw__fail(WNW_E_NOMEM, "no memory for statistics of queries");
        t->runs = more;
        t->cap_run = cap;
    }
    t->runs[t->n_run++] = *run;
    return WNW_OK;
}

int wnw__bridge_tracks_row(struct wnw__bridge_tracks *t, const struct wnw__bridge_cache *c, int64_t i,
                           const struct wnw__bridge_row *row)
{
    const int32_t at = find(t, c, row->stream, row->before);
    if (t->params.model.d == 0)
        return WNW_OK; /* no layer shows its queries */
    if (at < 0) {
        WNW_TRY(begin(t));
    } else {
        const struct track newest = t->list[at];
        memmove(&t->list[at], &t->list[at + 1], (size_t)(t->n - 1 - at) * sizeof newest);
        t->list[t->n - 1] = newest;
    }
    struct track *k = &t->list[t->n - 1];
    k->cache = c;
    k->stream = row->stream;
    k->cell = row->cell;
    k->write_order = note_of(c, row->stream, row->cell)->write_order;
    return add_run(t, &(struct run){.stats = k->stats, .first_row = i, .n = 1, .first = row->n_before});
}

/* ---- Queries ---- */

void wnw__bridge_tracks_take(struct wnw__bridge_tracks *t, int32_t il, const struct ggml_tensor *q, int ith,
                             int nth)
{
    const int32_t n = nth < t->params.n_threads ? nth : t->params.n_threads;
    for (int32_t i = 0; ith < n && i < t->n_run; i++) {
        const struct run *r = &t->runs[i];
        if (!r->stats)
            continue;
        const struct wnw__qstats_batch batch = {
            .q = (const void *)((const char *)q->data + (size_t)r->first_row * q->nb[2]),
            .token_stride = q->nb[2] / sizeof(float),
            .head_stride = q->nb[1] / sizeof(float),
            .first = r->first,
            .n = r->n};
        wnw__qstats_add(r->stats, il, &batch, ith, n);
    }
}

void wnw__bridge_tracks_fail(struct wnw__bridge_tracks *t)
{
    for (int32_t r = 0; r < t->n_run; r++)
        for (int32_t i = t->n - 1; i >= 0; i--)
            if (t->list[i].stats == t->runs[r].stats)
                drop(t, i);
    t->n_run = 0;
}

const struct wnw__qstats *wnw__bridge_tracks_of(const struct wnw__bridge_tracks *t,
                                                const struct wnw__bridge_cache *c, int32_t stream,
                                                int32_t cell)
{
    const int32_t i = find(t, c, stream, cell);
    return i < 0 ? NULL : t->list[i].stats;
}
