/* SPDX-License-Identifier: MIT */
#include "observe/source.h"
#include "base/clamp.h"

#include "base/parallel.h"
#include "model/rope.h"
#include "observe/nll.h"
#include "observe/recorders.h"
#include "observe/source_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int wnw__source_need(struct wnw__source *s, int i, size_t n, float **out)
{
    struct wnw__buffer *b = &s->buffers[s->filling][i];
    WNW_TRY(wnw__buffer_need(b, n, sizeof **out, "observations"));
    *out = b->p;
    return WNW_OK;
}

/* ---- Entries of a winnow cache ---- */

static struct wnw__plan_layer layer_of_cache(void *of, int32_t il)
{
    const struct wnw__cache *c = of;
    const struct wnw__kv_layer *l = &c->layers[il];
    return (struct wnw__plan_layer){.n_entry = l->len,
                                    .pos = l->pos,
                                    .off = l->off,
                                    .n_settled = l->n_settled,
                                    .n_ambiguous = l->n_ambiguous};
}

static void read_cache(void *of, int32_t il, enum wnw__stored what, int32_t ih, int32_t first, int32_t n,
                       float *dst)
{
    const struct wnw__cache *c = of;
    wnw__cache_read(c, il, what, ih, first, n, dst);
}

struct wnw__entries wnw__source_entries(struct wnw__cache *cache)
{
    return (struct wnw__entries){.of = cache, .layer = layer_of_cache, .read = read_cache};
}

/* ---- Keys and values, converted when a policy asks for them ---- */

/* Entries of a head that are being converted, cut into pieces of one length: as many as there are, however many threads take them. */
enum { PIECE = 512 };
struct reading {
    const struct wnw__source *s;
    int32_t il, ih, first, n;
    enum wnw__stored what;
    float *dst;
};

static void read_piece(int32_t i, void *user)
{
    const struct reading *r = user;
    const int32_t at = i * PIECE, n = r->n - at < PIECE ? r->n - at : PIECE;
    r->s->of.entries.read(r->s->of.entries.of, r->il, r->what, r->ih, r->first + at, n,
                          r->dst + (size_t)at * (size_t)r->s->shape.d);
}

/* Rows first .. first + count - 1 of KV head ih to dst; rows after its entries are 0. */
static void read_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count,
                      enum wnw__stored what, float *dst)
{
    const struct wnw__source *s = obs->source;
    const size_t d = (size_t)obs->n_embd_head;
    const int32_t n = (int32_t)wnw__clamp(obs->n_entry[ih] - first, 0, count);
    struct reading r = {.s = s, .il = obs->il, .ih = ih, .first = first, .n = n, .what = what, .dst = dst};
    wnw__parallel(s->of.pool, (n + PIECE - 1) / PIECE, read_piece, &r);
    memset(dst + (size_t)n * d, 0, (size_t)(count - n) * d * sizeof *dst);
}

static const float *head_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count,
                              enum wnw__stored what)
{
    const struct wnw__source *s = obs->source;
    float *dst = what == WNW_KEYS ? s->keys.p : s->values.p;
    read_rows(obs, ih, first, count, what, dst);
    return dst;
}

/* Room for all heads is made when it is asked for, since most parts look at one head after the other. */
static const float *all_rows(const wnw_observation *obs, enum wnw__stored what)
{
    struct wnw__source *s = obs->source;
    struct wnw__buffer *b = what == WNW_KEYS ? &s->all_keys : &s->all_values;
    const size_t n = (size_t)obs->n * (size_t)s->shape.d;
    if (wnw__buffer_need(b, n * (size_t)s->shape.n_head_kv, sizeof(float), "observations") != WNW_OK)
        return NULL;
    for (int32_t ih = 0; ih < s->shape.n_head_kv; ih++)
        read_rows(obs, ih, 0, obs->n, what, (float *)b->p + n * (size_t)ih);
    return b->p;
}

static const float *keys(const wnw_observation *obs, int32_t ih)
{
    return head_rows(obs, ih, 0, obs->n, WNW_KEYS);
}

static const float *values(const wnw_observation *obs, int32_t ih)
{
    return head_rows(obs, ih, 0, obs->n, WNW_VALUES);
}

static const float *key_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count)
{
    return head_rows(obs, ih, first, count, WNW_KEYS);
}

static const float *value_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count)
{
    return head_rows(obs, ih, first, count, WNW_VALUES);
}

static const float *all_keys(const wnw_observation *obs)
{
    return all_rows(obs, WNW_KEYS);
}

static const float *all_values(const wnw_observation *obs)
{
    return all_rows(obs, WNW_VALUES);
}

