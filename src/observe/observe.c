/* SPDX-License-Identifier: MIT */
/*
 * Observations: what policies see of a layer, computed in float32 from the cache and from the queries that
 * the forward pass kept. One layer at a time; buffers are reused for the next.
 */
#include "observe/observe.h"
#include "base/parallel.h"
#include "kernel/kernel.h"
#include "model/rope.h"
#include "observe/qstats.h"
#include "plan/compress.h"
#include "session/second_pass.h"
#include "session/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BLOCK = 256 }; /* keys converted at a time: 256 x d floats stay in the second-level cache */

struct wnw__observer {
    wnw_session *s;
    struct wnw__plan_source source;
    int32_t il;           /* layer that the buffers belong to */
    int32_t n, n_window;  /* of this layer */
    const bool *heads;    /* [n_head] whose window attention is wanted; NULL = all */
    int32_t *n_entry;     /* [n_head_kv] */
    int32_t *pos;         /* [n_head_kv][n] */
    float *attn;          /* [n_head][n_window][n] */
    float *queries;       /* [n_head][n_window][d] */
    float *blocks;        /* [n_head_kv][KEY_BLOCK][d] */
    float *keys, *values; /* [n][d] of one head */
    float *theta;         /* [n_rot / 2] */
    float *mean, *cov;    /* query statistics: [n_head][d], [n_head][d][d] */
    int64_t n_stats;
    float *proj[2 * WNW_N_PROJ_NORMS]; /* of each kind [n_head_kv][n], then [n_head][n] */
    size_t cap_proj[2 * WNW_N_PROJ_NORMS];

    float *numbers[2]; /* [n_head][n] attention sums, maxima */
    size_t cap_numbers[2];
    struct wnw__second_pass *pass; /* of this observer, or NULL */

    size_t cap_mean, cap_cov;
    size_t cap_pos, cap_attn, cap_queries, cap_blocks, cap_keys, cap_values; /* elements */
};

static int grow(void *buffer, size_t *cap, size_t n, size_t size)
{
    void **p = buffer;
    n = n > 0 ? n : 1; /* of an empty layer too: NULL means no memory */
    if (n <= *cap)
        return WNW_OK;
    free(*p);
    *p = malloc(n * size);
    *cap = *p ? n : 0;
    return *p ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for %zu bytes of observations", n * size);
}

static void read_rows(const struct wnw__cache *c, const uint8_t *arena, int64_t row, int32_t n, float *dst)
{
    wnw__rows_to_f32(c->type, arena + (size_t)row * c->row_bytes, n, c->d, dst);
}

/* Rows first .. first + count - 1 of head ih; those behind its entries are 0. */
static const float *head_rows(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count, bool keys)
{
    const struct wnw__observer *ob = obs->source;
    const struct wnw__kv_layer *l = &ob->s->cache.layers[ob->il];
    float *dst = keys ? ob->keys : ob->values;
    const size_t d = (size_t)obs->n_embd_head;
    const int32_t left = ob->n_entry[ih] - first, n = left < 0 ? 0 : left < count ? left : count;
    if (n > 0)
        read_rows(&ob->s->cache, keys ? l->k : l->v, l->off[ih] + first, n, dst);
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
    struct wnw__observer *ob = obs->source;
    const int i = (int)kind < 0 || kind >= WNW_N_PROJ_NORMS ? 0 : (int)kind * 2 + of_query_heads;
    const int32_t n_row = of_query_heads ? obs->n_head : obs->n_head_kv;
    if (grow(&ob->proj[i], &ob->cap_proj[i], (size_t)n_row * (size_t)obs->n, sizeof(float)) != WNW_OK ||
        wnw__session_proj_norm(ob->s, ob->il, kind, of_query_heads, obs->n, ob->proj[i]) != WNW_OK)
        return NULL;
    return ob->proj[i];
}

static const float *observe_proj_norm(const wnw_observation *obs, wnw_proj_norm kind)
{
    return proj_norm_of(obs, kind, false);
}

static const float *observe_head_proj_norm(const wnw_observation *obs, wnw_proj_norm kind)
{
    return proj_norm_of(obs, kind, true);
}

