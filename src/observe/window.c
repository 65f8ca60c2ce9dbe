/* SPDX-License-Identifier: MIT */
/*
 * The observation window. Queries wait in a ring until a policy looks at a layer. Then their attention over
 * the cached entries is computed in float32, one tile of keys after the other, with one softmax per query.
 */
#include "observe/window.h"

#include "attend/attend_impl.h"
#include "base/parallel.h"
#include "observe/observe.h"
#include "observe/recorders.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Units of work per KV head. Models have few of these, and threads should end together. */
enum { PIECES = 8 };

/* The buffers of a look that are used here. */
enum { ATTN, QUERIES, PACKED, WORK };

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

/* Queries of a layer that stay when tokens from n_past on are taken back. */
static int32_t n_left(const struct wnw__window_layer *l, int32_t n_past)
{
    const int32_t gone = l->end > n_past ? l->end - n_past : 0;
    return gone < l->n ? l->n - gone : 0;
}

/* A full ring has lost the queries that would be the oldest ones again. */
static bool can_return(const void *rec, int32_t n_past)
{
    const struct wnw__window *w = rec;
    for (int32_t il = 0; il < w->n_layer; il++)
        if (w->layers[il].end > n_past && w->layers[il].n == w->cap)
            return false;
    return true;
}

static void returned(void *rec, int32_t n_past)
{
    struct wnw__window *w = rec;
    for (int32_t il = 0; il < w->n_layer; il++) {
        struct wnw__window_layer *l = &w->layers[il];
        l->n = n_left(l, n_past);
        l->end = l->end > n_past ? n_past : l->end;
    }
}

/* ---- The attention of the queries ---- */

/* The arrays of one look. */
struct job {
    const struct wnw__look *look;
    const struct wnw__vec *vec;
    int32_t n_window, end; /* queries of positions end - n_window .. end - 1 */
    float *attn;           /* [n_head][n_window][n] */
    float *queries;        /* [n_head][n_window][d] */
    float *packed; /* [n_head_kv][n_packed] scaled queries of a group's wanted heads, see pack_group */
    size_t n_packed;
    float *work; /* [n_head_kv][PIECES][n_work] */
    size_t n_work;
};

static int32_t group_of(const struct job *j)
{
    return j->look->n_head / j->look->cache->n_head_kv;
}

static bool is_wanted(const struct job *j, int32_t h)
{
    return !j->look->heads || j->look->heads[h];
}

/* The rows that the wanted query heads of KV head ih have together. */
static int32_t wanted_rows(const struct job *j, int32_t ih)
{
    const int32_t group = group_of(j);
    int32_t n = 0;
    for (int32_t h = ih * group; h < (ih + 1) * group; h++)
        n += is_wanted(j, h) ? j->n_window : 0;
    return n;
}

/* Rows per panel of the packed queries: 1 where so few queries look at a KV head that stored keys are read directly.
 * Which heads are wanted does not matter, so that the others' attention is the same to the bit. */
static int32_t panel_rows(const struct job *j)
{
    return group_of(j) * j->n_window > WNW_ATTEND_NT_ROWS ? j->vec->panel_rows : 1;
}

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

/* Sets the group's panels [n_panels][d][panel_rows]: the wanted heads one after the other, scaled. */
static void pack_group(const struct job *j, int32_t ih)
{
    const int32_t d = j->look->cache->d, group = group_of(j), mr = panel_rows(j);
    float *to = j->packed + (size_t)ih * j->n_packed;
    int32_t row = 0;
    memset(to, 0, j->n_packed * sizeof *to);
    for (int32_t h = ih * group; h < (ih + 1) * group; h++) {
        const float *q = j->queries + (size_t)h * (size_t)j->n_window * (size_t)d;
        for (int32_t i = 0; is_wanted(j, h) && i < j->n_window; i++, q += d)
            wnw__attend_pack(to, row++, mr, q, d, j->look->scale);
    }
}

/* Writes the scores of entries at .. at+n-1 into the rows of the wanted heads. work: a tile of keys, the same
 * transposed, and scores [panels * panel_rows][WNW_TILE]. */
