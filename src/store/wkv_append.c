/* SPDX-License-Identifier: MIT */
/* A part of a stored session after what another session has read. */
#include "session/compact/compact.h"
#include "session/compact/turn.h"
#include "store/wkv.h"

#include <stdlib.h>
#include <string.h>

static int check_form(const wnw_session *s, const struct wnw_stored *st)
{
    const struct wnw__cache *c = &s->cache;
    const struct wnw__wkv_meta *m = &st->meta;
    if (c->n_tail > 0 || m->kv_tail > 0)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "a cache with a tail in f16 (--kv-tail) is not added to another one");
    if (c->type != m->kv_type || c->k_block != m->k_block || c->v_block != m->v_block)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "the session's cache is %s%s, and the stored one %s%s: both must be stored alike",
                         wnw_kv_type_name(c->type), c->k_block > 0 ? ", rotated" : "",
                         wnw_kv_type_name(m->kv_type), m->k_block > 0 ? ", rotated" : "");
    return wnw__wkv_has_new_positions(st)
               ? wnw__fail(WNW_E_UNSUPPORTED,
                           "its entries have new positions (+rerotate), so that a token has "
                           "not one position in all heads")
               : WNW_OK;
}

static int check(const wnw_session *s, const struct wnw_stored *st, int32_t from, int32_t n)
{
    if (from < 0 || n < 1 || n > st->n_tokens || from > st->n_tokens - n)
        return wnw__fail(WNW_E_RANGE, "%d tokens from %d on, and the stored session has read %d", (int)n,
                         (int)from, (int)st->n_tokens);
    WNW_TRY(wnw__wkv_unchanged(st));
    WNW_TRY(wnw_stored_check_model(st, s->m));
    WNW_TRY(wnw__renumber_check(s));
    WNW_TRY(check_form(s, st));
    return wnw__session_check_room(s, n);
}

/* Tokens `from` .. `from` + n - 1 of one cache, in a layer, and where they go. */
struct part {
    struct wnw__cache *to;
    const struct wnw__cache *of;
    int32_t il, from, n, at; /* at: the position of the first one */
    struct wnw__turn turn;
    float *key; /* [d] scratch */
};

/* Copies an entry to one that was made for its token. */
static void copy_entry(const struct part *p, int32_t ih, int32_t i, int32_t to)
{
    const struct wnw__cache *c = p->to;
    const struct wnw__kv_layer *l = &c->layers[p->il], *of = &p->of->layers[p->il];
    const size_t row = (size_t)(l->off[ih] + to), of_row = (size_t)(of->off[ih] + i);
    memcpy(l->k + row * c->row_bytes, of->k + of_row * c->row_bytes, c->row_bytes);
    memcpy(l->v + row * c->v_row_bytes, of->v + of_row * c->v_row_bytes, c->v_row_bytes);
    if (p->turn.delta != 0) {
        wnw__cache_read(p->of, p->il, WNW_KEYS, ih, i, 1, p->key);
        wnw__turn_key(&p->turn, p->key);
        wnw__cache_write(p->to, p->il, WNW_KEYS, ih, to, 1, p->key);
    }
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        for (int32_t plane = 0; c->aux_planes[kind] == p->of->aux_planes[kind] && plane < c->aux_planes[kind];
             plane++)
            wnw__cache_aux(l, (enum wnw__aux)kind, plane)[row] =
                wnw__cache_aux(of, (enum wnw__aux)kind, plane)[of_row];
}

/* Fills the new entries of a head, one for each token, and lists those that are kept; returns their number. */
static int32_t fill_head(const struct part *p, int32_t ih, int32_t *keep)
{
    const struct wnw__kv_layer *of = &p->of->layers[p->il];
    const int32_t n_before = p->to->layers[p->il].len[ih] - p->n, *pos = of->pos + of->off[ih];
    int32_t n = 0;
    while (n < n_before) {
        keep[n] = n;
        n++;
    }
    for (int32_t i = wnw__cache_find(of, ih, p->from); i < of->len[ih] && pos[i] < p->from + p->n; i++) {
        keep[n] = n_before + pos[i] - p->from;
        copy_entry(p, ih, i, keep[n++]);
    }
    return n;
}

