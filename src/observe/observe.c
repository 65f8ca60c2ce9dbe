/* SPDX-License-Identifier: MIT */
#include "observe/observe.h"

#include "base/parallel.h"
#include "kernel/kernel.h"
#include "model/rope.h"
#include "observe/observe_impl.h"
#include "observe/recorders.h"

#include <stdlib.h>
#include <string.h>

int wnw__look_need(const struct wnw__look *look, int i, size_t n, float **out)
{
    WNW_TRY(wnw__buffer_need(&look->buffer[i], n, sizeof **out, "observations"));
    *out = look->buffer[i].p;
    return WNW_OK;
}

/* ---- Keys, values and norms, converted when a policy asks for them ---- */

/* Rows first .. first + count - 1 of KV head ih; rows behind its entries are 0. */
static const float *head_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count, bool keys)
{
    const struct wnw__view *v = obs->source;
    float *dst = keys ? v->keys.p : v->values.p;
    const size_t d = (size_t)obs->n_embd_head;
    const int32_t left = obs->n_entry[ih] - first, n = left < 0 ? 0 : left < count ? left : count;
    if (n > 0)
        wnw__cache_read(v->of.cache, v->look.il, keys ? WNW_KEYS : WNW_VALUES, ih, first, n, dst);
    memset(dst + (size_t)n * d, 0, (size_t)(count - n) * d * sizeof *dst);
    return dst;
}

static const float *observe_keys(const wnw_observation *obs, int32_t ih)
{
    return head_rows(obs, ih, 0, obs->n, true);
}

static const float *observe_values(const wnw_observation *obs, int32_t ih)
{
    return head_rows(obs, ih, 0, obs->n, false);
}

static const float *observe_key_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count)
{
    return head_rows(obs, ih, first, count, true);
}

static const float *observe_value_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count)
{
    return head_rows(obs, ih, first, count, false);
}

static const float *proj_norm_of(const wnw_observation *obs, wnw_proj_norm kind, bool of_query_heads)
{
    struct wnw__view *v = obs->source;
    const int i = (int)kind < 0 || kind >= WNW_N_PROJ_NORMS ? 0 : (int)kind * 2 + of_query_heads;
    const int32_t n_row = of_query_heads ? obs->n_head : obs->n_head_kv;
    const size_t n = (size_t)n_row * (size_t)obs->n;
    if (wnw__buffer_need(&v->norms[i], n, sizeof(float), "observations") != WNW_OK ||
        wnw__view_proj_norm(v, kind, of_query_heads, v->norms[i].p) != WNW_OK)
        return NULL;
    return v->norms[i].p;
}

static const float *observe_proj_norm(const wnw_observation *obs, wnw_proj_norm kind)
{
    return proj_norm_of(obs, kind, false);
}

static const float *observe_head_proj_norm(const wnw_observation *obs, wnw_proj_norm kind)
{
    return proj_norm_of(obs, kind, true);
}

static void observe_each(const wnw_observation *obs, int32_t n, void (*work)(int32_t i, void *user),
                         void *user)
{
    const struct wnw__view *v = obs->source;
    wnw__parallel(v->look.pool, n, work, user);
}

/* ---- A layer ---- */

static int list_entries(struct wnw__view *v)
{
    const struct wnw__cache *c = v->of.cache;
    const struct wnw__kv_layer *l = &c->layers[v->look.il];
    int32_t n = 0;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        v->n_entry[ih] = l->len[ih];
        n = l->len[ih] > n ? l->len[ih] : n;
    }
    WNW_TRY(wnw__buffer_need(&v->pos, (size_t)c->n_head_kv * (size_t)n, sizeof(int32_t), "observations"));
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        int32_t *pos = (int32_t *)v->pos.p + (size_t)ih * (size_t)n;
        if (l->len[ih] > 0)
            memcpy(pos, l->pos + l->off[ih], (size_t)l->len[ih] * sizeof *pos);
        for (int32_t i = l->len[ih]; i < n; i++)
            pos[i] = -1;
    }
    v->look.n = n;
    v->look.pos = v->pos.p;
    return WNW_OK;
}

