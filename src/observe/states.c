/* SPDX-License-Identifier: MIT */
/* See states.h. No policy asks for this recorder. It shows how a change in one layer's cache spreads through the
 * layers after it. */
#include "observe/states.h"

#include "observe/recorders.h"

#include <stdlib.h>
#include <string.h>

struct wnw__states {
    int32_t n_layer, n_embd;
    float *rows;    /* [n_layer][n_embd] */
    bool *is_there; /* [n_layer] */
};

static float *row_of(const struct wnw__states *w, int32_t il)
{
    return w->rows + (size_t)il * (size_t)w->n_embd;
}

const float *wnw__states_of(const struct wnw__states *w, int32_t il)
{
    return w->is_there[il] ? row_of(w, il) : NULL;
}

static void close_states(void *rec)
{
    struct wnw__states *w = rec;
    if (!w)
        return;
    free(w->rows);
    free(w->is_there);
    free(w);
}

static int open_states(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    (void)arg;
    struct wnw__states *w = *rec = calloc(1, sizeof *w);
    if (w) {
        w->n_layer = shape->model.n_layer;
        w->n_embd = shape->n_embd;
        w->rows = calloc((size_t)w->n_layer * (size_t)w->n_embd, sizeof *w->rows);
        w->is_there = calloc((size_t)w->n_layer, sizeof *w->is_there);
    }
    if (w && w->rows && w->is_there)
        return WNW_OK;
    close_states(w);
    *rec = NULL;
    return wnw__fail(WNW_E_NOMEM, "no memory for hidden states of %d layers", (int)shape->model.n_layer);
}

static int copy_states(void **rec, const void *from, const struct wnw__record_shape *shape)
{
    const struct wnw__states *f = from;
    WNW_TRY(open_states(rec, shape, NULL));
    struct wnw__states *w = *rec;
    memcpy(w->rows, f->rows, (size_t)w->n_layer * (size_t)w->n_embd * sizeof *w->rows);
    memcpy(w->is_there, f->is_there, (size_t)w->n_layer * sizeof *w->is_there);
    return WNW_OK;
}

static void forget(void *rec, int32_t from, int32_t to)
{
    struct wnw__states *w = rec;
    for (int32_t il = from; il < to; il++)
        w->is_there[il] = false;
}

static int reserve(void *rec, const struct wnw__record_pass *pass)
{
    forget(rec, pass->from, pass->to); /* the rows are of an older token */
    return WNW_OK;
}

static int stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    (void)rec;
    (void)il;
    return point == WNW_POINT_STATE && pass->generated;
}

static void take(void *rec, const struct wnw__record_rows *r, int ith, int nth)
{
    const struct wnw__states *w = rec;
    (void)nth;
    if (ith == 0)
        memcpy(row_of(w, r->il), r->q, (size_t)w->n_embd * sizeof *r->q);
}

static void commit(void *rec, const struct wnw__record_pass *pass)
{
    struct wnw__states *w = rec;
    for (int32_t il = pass->from; pass->generated && il < pass->to; il++)
        w->is_there[il] = true;
}

static void told(void *rec, int32_t from, int32_t to, enum wnw__event event)
{
    (void)event;
    forget(rec, from, to);
}

const struct wnw__recorder_type wnw__states_recorder = {
    .name = "states",
    .open = open_states,
    .free = close_states,
    .copy = copy_states,
    .reserve = reserve,
    .stages = stages,
    .take = take,
    .commit = commit,
    .told = told,
};