/* room, n_keep and keep: for the lists of all heads. */
static int add_to_heads(const struct part *p, int32_t *room, int32_t *n_keep, const int32_t **keep)
{
    struct wnw__cache *c = p->to;
    int32_t *list = room;
    bool all = true;
    WNW_TRY(wnw__cache_reserve_layer(c, p->il, p->n, true));
    wnw__cache_commit_layer(c, p->il, p->at, p->n);
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        n_keep[ih] = fill_head(p, ih, list);
        keep[ih] = list;
        all = all && n_keep[ih] == c->layers[p->il].len[ih];
        list += c->layers[p->il].len[ih];
    }
    return all ? WNW_OK : wnw__cache_keep_layer(c, p->il, keep, n_keep);
}

static int add_layer(const struct part *p)
{
    const struct wnw__cache *c = p->to;
    const int32_t n_head = c->n_head_kv;
    size_t n_all = 0;
    for (int32_t ih = 0; ih < n_head; ih++)
        n_all += (size_t)c->layers[p->il].len[ih] + (size_t)p->n;
    int32_t *room = malloc(n_all * sizeof *room), *n_keep = calloc((size_t)n_head, sizeof *n_keep);
    const int32_t **keep = calloc((size_t)n_head, sizeof *keep);
    const int rc = room && n_keep && keep ? add_to_heads(p, room, n_keep, keep)
                                          : wnw__fail(WNW_E_NOMEM, "no memory for %d tokens", (int)p->n);
    free(room);
    free(n_keep);
    free(keep);
    return rc;
}

/* Adds a part of the session t to s. */
static int add(wnw_session *s, const wnw_session *t, int32_t from, int32_t n)
{
    const size_t n_pair = (size_t)s->m->hp.n_rot / 2;
    float *theta = malloc((3 * n_pair + (size_t)s->cache.d) * sizeof *theta);
    struct part p = {.to = &s->cache, .of = &t->cache, .from = from, .n = n, .at = s->n_past};
    int rc =
        theta ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory to turn keys of %d elements", (int)s->cache.d);
    if (rc == WNW_OK && t->cache.aux_planes[WNW_AUX_BIAS] > s->cache.aux_planes[WNW_AUX_BIAS])
        rc = wnw__cache_set_aux(&s->cache, WNW_AUX_BIAS, t->cache.aux_planes[WNW_AUX_BIAS]);
    for (int32_t il = 0; rc == WNW_OK && il < s->cache.n_layer; il++) {
        p.il = il;
        p.key = theta + 3 * n_pair;
        p.turn = (struct wnw__turn){
            .theta = theta, .cs = theta + n_pair, .n_pair = s->m->hp.n_rot / 2, .neox = wnw__turns_halves(s)};
        wnw__turn_angles(s, il, theta);
        wnw__turn_set(&p.turn, s->n_past - from);
        rc = add_layer(&p);
    }
    free(theta);
    return rc;
}

int wnw_session_append(wnw_session *s, const wnw_stored *st, int32_t from, int32_t n)
{
    wnw_session *t = NULL;
    WNW_REQUIRE(s);
    WNW_REQUIRE(st);
    WNW_TRY(check(s, st, from, n));
    WNW_TRY(wnw__token_log_reserve(&s->token_log, s->n_past, n));
    const wnw_stored_session_params how = {WNW_INIT(wnw_stored_session_params), .room = 1};
    int rc = wnw_stored_session(&t, st, s->engine, &how);
    rc = rc == WNW_OK ? add(s, t, from, n) : rc;
    wnw_session_free(t);
    if (rc != WNW_OK)
        return rc;
    wnw__recorders_tell(&s->recorders, 0, s->cache.n_layer, WNW_EVENT_RENUMBERED);
    wnw__token_log_add(&s->token_log, s->n_past, st->tokens + from, n);
    s->n_past += n;
    s->n_judged = s->n_past;
    s->n_question = s->n_run = 0;
    s->has_logits = false;
    return WNW_OK;
}