/* Fills in what every policy sees of a layer, whatever it needs. */
static void describe(const struct wnw__view *v, wnw_observation *obs)
{
    const struct wnw_model *m = v->of.m;
    const struct wnw__cache *c = v->of.cache;
    *obs = (wnw_observation){
        .il = v->look.il,
        .n_layer = c->n_layer,
        .n_head = m->hp.n_head,
        .n_head_kv = c->n_head_kv,
        .n_embd_head = c->d,
        .n = v->look.n,
        .n_past = v->look.n_past,
        .n_question = v->of.n_question,
        .n_entry = v->n_entry,
        .pos = v->look.pos,
        .attn_scale = v->look.scale,
        .rope_theta = v->theta,
        .n_rot = m->hp.n_rot,
        .rope_neox = m->arch->rope_type == GGML_ROPE_TYPE_NEOX,
        .n_ctx_train = m->hp.n_ctx_train,
        .each = observe_each,
    };
}

/* Sets the functions that give keys, values and norms, and makes room for their results. */
static int offer_entries(struct wnw__view *v, const wnw_needs *needs, wnw_observation *obs)
{
    const size_t n = (size_t)v->look.n * (size_t)v->of.cache->d;
    if (needs->flags & WNW_NEED_KEYS) {
        WNW_TRY(wnw__buffer_need(&v->keys, n, sizeof(float), "observations"));
        obs->keys = observe_keys;
        obs->key_rows = observe_key_rows;
    }
    if (needs->flags & WNW_NEED_VALUES) {
        WNW_TRY(wnw__buffer_need(&v->values, n, sizeof(float), "observations"));
        obs->values = observe_values;
        obs->value_rows = observe_value_rows;
    }
    if (needs->flags & WNW_NEED_PROJ_NORM) {
        obs->proj_norm = observe_proj_norm;
        obs->head_proj_norm = observe_head_proj_norm;
    }
    return WNW_OK;
}

int wnw__view_layer(struct wnw__view *v, int32_t il, const wnw_needs *needs, const bool *heads,
                    wnw_observation *obs)
{
    const struct ggml_tensor *freqs = v->of.m->w.rope_freqs;
    const struct wnw__recorder_type *type;
    v->look.il = il;
    v->look.n_past = *v->of.n_past;
    WNW_TRY(list_entries(v));
    wnw__rope_theta(&v->of.m->hp, il, freqs ? freqs->data : NULL, v->theta);
    describe(v, obs);
    obs->source = v;
    v->look.needs = needs;
    v->look.heads = heads;
    for (int32_t i = 0; (type = wnw__recorder_type_at(i)); i++) {
        v->look.buffer = v->buffers[i];
        if (type->fill && (type->needs & needs->flags))
            WNW_TRY(type->fill(wnw__recorders_find(v->of.recorders, type), &v->look, obs));
    }
    return offer_entries(v, needs, obs);
}

int wnw__view_new(struct wnw__view **out, const struct wnw__viewed *of)
{
    struct wnw__view *v = *out = calloc(1, sizeof *v);
    int32_t n_type = 0;
    while (wnw__recorder_type_at(n_type))
        n_type++;
    if (v) {
        v->of = *of;
        v->n_entry = calloc((size_t)of->cache->n_head_kv, sizeof *v->n_entry);
        v->theta = calloc((size_t)of->m->hp.n_rot / 2 + 1, sizeof *v->theta);
        v->buffers = calloc((size_t)n_type, sizeof *v->buffers);
        v->n_type = v->buffers ? n_type : 0;
    }
    if (!v || !v->n_entry || !v->theta || !v->buffers) {
        wnw__view_free(v);
        *out = NULL;
        return wnw__fail(WNW_E_NOMEM, "no memory for observations");
    }
    v->look = (struct wnw__look){
        .n_entry = v->n_entry,
        .cache = of->cache,
        .n_head = of->m->hp.n_head,
        .n_ctx = of->n_ctx,
        .pool = of->pool,
        .scale = of->m->hp.attn_scale,
    };
    return WNW_OK;
}

void wnw__view_free(struct wnw__view *v)
{
    if (!v)
        return;
    for (int32_t i = 0; i < v->n_type; i++)
        for (int k = 0; k < WNW_LOOK_BUFFERS; k++)
            wnw__buffer_free(&v->buffers[i][k]);
    for (int i = 0; i < 2 * WNW_N_PROJ_NORMS; i++)
        wnw__buffer_free(&v->norms[i]);
    wnw__buffer_free(&v->pos);
    wnw__buffer_free(&v->keys);
    wnw__buffer_free(&v->values);
    free(v->buffers);
    free(v->n_entry);
    free(v->theta);
    free(v);
}
