/* SPDX-License-Identifier: MIT */
/*
 * The observation window. Queries wait in a ring until a policy looks at a layer. Then their attention over
 * the cached entries is computed in float32, one block of keys after the other, with one softmax per query.
 */
#include "observe/window.h"

#include "base/parallel.h"
#include "kernel/kernel.h"
#include "observe/observe.h"
#include "observe/recorders.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BLOCK = 256 }; /* keys converted at a time: 256 x d floats stay in the second-level cache */

/* The buffers of a look that are used here. */
enum { ATTN, QUERIES, BLOCKS };

static bool wanted(const struct wnw__record_ask *ask, const struct wnw__record_shape *shape,
                   struct wnw__record_arg *arg)
{
    const int32_t cap = ask->needs.window < shape->n_ctx ? ask->needs.window : shape->n_ctx;
    *arg = (struct wnw__record_arg){.n = cap, .generated = ask->generated};
    return (ask->needs.flags & WNW_NEED_WINDOW_ATTN) && cap > 0;
}

static void close_window(void *rec)
{
    struct wnw__window *w = rec;
    if (!w)
        return;
    free(w->q);
    free(w->layers);
    free(w);
}

static int open_window(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    struct wnw__window *w = *rec = calloc(1, sizeof *w);
    if (w) {
        w->n_layer = shape->n_layer;
        w->cap = arg->n;
        w->row = (size_t)shape->n_head * (size_t)shape->d;
        w->generated = arg->generated;
        w->layers = calloc((size_t)shape->n_layer, sizeof *w->layers);
        w->q = calloc((size_t)shape->n_layer * (size_t)w->cap * w->row, sizeof *w->q);
    }
    if (w && w->layers && w->q)
        return WNW_OK;
    close_window(w);
    *rec = NULL;
    return wnw__fail(WNW_E_NOMEM, "no memory for a window of %d queries", (int)arg->n);
}

static int copy_window(void **rec, const void *from, const struct wnw__record_shape *shape)
{
    const struct wnw__window *f = from;
    WNW_TRY(open_window(rec, shape, &(struct wnw__record_arg){.n = f->cap, .generated = f->generated}));
    struct wnw__window *w = *rec;
    memcpy(w->layers, f->layers, (size_t)w->n_layer * sizeof *w->layers);
    memcpy(w->q, f->q, (size_t)w->n_layer * (size_t)w->cap * w->row * sizeof *w->q);
    return WNW_OK;
}

/* ---- Taking queries ---- */

static bool takes(const struct wnw__window *w, const struct wnw__record_pass *pass)
{
    return !pass->generated || w->generated;
}

static int stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    (void)il;
    return point == WNW_POINT_ATTENTION && takes(rec, pass);
}

/* Takes the last of the pass' n tokens, at most as many as the ring holds. */
static void take(void *rec, const struct wnw__record_rows *r, int ith, int nth)
{
    const struct wnw__window *w = rec;
    const int32_t n = r->pass->n, fresh = n < w->cap ? n : w->cap;
    const int32_t from = (int32_t)((int64_t)fresh * ith / nth),
                  to = (int32_t)((int64_t)fresh * (ith + 1) / nth);
    for (int32_t i = from; i < to; i++) {
        const int32_t t = n - fresh + i, at = (r->pass->n_past + t) % w->cap;
        memcpy(w->q + ((size_t)r->il * (size_t)w->cap + (size_t)at) * w->row,
               r->q + (size_t)t * r->token_stride, w->row * sizeof *w->q);
    }
}

static void commit(void *rec, const struct wnw__record_pass *pass)
{
    struct wnw__window *w = rec;
    for (int32_t il = pass->from; takes(w, pass) && il < pass->to; il++) {
        struct wnw__window_layer *l = &w->layers[il];
        const int32_t before = l->end == pass->n_past ? l->n : 0; /* only queries of consecutive positions */
        l->n = before < w->cap - pass->n ? before + pass->n : w->cap;
        l->end = pass->n_past + pass->n;
    }
}

/* If entries were only dropped, the queries stay: they are still the newest. Otherwise the ring is
 * emptied. */
static void moved(void *rec, int32_t from, int32_t to, enum wnw__moved why)
{
    struct wnw__window *w = rec;
    for (int32_t il = from; why != WNW_MOVED_DROPPED && il < to; il++)
        w->layers[il].n = 0;
}

/* ---- The attention of the queries ---- */

/* The arrays of one look. */
struct job {
    const struct wnw__look *look;
    int32_t n_window, end; /* queries of positions end - n_window .. end - 1 */
    float *attn;           /* [n_head][n_window][n] */
    float *queries;        /* [n_head][n_window][d] */
    float *blocks;         /* [n_head_kv][KEY_BLOCK][d] */
};