/* Window queries of the layer as [n_head][n_window][d]; they were kept as a ring [cap][n_head][d]. */
static void gather_queries(struct wnw__observer *ob)
{
    const wnw_session *s = ob->s;
    const size_t n_head = (size_t)s->m->hp.n_head, d = (size_t)s->m->hp.n_embd_head,
                 cap = (size_t)s->window.cap, n_window = (size_t)ob->n_window;
    const size_t first = (size_t)s->window.end - n_window; /* position of the first query */
    for (size_t w = 0; w < n_window; w++) {
        const float *q = s->window.q + ((size_t)ob->il * cap + (first + w) % cap) * n_head * d;
        for (size_t h = 0; h < n_head; h++)
            memcpy(ob->queries + (h * n_window + w) * d, q + h * d, d * sizeof *q);
    }
}

/* Query heads from..until of the group ahead of it that are wanted and stand next to each other; false if
 * none is left. */
static bool next_heads(const struct wnw__observer *ob, int32_t end, int32_t *from, int32_t *until)
{
    *from = *until;
    while (*from < end && ob->heads && !ob->heads[*from])
        ++*from;
    *until = *from;
    while (*until < end && (!ob->heads || ob->heads[*until]))
        ++*until;
    return *from < end;
}

/* Attention of the window's queries for KV head ih: scores block by block, then one softmax per query. */
static void attend_window(int32_t ih, void *user)
{
    struct wnw__observer *ob = user;
    const wnw_session *s = ob->s;
    const struct wnw__cache *c = &s->cache;
    const struct wnw__kv_layer *l = &c->layers[ob->il];
    const int32_t group = s->m->hp.n_head / c->n_head_kv, n_rows = group * ob->n_window,
                  n_entry = ob->n_entry[ih];
    const size_t first = (size_t)ih * (size_t)n_rows;
    const float *q = ob->queries + first * (size_t)c->d;
    float *out = ob->attn + first * (size_t)ob->n;
    float *block = ob->blocks + (size_t)ih * KEY_BLOCK * (size_t)c->d;
    int32_t h, until = ih * group;
    if (!next_heads(ob, (ih + 1) * group, &h, &until)) {
        memset(out, 0, (size_t)n_rows * (size_t)ob->n * sizeof *out);
        return;
    }
    for (int32_t at = 0; at < n_entry; at += KEY_BLOCK) {
        const int32_t n = n_entry - at < KEY_BLOCK ? n_entry - at : KEY_BLOCK;
        read_rows(c, l->k, l->off[ih] + at, n, block);
        until = ih * group;
        while (next_heads(ob, (ih + 1) * group, &h, &until)) {
            const size_t row = (size_t)(h - ih * group) * (size_t)ob->n_window;
            wnw__mul_nt(q + row * (size_t)c->d, (until - h) * ob->n_window, block, n, c->d,
                        s->ops[ob->il].scale, out + row * (size_t)ob->n + at, ob->n);
        }
    }
    const int32_t *pos = ob->pos + (size_t)ih * (size_t)ob->n;
    for (int32_t r = 0; r < n_rows; r++) {
        float *row = out + (size_t)r * (size_t)ob->n;
        if (ob->heads && !ob->heads[ih * group + r / ob->n_window]) {
            memset(row, 0, (size_t)ob->n * sizeof *row);
            continue;
        }
        const int32_t query = s->window.end - ob->n_window + r % ob->n_window;
        for (int32_t i = n_entry - 1; i >= 0 && pos[i] > query; i--)
            row[i] = -INFINITY;
        wnw__softmax(row, n_entry);
        memset(row + n_entry, 0, (size_t)(ob->n - n_entry) * sizeof *row);
    }
}

static int observe_window(struct wnw__observer *ob, int32_t window)
{
    const wnw_session *s = ob->s;
    if (s->window.cap < window && s->window.cap < s->params.n_ctx)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "the policy wants the last %d queries, the session was told to keep %d", (int)window,
                         (int)s->window.cap);
    if (s->window.n == 0 || s->window.end != s->n_past)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "no queries were kept of the last tokens: compress right after prefill");
    ob->n_window = s->window.n < window ? s->window.n : window;
    const size_t n_rows = (size_t)s->m->hp.n_head * (size_t)ob->n_window, d = (size_t)s->cache.d;
    WNW_TRY(grow(&ob->attn, &ob->cap_attn, n_rows * (size_t)ob->n, sizeof(float)));
    WNW_TRY(grow(&ob->queries, &ob->cap_queries, n_rows * d, sizeof(float)));
    WNW_TRY(grow(&ob->blocks, &ob->cap_blocks, (size_t)s->cache.n_head_kv * KEY_BLOCK * d, sizeof(float)));
    gather_queries(ob);
    wnw__parallel(s->params.n_threads, s->cache.n_head_kv, attend_window, ob);
    return WNW_OK;
}