/* Sets the functions that give keys and values, and makes room for their results. */
static int offer_entries(struct wnw__source *s, const wnw_needs *needs, wnw_observation *obs)
{
    const size_t n = (size_t)obs->n * (size_t)s->shape.d;
    if (needs->flags & WNW_NEED_KEYS) {
        WNW_TRY(wnw__buffer_need(&s->keys, n, sizeof(float), "observations"));
        obs->keys = keys;
        obs->key_rows = key_rows;
        obs->all_keys = all_keys;
    }
    if (needs->flags & WNW_NEED_VALUES) {
        WNW_TRY(wnw__buffer_need(&s->values, n, sizeof(float), "observations"));
        obs->values = values;
        obs->value_rows = value_rows;
        obs->all_values = all_values;
    }
    return WNW_OK;
}

/* ---- A layer ---- */

static void each(const wnw_observation *obs, int32_t n, void (*work)(int32_t i, void *user), void *user)
{
    const struct wnw__source *s = obs->source;
    wnw__parallel(s->of.pool, n, work, user);
}

/* Copies the lengths and positions of the heads into rows of one length. */
static int list_entries(struct wnw__source *s, wnw_observation *obs)
{
    const struct wnw__plan_layer l = s->of.entries.layer(s->of.entries.of, obs->il);
    const size_t n_head = (size_t)s->shape.n_head_kv;
    for (size_t ih = 0; ih < n_head; ih++)
        obs->n = l.n_entry[ih] > obs->n ? l.n_entry[ih] : obs->n;
    WNW_TRY(wnw__buffer_need(&s->n_entry, n_head, sizeof(int32_t), "observations"));
    WNW_TRY(wnw__buffer_need(&s->pos, n_head * (size_t)obs->n, sizeof(int32_t), "observations"));
    memcpy(s->n_entry.p, l.n_entry, n_head * sizeof(int32_t));
    for (size_t ih = 0; ih < n_head; ih++) {
        int32_t *pos = (int32_t *)s->pos.p + ih * (size_t)obs->n;
        if (l.n_entry[ih] > 0)
            memcpy(pos, l.pos + l.off[ih], (size_t)l.n_entry[ih] * sizeof *pos);
        for (int32_t i = l.n_entry[ih]; i < obs->n; i++)
            pos[i] = -1;
    }
    obs->n_entry = s->n_entry.p;
    obs->pos = s->pos.p;
    return WNW_OK;
}

/* Copies one plane of numbers of the entries into rows of one length; `empty` in padding, and everywhere where none are kept. */
static int list_numbers(const struct wnw__source *s, const wnw_observation *obs, enum wnw__aux kind,
                        float empty, struct wnw__buffer *to)
{
    const struct wnw__kv_layer *l = s->of.cache ? &s->of.cache->layers[obs->il] : NULL;
    const size_t n = (size_t)obs->n, n_head = (size_t)s->shape.n_head_kv;
    WNW_TRY(wnw__buffer_need(to, n_head * n, sizeof(float), "observations"));
    float *x = to->p;
    for (size_t i = 0; i < n_head * n; i++)
        x[i] = empty;
    for (int32_t ih = 0; l && l->aux[kind] && ih < s->shape.n_head_kv; ih++)
        memcpy(x + (size_t)ih * n, wnw__cache_aux(l, kind, 0) + l->off[ih], (size_t)l->len[ih] * sizeof *x);
    return WNW_OK;
}

/* The biases of the entries, if they have any. */
static int list_biases(struct wnw__source *s, wnw_observation *obs)
{
    if (!s->of.cache || !s->of.cache->layers[obs->il].aux[WNW_AUX_BIAS])
        return WNW_OK;
    WNW_TRY(list_numbers(s, obs, WNW_AUX_BIAS, 0, &s->bias));
    obs->bias = s->bias.p;
    return WNW_OK;
}

static int list_notes(struct wnw__source *s, wnw_observation *obs)
{
    WNW_TRY(list_numbers(s, obs, WNW_AUX_NOTE, NAN, &s->note));
    obs->note = s->note.p;
    return WNW_OK;
}

static void describe_rope(struct wnw__source *s, wnw_observation *obs)
{
    const struct wnw_model *m = s->of.m;
    if (!m || m->hp.rope_unknown)
        return;
    wnw__rope_theta(&m->hp, obs->il, m->w.rope_freqs ? m->w.rope_freqs->data : NULL, s->theta);
    obs->rope_theta = s->theta;
    obs->n_rot = m->hp.n_rot;
    obs->rope_neox = m->arch->rope_type == GGML_ROPE_TYPE_NEOX;
    obs->n_ctx_train = m->hp.n_ctx_train;
}

