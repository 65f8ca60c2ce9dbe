/* SPDX-License-Identifier: MIT */
/* The observation window: queries wait in a ring until a policy observes a layer (window_attend.c). */
#include "observe/window.h"

#include "observe/recorders.h"
#include "observe/source_impl.h"

#include <stdlib.h>
#include <string.h>

static bool needed(const struct wnw__record_needs *needs, const struct wnw__record_shape *shape,
                   struct wnw__record_arg *arg)
{
    const int32_t cap = needs->merged.window < shape->n_ctx ? needs->merged.window : shape->n_ctx;
    *arg = (struct wnw__record_arg){.n = cap, .generated = needs->generated};
    return (needs->merged.flags & WNW_NEED_WINDOW_ATTN) && cap > 0;
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
        w->model = shape->model;
        w->n_layer = shape->model.n_layer;
        w->n_ring = wnw__shape_readers_before(&shape->model, w->n_layer);
        w->cap = arg->n;
        w->n_ctx = shape->n_ctx;
        w->row = (size_t)shape->model.n_head * (size_t)shape->model.d;
        w->generated = arg->generated;
        w->layers = calloc((size_t)shape->model.n_layer, sizeof *w->layers);
        w->q = calloc((size_t)w->n_ring * (size_t)w->cap * w->row, sizeof *w->q);
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
    memcpy(w->q, f->q, (size_t)w->n_ring * (size_t)w->cap * w->row * sizeof *w->q);
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
    const int32_t ring = wnw__shape_readers_before(&w->model, r->il) + r->reader;
    const int32_t n = r->pass->n, fresh = n < w->cap ? n : w->cap;
    const int32_t from = (int32_t)((int64_t)fresh * ith / nth),
                  to = (int32_t)((int64_t)fresh * (ith + 1) / nth);
    for (int32_t i = from; i < to; i++) {
        const int32_t t = n - fresh + i, at = (r->pass->n_past + t) % w->cap;
        memcpy(w->q + ((size_t)ring * (size_t)w->cap + (size_t)at) * w->row,
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
static void told(void *rec, int32_t from, int32_t to, enum wnw__event event)
{
    struct wnw__window *w = rec;
    for (int32_t il = from; event != WNW_EVENT_DROPPED && il < to; il++)
        w->layers[il].n = 0;
}

/* Queries of a layer that stay when tokens from n_past on are taken back. */
static int32_t n_left(const struct wnw__window_layer *l, int32_t n_past)
{
    const int32_t n_cut = l->end > n_past ? l->end - n_past : 0;
    return n_cut < l->n ? l->n - n_cut : 0;
}

/* A full ring has lost the queries that would be the oldest ones again. */
static bool can_rewind(const void *rec, int32_t n_past)
{
    const struct wnw__window *w = rec;
    for (int32_t il = 0; il < w->n_layer; il++)
        if (w->layers[il].end > n_past && w->layers[il].n == w->cap)
            return false;
    return true;
}

static void rewound(void *rec, int32_t n_past)
{
    struct wnw__window *w = rec;
    for (int32_t il = 0; il < w->n_layer; il++) {
        struct wnw__window_layer *l = &w->layers[il];
        l->n = n_left(l, n_past);
        l->end = l->end > n_past ? n_past : l->end;
    }
}

/* One of a layer's rings. */
struct ring {
    const struct wnw__window *w;
    int32_t reader;
};

static const float *query_at(const void *of, int32_t il, int32_t pos)
{
    const struct ring *r = of;
    return wnw__window_at(r->w, il, pos) + (size_t)r->reader * (size_t)r->w->cap * r->w->row;
}

/* The attention of the newest n queries. Where several attentions read the layer's entries it is their mean, and the
 * queries shown are those of the layer's own. */
static int attend(const struct wnw__window *w, struct wnw__source *source, int32_t n, const bool *heads,
                  wnw_observation *obs)
{
    enum { MEAN = WNW_WINDOW_BUFFERS };
    const int32_t n_reader = wnw__shape_readers(&w->model, obs->il);
    const size_t size = (size_t)obs->n_head * (size_t)n * (size_t)obs->n;
    float *mean = NULL;
    if (n_reader > 1)
        WNW_TRY(wnw__source_need(source, MEAN, size + 1, &mean));
    for (int32_t i = n_reader - 1; i >= 0; i--) {
        const struct ring ring = {.w = w, .reader = i};
        const struct wnw__window_queries queries = {
            .of = &ring, .at = query_at, .n = n, .end = w->layers[obs->il].end};
        WNW_TRY(wnw__window_attend(source, &queries, heads, obs));
        for (size_t k = 0; n_reader > 1 && k < size; k++)
            mean[k] = (i == n_reader - 1 ? 0.0f : mean[k]) + obs->window_attn[k] / (float)n_reader;
    }
    obs->window_attn = n_reader > 1 ? mean : obs->window_attn;
    return WNW_OK;
}

static int fill(void *rec, struct wnw__source *source, const wnw_needs *needs, const bool *heads,
                wnw_observation *obs)
{
    const struct wnw__window *w = rec;
    const int32_t window = needs->window, cap = w ? w->cap : 0;
    const struct wnw__window_layer *l = w ? &w->layers[obs->il] : NULL;
    if (cap < window && (!w || cap < w->n_ctx))
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "the policy wants the last %d queries, the session was told to keep %d", (int)window,
                         (int)cap);
    if (!l || l->n == 0 || l->end != obs->n_past)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "no queries were kept of the last tokens: compress right after prefill");
    return attend(w, source, l->n < window ? l->n : window, heads, obs);
}

const struct wnw__recorder_type wnw__window_recorder = {
    .name = "window",
    .needs = WNW_NEED_WINDOW_ATTN,
    .every_reader = true,
    .needed = needed,
    .open = open_window,
    .free = close_window,
    .copy = copy_window,
    .stages = stages,
    .take = take,
    .commit = commit,
    .told = told,
    .can_rewind = can_rewind,
    .rewound = rewound,
    .fill = fill,
};
