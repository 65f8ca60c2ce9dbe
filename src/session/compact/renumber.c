/* SPDX-License-Identifier: MIT */
/*
 * Positions inside the cache, as StreamingLLM (arXiv 2309.17453) counts them in its window; kvpress calls
 * this key re-rotation. After an eviction the n kept entries of every head get the positions 0 .. n - 1 in
 * their order and the next token gets n, so that no distance is ever longer than the cache and a timeline
 * never ends. Keys are stored after RoPE, so each key is turned by (new - old) theta; values stay.
 *
 * All heads of all layers must hold the same number of entries. Where they hold different tokens, a new position
 * means another token in every head. The positions up to the last such one are marked (n_ambiguous of the layer,
 * n_ambiguous of the ids for the model), and code that looks for one token in all heads refuses them. Turning rounds
 * a key to the cache's type once more: with float32, attention sums and logits show no difference; with quantised
 * keys each turn adds their rounding error. Recorded queries are dropped; attention sums stay.
 */
#include "base/parallel.h"
#include "session/compact/compact.h"
#include "session/compact/turn.h"
#include "session/session.h"

#include <stdlib.h>
#include <string.h>

int wnw__renumber_check(const wnw_session *s)
{
    if (s->m->hp.rope_unknown)
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "%s does not turn all keys by plain RoPE: kept tokens cannot get new positions",
                         s->m->arch->name);
    if (s->recurrent)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "the recurrent layers of this model count original positions: kept tokens cannot get "
            "new ones");
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        if (!wnw__layer_takes_part(&s->shape.model, il))
            return wnw__fail(
                WNW_E_UNSUPPORTED,
                "layer %d of the model has a sliding window, which counts in original positions: "
                "kept tokens cannot get new ones",
                (int)il);
    return WNW_OK;
}

int wnw__renumber_check_count(int32_t il, int32_t ih, int32_t n, int32_t n_first)
{
    if (n == n_first)
        return WNW_OK;
    return wnw__fail(
        WNW_E_UNSUPPORTED,
        "layer %d head %d keeps %d entries and the first head %d; new positions need the same number "
        "everywhere",
        (int)il, (int)ih, (int)n, (int)n_first);
}

static int check_counts(const wnw_session *s)
{
    for (int32_t il = 0; il < s->cache.n_layer; il++)
        for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++)
            WNW_TRY(wnw__renumber_check_count(il, ih, wnw_cache_n(s, il, ih), wnw_cache_n(s, 0, 0)));
    return WNW_OK;
}

/* ---- Which tokens ---- */

/* The least rank from which on two ascending lists of n positions are equal and name no position below
 * n_ambiguous; n if there is none. */
static int32_t common_from(const int32_t *a, const int32_t *b, int32_t n, int32_t n_ambiguous)
{
    while (n > 0 && a[n - 1] == b[n - 1] && a[n - 1] >= n_ambiguous)
        n--;
    return n;
}

static void mark_ambiguous(wnw_session *s, int32_t n)
{
    const int32_t *first = wnw_cache_positions(s, 0, 0);
    struct wnw__token_log *ids = &s->token_log;
    int32_t of_model = 0;
    for (int32_t il = 0; il < s->cache.n_layer; il++) {
        struct wnw__kv_layer *l = &s->cache.layers[il];
        int32_t of_layer = 0;
        for (int32_t ih = 0; ih < s->cache.n_head_kv; ih++) {
            const int32_t *pos = l->pos + l->off[ih];
            const int32_t in_layer = common_from(pos, l->pos + l->off[0], n, l->n_ambiguous);
            const int32_t in_model = common_from(pos, first, n, ids->n_ambiguous);
            of_layer = in_layer > of_layer ? in_layer : of_layer;
            of_model = in_model > of_model ? in_model : of_model;
        }
        l->n_ambiguous = of_layer;
    }
    for (int32_t i = 0; i < n; i++) /* positions ascend, so no id is overwritten before it is read */
        ids->tokens[i] = i < of_model ? -1 : ids->tokens[first[i]];
    ids->n_ambiguous = of_model;
}