/* Fills in what every policy sees of a layer, with any needs. */
static int describe(struct wnw__source *s, int32_t il, wnw_observation *obs)
{
    *obs = (wnw_observation){
        .il = il,
        .n_layer = s->shape.n_layer,
        .n_head = s->shape.n_head,
        .n_head_kv = s->shape.n_head_kv,
        .n_embd_head = s->shape.d,
        .n_past = *s->of.n_past,
        .n_question = s->of.n_question,
        .attn_scale = s->of.attn_scale,
        .each = each,
        .source = s,
    };
    describe_rope(s, obs);
    WNW_TRY(list_entries(s, obs));
    return list_biases(s, obs);
}

static int fill_recorded(struct wnw__source *s, const wnw_needs *needs, const bool *heads,
                         wnw_observation *obs)
{
    const struct wnw__recorder_type *type;
    for (int32_t i = 0; s->of.recorders && (type = wnw__recorder_type_at(i)); i++) {
        s->filling = i;
        if (type->fill && (type->needs & needs->flags))
            WNW_TRY(type->fill(wnw__recorders_find(s->of.recorders, type), s, needs, heads, obs));
    }
    return WNW_OK;
}

static int observe(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs, const bool *heads,
                   wnw_observation *obs)
{
    struct wnw__source *s = src->user;
    WNW_TRY(describe(s, il, obs));
    WNW_TRY(fill_recorded(s, needs, heads, obs));
    s->filling = s->n_filler - 1;
    if (s->of.add)
        WNW_TRY(s->of.add(s->of.owner, s, needs, heads, obs));
    if (needs->flags & WNW_NEED_NOTES)
        WNW_TRY(list_notes(s, obs));
    if ((needs->flags & WNW_NEED_PROJ_NORM) && (s->of.m || s->of.projection))
        wnw__source_offer_norms(obs);
    return offer_entries(s, needs, obs);
}

/* ---- The source ---- */

static struct wnw__plan_layer layer(const struct wnw__plan_source *src, int32_t il)
{
    const struct wnw__source *s = src->user;
    return s->of.entries.layer(s->of.entries.of, il);
}

static int perplexity(const struct wnw__plan_source *src, int32_t window, double *out)
{
    const struct wnw__source *s = src->user;
    return wnw__nll_perplexity(wnw__recorders_find(s->of.recorders, &wnw__nll_recorder), *s->of.n_past,
                               window, out);
}

static void free_source(struct wnw__source *s)
{
    if (!s)
        return;
    for (int32_t i = 0; s->buffers && i < s->n_filler; i++)
        for (int k = 0; k < WNW_SOURCE_BUFFERS; k++)
            wnw__buffer_free(&s->buffers[i][k]);
    for (int i = 0; i < 2 * WNW_N_PROJ_NORMS; i++)
        wnw__buffer_free(&s->norms[i]);
    wnw__buffer_free(&s->n_entry);
    wnw__buffer_free(&s->pos);
    wnw__buffer_free(&s->bias);
    wnw__buffer_free(&s->note);
    wnw__buffer_free(&s->keys);
    wnw__buffer_free(&s->values);
    wnw__buffer_free(&s->all_keys);
    wnw__buffer_free(&s->all_values);
    free(s->buffers);
    free(s->theta);
    free(s);
}

int wnw__source_open(struct wnw__plan_source *src, const struct wnw__source_of *of)
{
    struct wnw__source *s = calloc(1, sizeof *s);
    int32_t n_type = 0;
    while (wnw__recorder_type_at(n_type))
        n_type++;
    if (s) {
        s->of = *of;
        s->shape = src->shape;
        s->n_filler = n_type + 1;
        s->buffers = calloc((size_t)s->n_filler, sizeof *s->buffers);
        s->theta = calloc(of->m ? (size_t)of->m->hp.n_rot / 2 + 1 : 1, sizeof *s->theta);
    }
    if (!s || !s->buffers || !s->theta) {
        free_source(s);
        return wnw__fail(WNW_E_NOMEM, "no memory for observations");
    }
    src->user = s;
    src->layer = layer;
    src->observe = observe;
    src->perplexity = of->recorders ? perplexity : NULL;
    return WNW_OK;
}

void *wnw__source_owner(const struct wnw__plan_source *src)
{
    const struct wnw__source *s = src->user;
    return s->of.owner;
}

void wnw__source_close(struct wnw__plan_source *src)
{
    struct wnw__source *s = src->user;
    if (s && s->of.free)
        s->of.free(s->of.owner);
    free_source(s);
    *src = (struct wnw__plan_source){0};
}
