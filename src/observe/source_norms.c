/* SPDX-License-Identifier: MIT */
/* Projected norms of cached values are computed when a policy asks for them, and kept with the entries. */
#include "observe/source_impl.h"

#include "observe/projnorm.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(WNW_AUX_PROJ_KINDS == WNW_N_PROJ_NORMS, "the cache keeps every kind of norm");

/* Which norms are asked for: those of KV heads, or those of query heads. Then each query head is its own group. */
struct norms {
    wnw_proj_norm kind;
    enum wnw__aux aux;
    int32_t n_plane, n_row; /* numbers per entry, rows of the result */
    struct wnw__proj **proj;
};

static struct norms what(const struct wnw__source *s, wnw_proj_norm kind, bool of_query_heads)
{
    return of_query_heads ? (struct norms){kind, (enum wnw__aux)(WNW_AUX_HEAD_PROJ + kind),
                                           wnw__shape_group(&s->shape), s->shape.n_head, &s->of.proj[1]}
                          : (struct norms){kind, (enum wnw__aux)(WNW_AUX_PROJ + kind), 1, s->shape.n_head_kv,
                                           &s->of.proj[0]};
}

/* The values of KV head ih of a layer that holds entries. */
static struct wnw__proj_values values_of(const struct wnw__cache *c, const struct wnw__kv_layer *l,
                                         int32_t ih)
{
    struct wnw__proj_values x = {.n = l->len[ih], .block = c->v_block};
    if (c->n_tail == 0) {
        x.v = l->v + (size_t)l->off[ih] * c->row_bytes;
        return x;
    }
    const struct wnw__kv_tail *t = &l->tail;
    x.f16 = t->v + (size_t)t->off[ih] * c->tail_row_bytes;
    x.n_first = t->n_first[ih];
    x.n_v = t->n_quantised[ih];
    x.v = x.n_v > 0 ? l->v + (size_t)t->quantised_off[ih] * c->row_bytes : NULL;
    return x;
}

static int fill_layer(const struct wnw__source *s, int32_t il, const struct norms *a)
{
    const struct wnw__cache *c = s->of.cache;
    const struct wnw__kv_layer *l = &c->layers[il];
    struct wnw__proj_weight weight = wnw__proj_weight_of(s->of.m, il);
    weight.n_head_kv = a->n_row;
    struct wnw__proj_values *heads = calloc((size_t)a->n_row, sizeof *heads);
    if (!heads)
        return wnw__fail(WNW_E_NOMEM, "no memory for projected norms of %d heads", (int)a->n_row);
    for (int32_t h = 0; h < a->n_row && l->n_rows > 0; h++) {
        const int32_t ih = h / a->n_plane;
        heads[h] = values_of(c, l, ih);
        heads[h].norm = wnw__cache_aux(l, a->aux, h % a->n_plane) + l->off[ih];
    }
    const int rc = wnw__proj_fill(*a->proj, s->of.pool, &weight, il, a->kind, heads);
    free(heads);
    return rc;
}

/* norm[n_head_kv][n] over the group, or norm[n_head][n] of each query head after its own slice. */
static int compute(const struct wnw__source *s, const wnw_observation *obs, const struct norms *a,
                   float *norm)
{
    struct wnw__cache *c = s->of.cache;
    const struct wnw__kv_layer *l = &c->layers[obs->il];
    const size_t n = (size_t)obs->n;
    WNW_TRY(wnw__proj_check(s->of.m, obs->il));
    if (c->aux_planes[a->aux] == 0)
        WNW_TRY(wnw__cache_set_aux(c, a->aux, a->n_plane));
    if (!*a->proj)
        WNW_TRY(wnw__proj_new(a->proj, c->n_layer, c->type));
    WNW_TRY(fill_layer(s, obs->il, a));
    memset(norm, 0, (size_t)a->n_row * n * sizeof *norm);
    for (int32_t h = 0; h < a->n_row; h++) {
        const int32_t ih = h / a->n_plane;
        if (l->len[ih] > 0)
            memcpy(norm + (size_t)h * n, wnw__cache_aux(l, a->aux, h % a->n_plane) + l->off[ih],
                   (size_t)l->len[ih] * sizeof *norm);
    }
    return WNW_OK;
}

/* The same where the entries are not in a winnow cache: norms are not kept. */
static int compute_from_rows(const struct wnw__source *s, const wnw_observation *obs, const struct norms *a,
                             float *norm)
{
    const size_t n = (size_t)obs->n, d = (size_t)obs->n_embd_head;
    struct wnw__proj_weight weight;
    WNW_TRY(s->of.projection(s->of.owner, obs->il, &weight));
    weight.n_head_kv = a->n_row;
    if (!*a->proj)
        WNW_TRY(wnw__proj_new(a->proj, obs->n_layer, WNW_KV_F32));
    float *rows = malloc(((size_t)obs->n_head_kv * n * d + 1) * sizeof *rows);
    struct wnw__proj_values *heads = calloc((size_t)a->n_row, sizeof *heads);
    if (!rows || !heads) {
        free(rows);
        free(heads);
        return wnw__fail(WNW_E_NOMEM, "no memory for projected norms of %d heads", (int)a->n_row);
    }
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        if (obs->n_entry[ih] > 0)
            s->of.entries.read(s->of.entries.of, obs->il, WNW_VALUES, ih, 0, obs->n_entry[ih],
                               rows + (size_t)ih * n * d);
    for (int32_t h = 0; h < a->n_row; h++) {
        const int32_t ih = h / a->n_plane;
        float *to = norm + (size_t)h * n;
        for (int32_t e = 0; e < obs->n; e++)
            to[e] = e < obs->n_entry[ih] ? -1.0f : 0.0f;
        heads[h] = (struct wnw__proj_values){
            .v = (const uint8_t *)(rows + (size_t)ih * n * d), .norm = to, .n = obs->n_entry[ih]};
    }
    const int rc = wnw__proj_fill(*a->proj, s->of.pool, &weight, obs->il, a->kind, heads);
    free(rows);
    free(heads);
    return rc;
}

static const float *norms(const wnw_observation *obs, wnw_proj_norm kind, bool of_query_heads)
{
    struct wnw__source *s = obs->source;
    if ((int)kind < 0 || kind >= WNW_N_PROJ_NORMS) {
        (void)wnw__fail(WNW_E_ARG, "projected norm number %d does not exist", (int)kind);
        return NULL;
    }
    const struct norms a = what(s, kind, of_query_heads);
    struct wnw__buffer *to = &s->norms[(int)kind * 2 + of_query_heads];
    if (wnw__buffer_need(to, (size_t)a.n_row * (size_t)obs->n, sizeof(float), "observations") != WNW_OK ||
        (s->of.cache ? compute(s, obs, &a, to->p) : compute_from_rows(s, obs, &a, to->p)) != WNW_OK)
        return NULL;
    return to->p;
}

static const float *proj_norm(const wnw_observation *obs, wnw_proj_norm kind)
{
    return norms(obs, kind, false);
}

static const float *head_proj_norm(const wnw_observation *obs, wnw_proj_norm kind)
{
    return norms(obs, kind, true);
}

void wnw__source_offer_norms(wnw_observation *obs)
{
    obs->proj_norm = proj_norm;
    obs->head_proj_norm = head_proj_norm;
}
