/* SPDX-License-Identifier: MIT */
#include "observe/queries.h"

#include "observe/recorders.h"
#include "observe/source_impl.h"

#include <stdlib.h>
#include <string.h>

static bool needed(const struct wnw__record_needs *needs, const struct wnw__record_shape *shape,
                   struct wnw__record_arg *arg)
{
    (void)shape;
    *arg = (struct wnw__record_arg){0};
    return needs->merged.flags & WNW_NEED_QUERIES;
}

/* Frees the queries of layers from .. to - 1. */
static void drop(struct wnw__queries *k, int32_t from, int32_t to)
{
    for (int32_t il = from; il < to; il++) {
        free(k->layers[il].q);
        k->layers[il] = (struct wnw__queries_layer){0};
    }
}

static void close_queries(void *rec)
{
    struct wnw__queries *k = rec;
    if (!k)
        return;
    drop(k, 0, k->layers ? k->n_layer : 0);
    free(k->layers);
    free(k);
}

static int open_queries(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    (void)arg;
    *rec = NULL;
    WNW_TRY(wnw__record_one_reader(shape, "every query"));
    struct wnw__queries *k = *rec = calloc(1, sizeof *k);
    if (k)
        k->layers = calloc((size_t)shape->model.n_layer, sizeof *k->layers);
    if (!k || !k->layers) {
        free(k);
        *rec = NULL;
        return wnw__fail(WNW_E_NOMEM, "no memory for the queries of %d layers", (int)shape->model.n_layer);
    }
    k->n_layer = shape->model.n_layer;
    k->row = (size_t)shape->model.n_head * (size_t)shape->model.d;
    return WNW_OK;
}

/* Makes room for n more queries: exactly n for a first prompt, with slack after it, when tokens come in small
 * pieces. */
static int reserve_layer(const struct wnw__queries *k, struct wnw__queries_layer *l, int32_t n)
{
    if (n <= l->cap - l->n)
        return WNW_OK;
    const int64_t need = (int64_t)l->n + n, more = l->n > 0 ? (int64_t)l->cap + l->cap / 8 : need;
    const int32_t cap = (int32_t)(need > more ? need : more > INT32_MAX ? INT32_MAX : more);
    float *q = realloc(l->q, (size_t)cap * k->row * sizeof *q);
    if (!q)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d queries of a layer", (int)cap);
    l->q = q;
    l->cap = cap;
    return WNW_OK;
}

/* Is called at the beginning of a prompt for all of it, and again for each pass. */
static int reserve(void *rec, const struct wnw__record_pass *pass)
{
    struct wnw__queries *k = rec;
    for (int32_t il = pass->from; !pass->generated && il < pass->to; il++) {
        if (k->layers[il].end != pass->n_past)
            k->layers[il].n = 0; /* only queries of consecutive positions are kept together */
        WNW_TRY(reserve_layer(k, &k->layers[il], pass->n));
    }
    return WNW_OK;
}

static int copy_queries(void **rec, const void *from, const struct wnw__record_shape *shape)
{
    const struct wnw__queries *f = from;
    int rc = open_queries(rec, shape, NULL);
    struct wnw__queries *k = *rec;
    for (int32_t il = 0; rc == WNW_OK && il < f->n_layer; il++) {
        struct wnw__queries_layer *to = &k->layers[il];
        const struct wnw__queries_layer *l = &f->layers[il];
        to->end = l->end;
        if (l->n == 0)
            continue;
        rc = reserve_layer(k, to, l->n);
        if (rc != WNW_OK)
            break;
        memcpy(to->q, l->q, (size_t)l->n * k->row * sizeof *to->q);
        to->n = l->n;
    }
    if (rc != WNW_OK) {
        close_queries(k);
        *rec = NULL;
    }
    return rc;
}

static int stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    (void)rec;
    (void)il;
    return point == WNW_POINT_ATTENTION && !pass->generated;
}

static void take(void *rec, const struct wnw__record_rows *r, int ith, int nth)
{
    const struct wnw__queries *k = rec;
    const struct wnw__queries_layer *l = &k->layers[r->il];
    const int64_t from = (int64_t)r->pass->n * ith / nth, to = (int64_t)r->pass->n * (ith + 1) / nth;
    memcpy(l->q + (size_t)(l->n + from) * k->row, r->q + (size_t)from * k->row,
           (size_t)(to - from) * k->row * sizeof *l->q);
}

static void commit(void *rec, const struct wnw__record_pass *pass)
{
    struct wnw__queries *k = rec;
    for (int32_t il = pass->from; !pass->generated && il < pass->to; il++) {
        k->layers[il].n += pass->n;
        k->layers[il].end = pass->n_past + pass->n;
    }
}

/* Frees the queries. They take about as much memory as the prompt's hidden states and serve one
 * compression. */
static void told(void *rec, int32_t from, int32_t to, enum wnw__event event)
{
    if (event != WNW_EVENT_PASS_FAILED)
        drop(rec, from, to);
}

static void rewound(void *rec, int32_t n_past)
{
    struct wnw__queries *k = rec;
    for (int32_t il = 0; il < k->n_layer; il++) {
        struct wnw__queries_layer *l = &k->layers[il];
        const int32_t gone = l->end > n_past ? l->end - n_past : 0;
        l->n = gone < l->n ? l->n - gone : 0;
        l->end -= gone;
    }
}

static int fill(void *rec, struct wnw__source *source, const wnw_needs *needs, const bool *heads,
                wnw_observation *obs)
{
    const struct wnw__queries *k = rec;
    (void)source;
    (void)needs;
    (void)heads;
    if (!k)
        return WNW_OK;
    const struct wnw__queries_layer *l = &k->layers[obs->il];
    if (l->n == 0 || l->end != obs->n_past)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "the last tokens' queries were not kept: compress right after prefill, once");
    obs->queries = l->q;
    obs->n_queries = l->n;
    return WNW_OK;
}

const struct wnw__recorder_type wnw__queries_recorder = {
    .name = "queries",
    .needs = WNW_NEED_QUERIES,
    .needed = needed,
    .open = open_queries,
    .free = close_queries,
    .copy = copy_queries,
    .begin = reserve,
    .reserve = reserve,
    .stages = stages,
    .take = take,
    .commit = commit,
    .told = told,
    .rewound = rewound,
    .fill = fill,
};