static void gather_queries(const struct wnw__window *w, const struct job *j)
{
    const struct wnw__look *look = j->look;
    const size_t d = (size_t)look->cache->d, n_window = (size_t)j->n_window;
    for (size_t i = 0; i < n_window; i++) {
        const float *q = wnw__window_at(w, look->il, j->end - j->n_window + (int32_t)i);
        for (size_t h = 0; h < (size_t)look->n_head; h++)
            memcpy(j->queries + (h * n_window + i) * d, q + h * d, d * sizeof *q);
    }
}

/* Sets from and until to the next run of wanted query heads, from .. until - 1, at or after the former
 * `until`. Returns false if none is left before `end`. */
static bool next_heads(const struct wnw__look *look, int32_t end, int32_t *from, int32_t *until)
{
    *from = *until;
    while (*from < end && look->heads && !look->heads[*from])
        ++*from;
    *until = *from;
    while (*until < end && (!look->heads || look->heads[*until]))
        ++*until;
    return *from < end;
}

/* Scores all entries of KV head ih, block by block. Returns false if no query head of the group is wanted. */
static bool score_entries(const struct job *j, int32_t ih, float *out)
{
    const struct wnw__look *look = j->look;
    const struct wnw__cache *c = look->cache;
    const int32_t group = look->n_head / c->n_head_kv, n_entry = look->n_entry[ih];
    const float *q = j->queries + (size_t)ih * (size_t)(group * j->n_window) * (size_t)c->d;
    float *block = j->blocks + (size_t)ih * KEY_BLOCK * (size_t)c->d;
    int32_t h, until = ih * group;
    if (!next_heads(look, (ih + 1) * group, &h, &until))
        return false;
    for (int32_t at = 0; at < n_entry; at += KEY_BLOCK) {
        const int32_t n = n_entry - at < KEY_BLOCK ? n_entry - at : KEY_BLOCK;
        wnw__cache_read(c, look->il, WNW_KEYS, ih, at, n, block);
        until = ih * group;
        while (next_heads(look, (ih + 1) * group, &h, &until)) {
            const size_t row = (size_t)(h - ih * group) * (size_t)j->n_window;
            wnw__mul_nt(q + row * (size_t)c->d, (until - h) * j->n_window, block, n, c->d, look->scale,
                        out + row * (size_t)look->n + at, look->n);
        }
    }
    return true;
}

static void attend_head(int32_t ih, void *user)
{
    const struct job *j = user;
    const struct wnw__look *look = j->look;
    const int32_t group = look->n_head / look->cache->n_head_kv, n_rows = group * j->n_window,
                  n_entry = look->n_entry[ih];
    const size_t n = (size_t)look->n;
    float *out = j->attn + (size_t)ih * (size_t)n_rows * n;
    const bool any = score_entries(j, ih, out);
    const int32_t *pos = look->pos + (size_t)ih * n;
    for (int32_t r = 0; r < n_rows; r++) {
        float *row = out + (size_t)r * n;
        if (!any || (look->heads && !look->heads[ih * group + r / j->n_window])) {
            memset(row, 0, n * sizeof *row);
            continue;
        }
        const int32_t query = j->end - j->n_window + r % j->n_window;
        for (int32_t i = n_entry - 1; i >= 0 && pos[i] > query; i--)
            row[i] = -INFINITY;
        wnw__softmax(row, n_entry);
        memset(row + n_entry, 0, (n - (size_t)n_entry) * sizeof *row);
    }
}

static int fill(void *rec, const struct wnw__look *look, wnw_observation *obs)
{
    const struct wnw__window *w = rec;
    const int32_t window = look->needs->window, cap = w ? w->cap : 0;
    const struct wnw__window_layer *l = w ? &w->layers[look->il] : NULL;
    if (cap < window && cap < look->n_ctx)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "the policy wants the last %d queries, the session was told to keep %d", (int)window,
                         (int)cap);
    if (!l || l->n == 0 || l->end != look->n_past)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "no queries were kept of the last tokens: compress right after prefill");
    struct job j = {.look = look, .n_window = l->n < window ? l->n : window, .end = l->end};
    const size_t n_rows = (size_t)look->n_head * (size_t)j.n_window, d = (size_t)look->cache->d;
    const size_t n_block = (size_t)look->cache->n_head_kv * KEY_BLOCK * d;
    WNW_TRY(wnw__look_need(look, ATTN, n_rows * (size_t)look->n, &j.attn));
    WNW_TRY(wnw__look_need(look, QUERIES, n_rows * d, &j.queries));
    WNW_TRY(wnw__look_need(look, BLOCKS, n_block, &j.blocks));
    gather_queries(w, &j);
    wnw__parallel(look->pool, look->cache->n_head_kv, attend_head, &j);
    obs->n_window = j.n_window;
    obs->window_attn = j.attn;
    obs->window_queries = j.queries;
    return WNW_OK;
}

const struct wnw__recorder_type wnw__window_recorder = {
    .name = "window",
    .needs = WNW_NEED_WINDOW_ATTN,
    .wanted = wanted,
    .open = open_window,
    .free = close_window,
    .copy = copy_window,
    .stages = stages,
    .take = take,
    .commit = commit,
    .moved = moved,
    .fill = fill,
};