/* ---- Keys ---- */

/* A unit of work is the keys of one head of one layer; it has a piece of `room` of its own. */
struct turning {
    wnw_session *s;
    const float *theta; /* [n_layer][n_pair] */
    float *room;        /* [n_layer * n_head_kv][n_room]: cosines and sines, one key */
    size_t n_room;
    int32_t n_pair;
    bool neox;
};

static void turn_head(int32_t i_head, void *user)
{
    const struct turning *w = user;
    struct wnw__cache *c = &w->s->cache;
    const int32_t il = i_head / c->n_head_kv, ih = i_head % c->n_head_kv;
    struct wnw__kv_layer *l = &c->layers[il];
    float *cs = w->room + (size_t)i_head * w->n_room, *key = cs + 2 * (size_t)w->n_pair;
    struct wnw__turn t = {
        .theta = w->theta + (size_t)il * (size_t)w->n_pair, .cs = cs, .n_pair = w->n_pair, .neox = w->neox};
    for (int32_t i = 0; i < l->len[ih]; i++) {
        int32_t *pos = &l->pos[l->off[ih] + i];
        if (*pos == i)
            continue;
        wnw__turn_set(&t, i - *pos);
        wnw__cache_read(c, il, WNW_KEYS, ih, i, 1, key);
        wnw__turn_key(&t, key);
        wnw__cache_write(c, il, WNW_KEYS, ih, i, 1, key);
        *pos = i;
    }
}

static int turn_keys(wnw_session *s, int32_t n)
{
    const size_t n_layer = (size_t)s->cache.n_layer, n_pair = (size_t)s->m->hp.n_rot / 2;
    const int32_t n_head = s->cache.n_layer * s->cache.n_head_kv;
    struct turning w = {.s = s,
                        .n_room = 2 * n_pair + (size_t)s->cache.d,
                        .n_pair = s->m->hp.n_rot / 2,
                        .neox = wnw__turns_halves(s)};
    float *theta = malloc((n_layer * n_pair + (size_t)n_head * w.n_room + 1) * sizeof *theta);
    if (!theta)
        return wnw__fail(WNW_E_NOMEM, "no memory to turn keys of %d elements", (int)s->cache.d);
    for (size_t il = 0; il < n_layer; il++)
        wnw__turn_angles(s, (int32_t)il, theta + il * n_pair);
    mark_ambiguous(s, n); /* here positions are still the old ones, and nothing can fail any more */
    w.theta = theta;
    w.room = theta + n_layer * n_pair;
    wnw__parallel(wnw__engine_pool(s->engine), n_head, turn_head, &w);
    free(theta);
    return WNW_OK;
}

/* A ratio counts at most about this number of tokens: counts have 32 bits, and a timeline does not end. */
enum { MOST_COUNTED = 1 << 30 };

int wnw_session_renumber(wnw_session *s)
{
    WNW_REQUIRE(s);
    struct wnw__rules *r = &s->rules;
    WNW_TRY(wnw__renumber_check(s));
    WNW_TRY(check_counts(s));
    const int32_t n = wnw_cache_n(s, 0, 0), n_dropped = s->n_past - n;
    if (n_dropped == 0)
        return WNW_OK;
    WNW_TRY(turn_keys(s, n));
    wnw__recorders_tell(&s->recorders, 0, s->cache.n_layer, WNW_EVENT_RENUMBERED);
    s->n_question = 0;
    s->n_prefix = 0; /* some tokens of the template may be gone */
    r->n_uncounted = r->n_uncounted > -MOST_COUNTED ? r->n_uncounted - n_dropped
                                                    : r->n_uncounted; /* ratios count all tokens read */
    s->pos_shift += n_dropped;
    s->n_renumbered = n;
    s->n_past = s->n_judged = n;
    return WNW_OK;
}
