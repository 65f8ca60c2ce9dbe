/* SPDX-License-Identifier: MIT */
#include "observe/outputs.h"

#include "observe/recorders.h"

#include <stdlib.h>
#include <string.h>

struct wnw__outputs {
    struct wnw__shape model;
    float *rows;    /* [n_layer][2][n_head][d]: queries, outputs */
    bool *is_there; /* [n_layer] */
};

static size_t row_floats(const struct wnw__outputs *w)
{
    return (size_t)w->model.n_head * (size_t)w->model.d;
}

static float *rows_of(const struct wnw__outputs *w, int32_t il)
{
    return w->rows + 2 * (size_t)il * row_floats(w);
}

const float *wnw__outputs_of(const struct wnw__outputs *w, int32_t il, const float **out)
{
    *out = w->is_there[il] ? rows_of(w, il) + row_floats(w) : NULL;
    return w->is_there[il] ? rows_of(w, il) : NULL;
}

static void close_outputs(void *rec)
{
    struct wnw__outputs *w = rec;
    if (!w)
        return;
    free(w->rows);
    free(w->is_there);
    free(w);
}

static int open_outputs(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    (void)arg;
    struct wnw__outputs *w = *rec = calloc(1, sizeof *w);
    if (w) {
        w->model = shape->model;
        w->rows = calloc(2 * (size_t)shape->model.n_layer * row_floats(w), sizeof *w->rows);
        w->is_there = calloc((size_t)shape->model.n_layer, sizeof *w->is_there);
    }
    if (w && w->rows && w->is_there)
        return WNW_OK;
    close_outputs(w);
    *rec = NULL;
    return wnw__fail(WNW_E_NOMEM, "no memory for attention outputs of %d layers", (int)shape->model.n_layer);
}

static int copy_outputs(void **rec, const void *from, const struct wnw__record_shape *shape)
{
    const struct wnw__outputs *f = from;
    WNW_TRY(open_outputs(rec, shape, NULL));
    struct wnw__outputs *w = *rec;
    memcpy(w->rows, f->rows, 2 * (size_t)w->model.n_layer * row_floats(w) * sizeof *w->rows);
    memcpy(w->is_there, f->is_there, (size_t)w->model.n_layer * sizeof *w->is_there);
    return WNW_OK;
}

static int reserve(void *rec, const struct wnw__record_pass *pass)
{
    struct wnw__outputs *w = rec;
    for (int32_t il = pass->from; il < pass->to; il++)
        w->is_there[il] = false; /* the rows are of an older token */
    return WNW_OK;
}

static int stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    (void)rec;
    (void)il;
    return point == WNW_POINT_ATTENTION && pass->generated;
}

static void take(void *rec, const struct wnw__record_rows *r, int ith, int nth)
{
    const struct wnw__outputs *w = rec;
    float *q = rows_of(w, r->il), *out = q + row_floats(w);
    (void)nth;
    if (ith != 0)
        return;
    for (int32_t h = 0; h < w->model.n_head; h++)
        memcpy(q + (size_t)h * (size_t)w->model.d, r->q + (size_t)h * r->head_stride,
               (size_t)w->model.d * sizeof *q);
    memcpy(out, r->out, row_floats(w) * sizeof *out);
}

static void commit(void *rec, const struct wnw__record_pass *pass)
{
    struct wnw__outputs *w = rec;
    for (int32_t il = pass->from; pass->generated && il < pass->to; il++)
        w->is_there[il] = true;
}

static void told(void *rec, int32_t from, int32_t to, enum wnw__event event)
{
    struct wnw__outputs *w = rec;
    (void)event;
    for (int32_t il = from; il < to; il++)
        w->is_there[il] = false;
}

const struct wnw__recorder_type wnw__outputs_recorder = {
    .name = "outputs",
    .reads_output = true,
    .open = open_outputs,
    .free = close_outputs,
    .copy = copy_outputs,
    .reserve = reserve,
    .stages = stages,
    .take = take,
    .commit = commit,
    .told = told,
};