static int observe_query_stats(struct wnw__observer *ob, int32_t skip)
{
    const wnw_session *s = ob->s;
    const size_t n = (size_t)s->m->hp.n_head * (size_t)s->cache.d;
    if (!s->qstats)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "no statistics of queries were gathered; declare the policy before prefill");
    const int32_t skipped = wnw__qstats_params(s->qstats)->skip;
    if (skipped != skip)
        return wnw__fail(
            WNW_E_NOT_OBSERVED,
            "the policy wants query statistics without the first %d tokens, the session was told "
            "to leave out %d",
            (int)skip, (int)skipped);
    if (wnw__qstats_end(s->qstats, ob->il) != s->n_past)
        return wnw__fail(
            WNW_E_NOT_OBSERVED,
            "query statistics of layer %d end at token %d of %d; declare the policy before prefill",
            (int)ob->il, (int)wnw__qstats_end(s->qstats, ob->il), (int)s->n_past);
    WNW_TRY(grow(&ob->mean, &ob->cap_mean, n, sizeof(float)));
    WNW_TRY(grow(&ob->cov, &ob->cap_cov, n * (size_t)s->cache.d, sizeof(float)));
    ob->n_stats = wnw__qstats_get(s->qstats, ob->il, ob->mean, ob->cov);
    return WNW_OK;
}

static int list_entries(struct wnw__observer *ob)
{
    const struct wnw__cache *c = &ob->s->cache;
    const struct wnw__kv_layer *l = &c->layers[ob->il];
    ob->n = 0;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        ob->n_entry[ih] = l->len[ih];
        ob->n = l->len[ih] > ob->n ? l->len[ih] : ob->n;
    }
    WNW_TRY(grow(&ob->pos, &ob->cap_pos, (size_t)c->n_head_kv * (size_t)ob->n, sizeof *ob->pos));
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        int32_t *pos = ob->pos + (size_t)ih * (size_t)ob->n;
        if (l->len[ih] > 0)
            memcpy(pos, l->pos + l->off[ih], (size_t)l->len[ih] * sizeof *pos);
        for (int32_t i = l->len[ih]; i < ob->n; i++)
            pos[i] = -1;
    }
    return WNW_OK;
}

/* Numbers that the cache keeps per query head, as [n_head][n]; *out stays NULL where they are not kept. */
static int observe_numbers(struct wnw__observer *ob, enum wnw__aux kind, const float **out)
{
    const struct wnw__cache *c = &ob->s->cache;
    const struct wnw__kv_layer *l = &c->layers[ob->il];
    const int32_t n_head = ob->s->m->hp.n_head, group = n_head / c->n_head_kv;
    if (c->aux_planes[kind] == 0)
        return WNW_OK;
    WNW_TRY(
        grow(&ob->numbers[kind], &ob->cap_numbers[kind], (size_t)n_head * (size_t)ob->n + 1, sizeof(float)));
    for (int32_t h = 0; h < n_head; h++) {
        const int32_t ih = h / group, len = l->len[ih];
        float *to = ob->numbers[kind] + (size_t)h * (size_t)ob->n;
        memcpy(to, wnw__cache_aux(l, kind, h % group) + l->off[ih], (size_t)len * sizeof *to);
        memset(to + len, 0, (size_t)(ob->n - len) * sizeof *to);
    }
    *out = ob->numbers[kind];
    return WNW_OK;
}

static int observe_queries(const struct wnw__observer *ob, wnw_observation *obs)
{
    const struct wnw__queries *k = ob->s->trace.queries ? &ob->s->trace.queries[ob->il] : NULL;
    if (!k)
        return WNW_OK;
    if (k->n == 0 || k->end != ob->s->n_past)
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "the last tokens' queries were not kept: compress right after prefill, once");
    obs->queries = k->q;
    obs->n_queries = k->n;
    return WNW_OK;
}

