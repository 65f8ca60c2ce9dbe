/* SPDX-License-Identifier: MIT */
/* Recorder of every prompt query, after RoPE. They are the largest thing that is recorded, and take a good part of their time to
 * be written to memory that is new; where rounded ones do, there is half of it. */
#include "observe/queries.h"

#include "base/parallel.h"
#include "kernel/kernel.h"
#include "observe/recorders.h"
#include "observe/source_impl.h"
#include "observe/token_rows.h"

#include <stdatomic.h>

/* The argument's n is the type of the rows. */
static bool needed(const struct wnw__record_needs *needs, const struct wnw__record_shape *shape,
                   struct wnw__record_arg *arg)
{
    (void)shape;
    *arg = (struct wnw__record_arg){.n = wnw__queries_rounded(needs->merged.flags) ? WNW_KV_F16 : WNW_KV_F32};
    return needs->merged.flags & WNW_NEED_EVERY_QUERY;
}

static int open_queries(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    struct wnw__token_rows *k;
    *rec = NULL;
    WNW_TRY(wnw__record_one_reader(shape, "every query"));
    const int rc = wnw__token_rows_open(
        &k, shape->model.n_layer, (size_t)shape->model.n_head * (size_t)shape->model.d, (wnw_kv_type)arg->n);
    *rec = k;
    return rc;
}

static int stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    (void)rec;
    (void)il;
    return point == WNW_POINT_ATTENTION && !pass->generated;
}

/* ---- Rows in f16 become float32 again, a layer at a time ---- */

enum { BLOCK = 32 }; /* rows that a thread converts together */

bool wnw__queries_widen(const void *from, int64_t n, int32_t d, float *to)
{
    float sum = 0;
    wnw__rows_to_f32(WNW_KV_F16, from, n, d, to);
    for (int64_t i = 0; i < n * d; i++)
        sum += to[i] * 0.0f;
    return !(sum != 0.0f); /* which is also so of what is no number */
}

int wnw__queries_beyond(int32_t il)
{
    return wnw__fail(WNW_E_NOT_FINITE,
                     "queries of layer %d are beyond what f16 holds, in which they are recorded; choose a "
                     "scorer that does not read all queries",
                     (int)il);
}

struct widen {
    const struct wnw__token_rows *k;
    int32_t il;
    float *to;
    atomic_bool beyond; /* a number is beyond the range of f16 */
};

static void widen_block(int32_t i, void *user)
{
    struct widen *w = user;
    const int32_t from = i * BLOCK, left = w->k->layers[w->il].n - from;
    if (!wnw__queries_widen(wnw__token_rows_at(w->k, w->il, from), left < BLOCK ? left : BLOCK,
                            (int32_t)w->k->row, w->to + (size_t)from * w->k->row))
        atomic_store_explicit(&w->beyond, true, memory_order_relaxed);
}

static int widen(const struct wnw__token_rows *k, int32_t il, struct wnw__source *source,
                 const float **queries)
{
    const int32_t n = k->layers[il].n;
    struct widen w = {.k = k, .il = il};
    WNW_TRY(wnw__source_need(source, 0, (size_t)n * k->row, &w.to));
    wnw__parallel(source->of.pool, (n + BLOCK - 1) / BLOCK, widen_block, &w);
    if (atomic_load_explicit(&w.beyond, memory_order_relaxed))
        return wnw__queries_beyond(il);
    *queries = w.to;
    return WNW_OK;
}

static int fill(void *rec, struct wnw__source *source, const wnw_needs *needs, const bool *heads,
                wnw_observation *obs)
{
    const struct wnw__token_rows *k = rec;
    (void)needs;
    (void)heads;
    if (!k)
        return WNW_OK;
    const struct wnw__token_rows_layer *l = &k->layers[obs->il];
    if (l->n == 0 || l->end != obs->n_past)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "the last tokens' queries were not kept: compress right after prefill, once");
    obs->queries = l->q;
    obs->n_queries = l->n;
    return k->type == WNW_KV_F16 ? widen(k, obs->il, source, &obs->queries) : WNW_OK;
}

const struct wnw__recorder_type wnw__queries_recorder = {
    .name = "queries",
    .needs = WNW_NEED_EVERY_QUERY,
    .needed = needed,
    .open = open_queries,
    .free = wnw__token_rows_close,
    .copy = wnw__token_rows_copy,
    .begin = wnw__token_rows_reserve,
    .reserve = wnw__token_rows_reserve,
    .stages = stages,
    .take = wnw__token_rows_take,
    .commit = wnw__token_rows_commit,
    .told = wnw__token_rows_told,
    .rewound = wnw__token_rows_rewound,
    .fill = fill,
};
