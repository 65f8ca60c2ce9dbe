/* SPDX-License-Identifier: MIT */
/* Recorder of every prompt query, after RoPE. */
#include "observe/recorders.h"
#include "observe/source_impl.h"
#include "observe/token_rows.h"

static bool needed(const struct wnw__record_needs *needs, const struct wnw__record_shape *shape,
                   struct wnw__record_arg *arg)
{
    (void)shape;
    *arg = (struct wnw__record_arg){0};
    return needs->merged.flags & WNW_NEED_QUERIES;
}

static int open_queries(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    struct wnw__token_rows *k;
    (void)arg;
    *rec = NULL;
    WNW_TRY(wnw__record_one_reader(shape, "every query"));
    const int rc =
        wnw__token_rows_open(&k, shape->model.n_layer, (size_t)shape->model.n_head * (size_t)shape->model.d);
    *rec = k;
    return rc;
}

static int stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    (void)rec;
    (void)il;
    return point == WNW_POINT_ATTENTION && !pass->generated;
}

static int fill(void *rec, struct wnw__source *source, const wnw_needs *needs, const bool *heads,
                wnw_observation *obs)
{
    const struct wnw__token_rows *k = rec;
    (void)source;
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
    return WNW_OK;
}

const struct wnw__recorder_type wnw__queries_recorder = {
    .name = "queries",
    .needs = WNW_NEED_QUERIES,
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