static void want_heads(const struct wnw__plan_source *src, const bool *used)
{
    struct wnw__observer *ob = src->user;
    ob->heads = used;
}

static int observe_layer(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs,
                         wnw_observation *obs)
{
    struct wnw__observer *ob = src->user;
    const struct wnw__cache *c = &ob->s->cache;
    const struct wnw__hparams *hp = &ob->s->m->hp;
    const struct ggml_tensor *freqs = ob->s->m->w.rope_freqs;
    ob->il = il;
    ob->n_window = 0;
    WNW_TRY(list_entries(ob));
    wnw__rope_theta(hp, il, freqs ? freqs->data : NULL, ob->theta);
    const size_t n_row = (size_t)ob->n * (size_t)c->d;
    if (needs->flags & WNW_NEED_WINDOW_ATTN)
        WNW_TRY(observe_window(ob, needs->window));
    const bool stats = needs->flags & WNW_NEED_QUERY_STATS;
    if (stats)
        WNW_TRY(observe_query_stats(ob, needs->skip));
    if (needs->flags & WNW_NEED_KEYS)
        WNW_TRY(grow(&ob->keys, &ob->cap_keys, n_row, sizeof(float)));
    if (needs->flags & WNW_NEED_VALUES)
        WNW_TRY(grow(&ob->values, &ob->cap_values, n_row, sizeof(float)));
    *obs = (wnw_observation){
        .il = il,
        .n_layer = c->n_layer,
        .n_head = ob->s->m->hp.n_head,
        .n_head_kv = c->n_head_kv,
        .n_embd_head = c->d,
        .n = ob->n,
        .n_past = ob->s->n_past,
        .n_question = ob->s->n_question,
        .n_entry = ob->n_entry,
        .pos = ob->pos,
        .n_window = ob->n_window,
        .window_attn = needs->flags & WNW_NEED_WINDOW_ATTN ? ob->attn : NULL,
        .window_queries = needs->flags & WNW_NEED_WINDOW_ATTN ? ob->queries : NULL,
        .keys = needs->flags & WNW_NEED_KEYS ? observe_keys : NULL,
        .values = needs->flags & WNW_NEED_VALUES ? observe_values : NULL,
        .key_rows = needs->flags & WNW_NEED_KEYS ? observe_key_rows : NULL,
        .value_rows = needs->flags & WNW_NEED_VALUES ? observe_value_rows : NULL,
        .proj_norm = needs->flags & WNW_NEED_PROJ_NORM ? observe_proj_norm : NULL,
        .head_proj_norm = needs->flags & WNW_NEED_PROJ_NORM ? observe_head_proj_norm : NULL,
        .query_mean = stats ? ob->mean : NULL,
        .query_cov = stats ? ob->cov : NULL,
        .n_query_stats = stats ? ob->n_stats : 0,
        .attn_scale = ob->s->ops[il].scale,
        .rope_theta = ob->theta,
        .n_rot = ob->s->m->hp.n_rot,
        .rope_neox = ob->s->m->arch->rope_type == GGML_ROPE_TYPE_NEOX,
        .source = ob,
    };
    if (needs->flags & WNW_NEED_ATTN_SUM)
        WNW_TRY(observe_numbers(ob, WNW_AUX_ATTN_SUM, &obs->attn_sum));
    if (needs->flags & WNW_NEED_ATTN_MAX)
        WNW_TRY(observe_numbers(ob, WNW_AUX_ATTN_MAX, &obs->attn_max));
    if ((needs->flags & WNW_NEED_SECOND_PASS) && ob->pass) {
        obs->pass2_sum = ob->pass->sum[il];
        obs->pass2_max = ob->pass->max[il];
        obs->n_pass2 = ob->pass->n_queries;
    }
    if (needs->flags & WNW_NEED_QUERIES)
        WNW_TRY(observe_queries(ob, obs));
    return WNW_OK;
}

static int observe(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs,
                   wnw_observation *obs)
{
    struct wnw__observer *ob = src->user;
    const int rc = observe_layer(src, il, needs, obs);
    ob->heads = NULL;
    return rc;
}

