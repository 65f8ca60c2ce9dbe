/* SPDX-License-Identifier: MIT */
#include "observe/recorders.h"

#include <string.h>

#define WNW_RECORDER(name) &wnw__##name##_recorder,
static const struct wnw__recorder_type *const types[] = {
#include "observe/recorders.def"
    NULL};
#undef WNW_RECORDER

const struct wnw__recorder_type *wnw__recorder_type_at(int32_t i)
{
    return i >= 0 && (size_t)i < sizeof types / sizeof *types ? types[i] : NULL;
}

const struct wnw__recorder_type *wnw__recorder_type_find(const char *name)
{
    for (int32_t i = 0; types[i]; i++)
        if (strcmp(types[i]->name, name) == 0)
            return types[i];
    return NULL;
}

/* ---- Numbers that the cache keeps with its entries ---- */

static const struct {
    uint32_t need;
    enum wnw__aux kind;
    bool of_query_heads; /* one number for each of the group, else one */
} numbers[] = {{WNW_NEED_ATTN_SUM, WNW_AUX_ATTN_SUM, true},
               {WNW_NEED_ATTN_MAX, WNW_AUX_ATTN_MAX, true},
               {WNW_NEED_INPUT_GATE, WNW_AUX_GATE, false}};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

/* The WNW_NEED_* flags of the numbers that the cache keeps. */
static uint32_t kept(const struct wnw__cache *cache)
{
    uint32_t flags = 0;
    for (int i = 0; i < N_NUMBERS; i++)
        flags |= cache->aux_planes[numbers[i].kind] > 0 ? numbers[i].need : 0;
    return flags;
}

static void keep_only(struct wnw__cache *cache, uint32_t flags)
{
    for (int i = 0; i < N_NUMBERS; i++)
        if (!(flags & numbers[i].need))
            (void)wnw__cache_set_aux(cache, numbers[i].kind, 0);
}

static int keep_also(struct wnw__cache *cache, uint32_t flags, int32_t group)
{
    for (int i = 0; i < N_NUMBERS; i++)
        if ((flags & numbers[i].need) && cache->aux_planes[numbers[i].kind] == 0)
            WNW_TRY(wnw__cache_set_aux(cache, numbers[i].kind, numbers[i].of_query_heads ? group : 1));
    return WNW_OK;
}

/* ---- Recorders ---- */

/* The index of the recorder with this type and argument, or -1. */
static int32_t find(const struct wnw__recorders *r, const struct wnw__recorder_type *type,
                    const struct wnw__record_arg *arg)
{
    for (int32_t i = 0; i < r->n; i++)
        if (r->list[i].type == type && r->list[i].arg.n == arg->n &&
            r->list[i].arg.generated == arg->generated)
            return i;
    return -1;
}

/* Marks the recorders that are asked for and opens those that are missing, at the end of the list. */
static int open_missing(struct wnw__recorders *r, const struct wnw__record_needs *needs,
                        const struct wnw__record_shape *shape)
{
    struct wnw__record_arg arg;
    for (int32_t i = 0; i < r->n; i++)
        r->list[i].is_needed = r->list[i].type->needs == 0;
    for (int32_t k = 0; types[k]; k++) {
        if (!types[k]->needed || !types[k]->needed(needs, shape, &arg))
            continue;
        int32_t at = find(r, types[k], &arg);
        if (at < 0) {
            at = r->n;
            WNW_TRY(wnw__recorders_open(r, types[k], &arg, shape));
        }
        r->list[at].is_needed = true;
    }
    return WNW_OK;
}

static void close_unneeded(struct wnw__recorders *r)
{
    int32_t n = 0;
    for (int32_t i = 0; i < r->n; i++) {
        if (r->list[i].is_needed)
            r->list[n++] = r->list[i];
        else
            r->list[i].type->free(r->list[i].rec);
    }
    r->n = n;
}

int wnw__recorders_declare(struct wnw__recorders *r, struct wnw__cache *cache,
                           const struct wnw__record_needs *needs, const struct wnw__record_shape *shape)
{
    const int32_t n_before = r->n;
    const uint32_t kept_before = kept(cache);
    int rc = open_missing(r, needs, shape);
    if (rc == WNW_OK)
        rc = keep_also(cache, needs->merged.flags, shape->model.n_head / shape->model.n_head_kv);
    if (rc != WNW_OK) {
        wnw__recorders_cut(r, n_before);
        keep_only(cache, kept_before);
        return rc;
    }
    keep_only(cache, needs->merged.flags);
    if (!(needs->merged.flags & WNW_NEED_NOTES))
        (void)wnw__cache_set_aux(cache, WNW_AUX_NOTE, 0); /* plans that have notes make them */
    for (int kind = WNW_AUX_PROJ; kind < WNW_N_AUX && !(needs->merged.flags & WNW_NEED_PROJ_NORM); kind++)
        (void)wnw__cache_set_aux(cache, (enum wnw__aux)kind, 0); /* a source makes them when a policy asks */
    close_unneeded(r);
    return WNW_OK;
}
