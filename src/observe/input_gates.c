/* SPDX-License-Identifier: MIT */
/*
 * Recorder of what gates say of hidden states. A gate is evaluated when its token is read, and the cache keeps the score
 * with the token's entries: one number in place of a hidden state. So gates work wherever entries go, through chunks,
 * compaction and copies, and while decoding. What was read without gates has no score.
 */
#include "observe/input_gate_score.h"
#include "observe/recorders.h"
#include "observe/source_impl.h"
#include "profile/profile.h"

#include <math.h>
#include <stdlib.h>

struct input_gates {
    const struct wnw__record_shape *shape;
    float *room;      /* for every thread, see wnw__input_asked */
    size_t room_size; /* floats of a thread */
};

/* The gates of the session's profile; NULL = none. */
static const struct wnw__input_gate *gates_of(const struct input_gates *k)
{
    const wnw_profile *p = k->shape->profile;
    return p && p->inputs.number ? &p->inputs : NULL;
}

static bool needed(const struct wnw__record_needs *needs, const struct wnw__record_shape *shape,
                   struct wnw__record_arg *arg)
{
    (void)shape;
    *arg = (struct wnw__record_arg){0};
    return needs->merged.flags & WNW_NEED_INPUT_GATE;
}

static void close_gates(void *rec)
{
    struct input_gates *k = rec;
    if (k)
        free(k->room);
    free(k);
}

static int open_gates(void **rec, const struct wnw__record_shape *shape, const struct wnw__record_arg *arg)
{
    struct input_gates *k = *rec = calloc(1, sizeof *k);
    (void)arg;
    if (!k)
        return wnw__fail(WNW_E_NOMEM, "no memory for gates");
    k->shape = shape;
    return WNW_OK;
}

/* Scores belong to the cache and are copied with it. */
static int copy_gates(void **rec, const void *from, const struct wnw__record_shape *shape)
{
    (void)from;
    return open_gates(rec, shape, NULL);
}

static int reserve(void *rec, const struct wnw__record_pass *pass)
{
    struct input_gates *k = rec;
    const struct wnw__input_gate *g = gates_of(k);
    (void)pass;
    if (!g)
        return WNW_OK;
    if (g->n_embd != k->shape->n_embd)
        return wnw__fail(
            WNW_E_MISMATCH,
            "the gates of the profile read hidden states of %d numbers; those of the model have %d",
            (int)g->n_embd, (int)k->shape->n_embd);
    const size_t size = wnw__input_asked_room(g, &k->shape->model);
    if (size <= k->room_size)
        return WNW_OK;
    float *room = realloc(k->room, size * (size_t)k->shape->n_threads * sizeof *room);
    if (!room)
        return wnw__fail(WNW_E_NOMEM, "no memory to evaluate gates");
    k->room = room;
    k->room_size = size;
    return WNW_OK;
}

static int stages(const void *rec, enum wnw__point point, int32_t il, const struct wnw__record_pass *pass)
{
    const struct input_gates *k = rec;
    const struct wnw__input_gate *g = gates_of(k);
    (void)pass;
    return point == WNW_POINT_INPUT && g && g->there[il] && wnw__layer_takes_part(&k->shape->model, il);
}

/* Keeps the scores of n tokens of the batch with their entries, which are after those of the cache. */
static void keep(void *user, int64_t first, int32_t n, const float *scores)
{
    const struct wnw__record_rows *r = user;
    const struct wnw__cache *c = r->pass->cache;
    const struct wnw__kv_layer *l = &c->layers[r->il];
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        float *to = wnw__cache_aux(l, WNW_AUX_GATE, 0) + l->off[ih] + l->len[ih] + first;
        for (int32_t i = 0; i < n; i++)
            to[i] = scores[ih * WNW_INPUT_BLOCK + i];
    }
}

static void take(void *rec, const struct wnw__record_rows *r, int ith, int nth)
{
    const struct input_gates *k = rec;
    if (!r->pass->cache->layers[r->il].aux[WNW_AUX_GATE])
        return;
    wnw__input_ask(&(struct wnw__input_asked){.g = gates_of(k),
                                              .shape = &k->shape->model,
                                              .il = r->il,
                                              .x = r->q,
                                              .stride = r->token_stride,
                                              .n = r->pass->n,
                                              .room = k->room,
                                              .n_thread = k->shape->n_threads,
                                              .keep = keep,
                                              .user = (void *)(uintptr_t)r},
                   ith, nth);
}

static double ops(const void *rec, int32_t il, const struct wnw__record_pass *pass)
{
    const struct input_gates *k = rec;
    const struct wnw__input_gate *g = gates_of(k);
    return stages(rec, WNW_POINT_INPUT, il, pass)
               ? 2.0 * (double)wnw__input_numbers(g, &k->shape->model) * pass->n
               : 0;
}

static int fill(void *rec, struct wnw__source *source, const wnw_needs *needs, const bool *heads,
                wnw_observation *obs)
{
    const struct wnw__cache *c = source->of.cache;
    float *to;
    (void)rec;
    (void)needs;
    (void)heads;
    if (!c || c->aux_planes[WNW_AUX_GATE] == 0)
        return WNW_OK;
    const struct wnw__kv_layer *l = &c->layers[obs->il];
    WNW_TRY(wnw__source_need(source, 0, (size_t)obs->n_head_kv * (size_t)obs->n + 1, &to));
    obs->input_score = to;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++, to += obs->n) {
        const float *from = wnw__cache_aux(l, WNW_AUX_GATE, 0) + l->off[ih];
        for (int32_t i = 0; i < obs->n; i++) {
            to[i] = i < l->len[ih] ? from[i] : 0;
            if (isnan(to[i]))
                return wnw__fail(
                    WNW_E_NOT_OBSERVED,
                    "layer %d has no gate for the token at position %d: gates are asked while tokens are "
                    "read, so the profile must be there before",
                    (int)obs->il, (int)obs->pos[(int64_t)ih * obs->n + i]);
        }
    }
    return WNW_OK;
}

const struct wnw__recorder_type wnw__input_gates_recorder = {
    .name = "input gates",
    .needs = WNW_NEED_INPUT_GATE,
    .needed = needed,
    .open = open_gates,
    .free = close_gates,
    .copy = copy_gates,
    .reserve = reserve,
    .stages = stages,
    .take = take,
    .ops = ops,
    .fill = fill,
};