static int second_pass(const struct wnw__plan_source *src, int32_t kind, char *warning)
{
    struct wnw__observer *ob = src->user;
    wnw__second_pass_free(ob->pass);
    return wnw__second_pass_run(&ob->pass, ob->s, (wnw_second_pass)kind, warning);
}

static bool is_skipped(const struct wnw__plan_source *src, int32_t il)
{
    const struct wnw__observer *ob = src->user;
    return wnw__layer_is_swa(&ob->s->m->hp, il);
}

static int32_t n_entry(const struct wnw__plan_source *src, int32_t il, int32_t ih)
{
    const struct wnw__observer *ob = src->user;
    return wnw_cache_n(ob->s, il, ih);
}

static int32_t n_final(const struct wnw__plan_source *src, int32_t il)
{
    const struct wnw__observer *ob = src->user;
    return ob->s->cache.layers[il].n_final;
}

static const int32_t *positions(const struct wnw__plan_source *src, int32_t il, int32_t ih)
{
    const struct wnw__observer *ob = src->user;
    return wnw_cache_positions(ob->s, il, ih);
}

/* Entries at positions that other heads have other tokens at. */
static bool is_mixed(const struct wnw__plan_source *src, int32_t il)
{
    const wnw_session *s = ((const struct wnw__observer *)src->user)->s;
    const int32_t n_mixed = il < 0 ? s->trace.n_mixed : s->cache.layers[il].n_mixed;
    const int32_t from = il < 0 ? 0 : il, to = il < 0 ? s->cache.n_layer : il + 1;
    for (int32_t i = from; i < to; i++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++)
            if (wnw_cache_n(s, i, ih) > 0 && wnw_cache_positions(s, i, ih)[0] < n_mixed)
                return true;
    return false;
}

static int perplexity(const struct wnw__plan_source *src, int32_t window, double *out)
{
    const wnw_session *s = ((const struct wnw__observer *)src->user)->s;
    return wnw__nll_perplexity(&s->nll, s->n_past, window, out);
}

int wnw__observer_new(struct wnw__observer **out, wnw_session *s)
{
    struct wnw__observer *ob = calloc(1, sizeof *ob);
    *out = NULL;
    if (ob) {
        ob->n_entry = calloc((size_t)s->cache.n_head_kv, sizeof *ob->n_entry);
        ob->theta = calloc((size_t)s->m->hp.n_rot / 2, sizeof *ob->theta);
    }
    if (!ob || !ob->n_entry || !ob->theta) {
        wnw__observer_free(ob);
        return wnw__fail(WNW_E_NOMEM, "no memory for observations");
    }
    ob->s = s;
    ob->source = (struct wnw__plan_source){
        .n_layer = s->cache.n_layer,
        .n_head = s->m->hp.n_head,
        .n_head_kv = s->cache.n_head_kv,
        .n_embd_head = s->cache.d,
        .n_past = s->n_past,
        .n_prefix = s->n_prefix < s->n_past ? s->n_prefix : s->n_past,
        .n_moved = s->n_moved,
        .is_mixed = is_mixed,
        .entry_bytes = 2 * s->cache.row_bytes,
        .profile = s->profile,
        .user = ob,
        .is_skipped = is_skipped,
        .n_entry = n_entry,
        .positions = positions,
        .n_final = n_final,
        .perplexity = perplexity,
        .second_pass = second_pass,
        .want_heads = want_heads,
        .observe = observe,
    };
    *out = ob;
    return WNW_OK;
}

void wnw__observer_free(struct wnw__observer *ob)
{
    if (!ob)
        return;
    free(ob->n_entry);
    free(ob->pos);
    free(ob->attn);
    free(ob->queries);
    free(ob->blocks);
    free(ob->keys);
    free(ob->values);
    for (int i = 0; i < 2 * WNW_N_PROJ_NORMS; i++)
        free(ob->proj[i]);
    free(ob->theta);
    free(ob->numbers[0]);
    free(ob->numbers[1]);
    free(ob->mean);
    free(ob->cov);
    wnw__second_pass_free(ob->pass);
    free(ob);
}

const struct wnw__plan_source *wnw__observer_source(struct wnw__observer *ob)
{
    return &ob->source;
}
