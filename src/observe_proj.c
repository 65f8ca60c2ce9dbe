/* SPDX-License-Identifier: MIT */
/* Projected norms of a session's cached values: computed when a policy asks, kept with the entries. */
#include "projnorm.h"
#include "session.h"

#include <stdlib.h>
#include <string.h>

static int fill_layer(wnw_session *s, int32_t il, wnw_proj_norm kind)
{
    const struct wnw__cache *c = &s->cache;
    const struct wnw__kv_layer *l = &c->layers[il];
    const struct ggml_tensor *wo = wnw__model_original(s->m, s->m->layers[il].wo);
    const struct wnw__proj_weight weight = {.type = wo->type,
                                            .data = wo->data,
                                            .n_head = s->m->hp.n_head,
                                            .n_head_kv = c->n_head_kv,
                                            .d = c->d,
                                            .n_out = (int32_t)wo->ne[1]};
    struct wnw__proj_values *heads = calloc((size_t)c->n_head_kv, sizeof *heads);
    if (!heads)
        return wnw__fail(WNW_E_NOMEM, "no memory for projected norms of %d heads", (int)c->n_head_kv);
    for (int32_t ih = 0; ih < c->n_head_kv && l->v; ih++)
        heads[ih] = (struct wnw__proj_values){.v = l->v + (size_t)l->off[ih] * c->row_bytes,
                                              .norm = wnw__cache_aux(l, WNW_AUX_PROJ + kind, 0) + l->off[ih],
                                              .n = l->len[ih]};
    const int rc = wnw__proj_fill(s->proj, &weight, il, kind, heads);
    free(heads);
    return rc;
}

int wnw__session_proj_norm(wnw_session *s, int32_t il, wnw_proj_norm kind, int32_t n, float *norm)
{
    const struct wnw__kv_layer *l = &s->cache.layers[il];
    if ((int)kind < 0 || kind >= WNW_N_PROJ_NORMS)
        return wnw__fail(WNW_E_ARG, "projected norm number %d does not exist", (int)kind);
    if (s->cache.aux_planes[WNW_AUX_PROJ + kind] == 0)
        WNW_TRY(wnw__cache_set_aux(&s->cache, WNW_AUX_PROJ + kind, 1));
    if (!s->proj)
        WNW_TRY(wnw__proj_new(&s->proj, s->cache.n_layer, s->cache.type, s->params.n_threads));
    WNW_TRY(fill_layer(s, il, kind));
    memset(norm, 0, (size_t)s->cache.n_head_kv * (size_t)n * sizeof *norm);
    for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++)
        memcpy(norm + (size_t)ih * (size_t)n, wnw__cache_aux(l, WNW_AUX_PROJ + kind, 0) + l->off[ih],
               (size_t)l->len[ih] * sizeof *norm);
    return WNW_OK;
}
