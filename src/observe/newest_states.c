/* SPDX-License-Identifier: MIT */
/* The recorders "outputs" and "states": numbers of one length for each layer. The first serves to weigh layers by what their
 * outputs lose, the second shows how a change in one layer's cache spreads through the layers after it. */
#include "observe/newest.h"

#include "observe/recorders.h"

#include <stdlib.h>
#include <string.h>

/* The beginning of either recorder's struct. */
struct notes {
    int32_t n_layer;
    size_t width;
    float *rows;    /* [n_layer][width] */
    bool *is_there; /* [n_layer] */
};

struct wnw__outputs {
    struct notes notes; /* queries [n_head][d], then outputs [n_head][d] */
    int32_t n_head, d;
};

struct wnw__states {
    struct notes notes; /* [n_embd] */
};

static float *row_of(const struct notes *w, int32_t il)
{
    return w->rows + (size_t)il * w->width;
}

const float *wnw__outputs_of(const struct wnw__outputs *w, int32_t il, const float **out)
{
    const float *q = w->notes.is_there[il] ? row_of(&w->notes, il) : NULL;
    *out = q ? q + w->notes.width / 2 : NULL;
    return q;
}

const float *wnw__states_of(const struct wnw__states *w, int32_t il)
{
    return w->notes.is_there[il] ? row_of(&w->notes, il) : NULL;
}

static void close_notes(void *rec)
{
    struct notes *w = rec;
    if (!w)
        return;
    free(w->rows);
    free(w->is_there);
    free(w);
}

/* Allocates `size` bytes for a struct that begins with notes. */
static int open_notes(void **rec, size_t size, int32_t n_layer, size_t width, const char *what)
{
    struct notes *w = *rec = calloc(1, size);
    if (w) {
        w->n_layer = n_layer;
        w->width = width;
        w->rows = calloc((size_t)n_layer * width, sizeof *w->rows);
        w->is_there = calloc((size_t)n_layer, sizeof *w->is_there);
    }
    if (w && w->rows && w->is_there)
        return WNW_OK;
    close_notes(w);
    *rec = NULL;
    return wnw__fail(WNW_E_NOMEM, "no memory for %s of %d layers", what, (int)n_layer);
}

static int open_outputs(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    (void)arg;
    const struct wnw__shape *m = &shape->model;
    WNW_TRY(open_notes(rec, sizeof(struct wnw__outputs), m->n_layer, 2 * (size_t)m->n_head * (size_t)m->d,
                       "attention outputs"));
    struct wnw__outputs *w = *rec;
    w->n_head = m->n_head;
    w->d = m->d;
    return WNW_OK;
}

static int open_states(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    (void)arg;
    return open_notes(rec, sizeof(struct wnw__states), shape->model.n_layer, (size_t)shape->n_embd,
                      "hidden states");
}

/* `to` has the shape of `from`. */
static void copy_notes(struct notes *to, const struct notes *from)
{
    memcpy(to->rows, from->rows, (size_t)to->n_layer * to->width * sizeof *to->rows);
    memcpy(to->is_there, from->is_there, (size_t)to->n_layer * sizeof *to->is_there);
}

static int copy_outputs(void **rec, const void *from, const struct wnw__record_shape *shape)
{
    WNW_TRY(open_outputs(rec, shape, NULL));
    copy_notes(*rec, from);
    return WNW_OK;
}

static int copy_states(void **rec, const void *from, const struct wnw__record_shape *shape)
{
    WNW_TRY(open_states(rec, shape, NULL));
    copy_notes(*rec, from);
    return WNW_OK;
}

static void set_there(struct notes *w, int32_t from, int32_t to, bool is_there)
{
    for (int32_t il = from; il < to; il++)
        w->is_there[il] = is_there;
}

static int reserve(void *rec, const struct wnw__record_pass *pass)
{
    set_there(rec, pass->from, pass->to, false); /* the rows are of an older token */
    return WNW_OK;
}

static int outputs_stages(const void *rec, enum wnw__point point, int32_t il,
                          const struct wnw__record_pass *pass)
{
    (void)rec;
    (void)il;
    return point == WNW_POINT_ATTENTION && pass->generated;
}

static int states_stages(const void *rec, enum wnw__point point, int32_t il,
                         const struct wnw__record_pass *pass)
{
    (void)rec;
    (void)il;
    return point == WNW_POINT_STATE && pass->generated;
}

static void take_outputs(void *rec, const struct wnw__record_rows *r, int ith, int nth)
{
    const struct wnw__outputs *w = rec;
    float *q = row_of(&w->notes, r->il), *out = q + w->notes.width / 2;
    (void)nth;
    if (ith != 0)
        return;
    for (int32_t h = 0; h < w->n_head; h++)
        memcpy(q + (size_t)h * (size_t)w->d, r->q + (size_t)h * r->head_stride, (size_t)w->d * sizeof *q);
    memcpy(out, r->out, w->notes.width / 2 * sizeof *out);
}

static void take_states(void *rec, const struct wnw__record_rows *r, int ith, int nth)
{
    const struct wnw__states *w = rec;
    (void)nth;
    if (ith == 0)
        memcpy(row_of(&w->notes, r->il), r->q, w->notes.width * sizeof *r->q);
}

static void commit(void *rec, const struct wnw__record_pass *pass)
{
    if (pass->generated)
        set_there(rec, pass->from, pass->to, true);
}

static void told(void *rec, int32_t from, int32_t to, enum wnw__event event)
{
    (void)event;
    set_there(rec, from, to, false);
}

const struct wnw__recorder_type wnw__outputs_recorder = {
    .name = "outputs",
    .reads_output = true,
    .open = open_outputs,
    .free = close_notes,
    .copy = copy_outputs,
    .reserve = reserve,
    .stages = outputs_stages,
    .take = take_outputs,
    .commit = commit,
    .told = told,
};

const struct wnw__recorder_type wnw__states_recorder = {
    .name = "states",
    .open = open_states,
    .free = close_notes,
    .copy = copy_states,
    .reserve = reserve,
    .stages = states_stages,
    .take = take_states,
    .commit = commit,
    .told = told,
};