static void score_tile(const struct job *j, int32_t ih, int32_t n_rows, int32_t at, int32_t n, float *work)
{
    const struct wnw__look *look = j->look;
    const int32_t d = look->cache->d, group = group_of(j), mr = panel_rows(j);
    const float *q = j->packed + (size_t)ih * j->n_packed;
    float *keys = work, *transposed = keys + WNW_TILE * (size_t)d, *s = transposed + WNW_TILE * (size_t)d;
    wnw__cache_read(look->cache, look->il, WNW_KEYS, ih, at, n, keys);
    if (mr == 1) {
        j->vec->mul_rows(WNW_KV_F32, q, n_rows, keys, (size_t)d * sizeof *keys, n, d, 1.0f, s, WNW_TILE);
    } else {
        j->vec->transpose(keys, d, transposed);
        j->vec->mul_panels(q, (n_rows + mr - 1) / mr, d, transposed, s);
    }
    for (int32_t h = ih * group; h < (ih + 1) * group; h++) {
        float *to = j->attn + (size_t)h * (size_t)j->n_window * (size_t)look->n + at;
        for (int32_t i = 0; is_wanted(j, h) && i < j->n_window; i++, to += look->n, s += WNW_TILE)
            memcpy(to, s, (size_t)n * sizeof *to);
    }
}

/* Scores one of the PIECES of a KV head's entries. They are cut between tiles. */
static void score_piece(int32_t unit, void *user)
{
    const struct job *j = user;
    const int32_t ih = unit / PIECES, piece = unit % PIECES, n_rows = wanted_rows(j, ih);
    const int32_t n_entry = j->look->n_entry[ih], n_tile = (n_entry + WNW_TILE - 1) / WNW_TILE;
    const int32_t last = n_tile * (piece + 1) / PIECES;
    for (int32_t t = n_tile * piece / PIECES; n_rows > 0 && t < last; t++) {
        const int32_t at = t * WNW_TILE, n = n_entry - at < WNW_TILE ? n_entry - at : WNW_TILE;
        score_tile(j, ih, n_rows, at, n, j->work + (size_t)unit * j->n_work);
    }
}

/* Turns the scores of one query head into attention. */
static void normalise_head(int32_t h, void *user)
{
    const struct job *j = user;
    const struct wnw__look *look = j->look;
    const int32_t ih = h / group_of(j), n_entry = look->n_entry[ih];
    const size_t n = (size_t)look->n;
    const int32_t *pos = look->pos + (size_t)ih * n;
    for (int32_t i = 0; i < j->n_window; i++) {
        float *row = j->attn + ((size_t)h * (size_t)j->n_window + (size_t)i) * n;
        const int32_t query = j->end - j->n_window + i;
        if (!is_wanted(j, h)) {
            memset(row, 0, n * sizeof *row);
            continue;
        }
        for (int32_t e = n_entry - 1; e >= 0 && pos[e] > query; e--)
            row[e] = -INFINITY;
        j->vec->softmax(row, n_entry);
        memset(row + n_entry, 0, (n - (size_t)n_entry) * sizeof *row);
    }
}

/* Sets j's arrays, those of the look, and their sizes. */
static int need_arrays(struct job *j)
{
    const struct wnw__look *look = j->look;
    const size_t n_head_kv = (size_t)look->cache->n_head_kv, d = (size_t)look->cache->d;
    const size_t n_rows = (size_t)look->n_head * (size_t)j->n_window, mr = (size_t)j->vec->panel_rows;
    const size_t padded = (n_rows / n_head_kv + mr - 1) / mr * mr; /* rows of a group in whole panels */
    j->n_packed = padded * d;
    j->n_work = 2 * WNW_TILE * d + padded * WNW_TILE;
    WNW_TRY(wnw__look_need(look, ATTN, n_rows * (size_t)look->n, &j->attn));
    WNW_TRY(wnw__look_need(look, QUERIES, n_rows * d, &j->queries));
    WNW_TRY(wnw__look_need(look, PACKED, n_head_kv * j->n_packed, &j->packed));
    return wnw__look_need(look, WORK, n_head_kv * PIECES * j->n_work, &j->work);
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
    struct job j = {
        .look = look, .vec = wnw__vec_at(0), .n_window = l->n < window ? l->n : window, .end = l->end};
    WNW_TRY(need_arrays(&j));
    gather_queries(w, &j);
    for (int32_t ih = 0; ih < look->cache->n_head_kv; ih++)
        pack_group(&j, ih);
    wnw__parallel(look->pool, look->cache->n_head_kv * PIECES, score_piece, &j);
    wnw__parallel(look->pool, look->n_head, normalise_head, &j);
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
    .can_return = can_return,
    .returned = returned,
    .fill = fill,
};
