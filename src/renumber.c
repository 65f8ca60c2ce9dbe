/* SPDX-License-Identifier: MIT */
/*
 * Positions inside the cache: what StreamingLLM (arXiv 2309.17453) does with its window, and what kvpress
 * calls key re-rotation. After an eviction the kept tokens get the positions 0 .. n - 1 in their order and
 * the next token gets n, so that no distance is ever longer than the cache and a timeline never ends. Keys
 * are stored after RoPE: each is turned by (new - old) theta, values stay.
 *
 * Only where all heads of all layers hold the same tokens. With other layouts a new position would stand for
 * another token in every head, and a second pass or a plan could no longer say which. Turning rounds to the
 * cache's type once more: with float32 sums of attention and logits do not notice, with quantised keys it
 * adds their rounding error each time. What was observed of queries is gone, attention sums stay.
 */
#include "qstats.h"
#include "rope.h"
#include "session.h"

#include "kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int check_uniform(const wnw_session *s)
{
    const struct wnw__cache *c = &s->cache;
    const int32_t n = wnw_cache_n(s, 0, 0);
    if (s->hidden)
        return wnw__fail(WNW_E_UNSUPPORTED, "entries are hidden by a mask; positions cannot change");
    for (int32_t il = 0; il < c->n_layer; il++) {
        if (c->layers[il].n_swa > 0)
            return wnw__fail(WNW_E_UNSUPPORTED,
                             "layer %d has a sliding window, which counts in original positions", (int)il);
        for (int32_t ih = 0; ih < c->n_head_kv; ih++)
            if (wnw_cache_n(s, il, ih) != n ||
                (n > 0 && memcmp(wnw_cache_positions(s, il, ih), wnw_cache_positions(s, 0, 0),
                                 (size_t)n * sizeof(int32_t)) != 0))
                return wnw__fail(WNW_E_UNSUPPORTED,
                                 "layer %d head %d holds other tokens than the first; new positions need a "
                                 "policy that keeps the same tokens everywhere, such as streaming_llm",
                                 (int)il, (int)ih);
    }
    return WNW_OK;
}

/* Angles of one distance. */
struct turn {
    const float *theta; /* [n_pair] */
    float *cs;          /* [n_pair][2] cosine, sine */
    int32_t n_pair, delta;
    bool neox;
};

static void set_delta(struct turn *t, int32_t delta)
{
    if (t->delta == delta)
        return;
    t->delta = delta;
    for (int32_t i = 0; i < t->n_pair; i++) {
        const double angle = (double)delta * (double)t->theta[i];
        t->cs[2 * i] = (float)cos(angle);
        t->cs[2 * i + 1] = (float)sin(angle);
    }
}

static void turn_key(const struct turn *t, float *k)
{
    for (int32_t i = 0; i < t->n_pair; i++) {
        float *a = k + (t->neox ? i : 2 * i), *b = k + (t->neox ? i + t->n_pair : 2 * i + 1);
        const float x = *a, y = *b, c = t->cs[2 * i], s = t->cs[2 * i + 1];
        *a = c * x - s * y;
        *b = s * x + c * y;
    }
}

static void renumber_layer(wnw_session *s, int32_t il, struct turn *t, float *key)
{
    const struct wnw__cache *c = &s->cache;
    struct wnw__kv_layer *l = &s->cache.layers[il];
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        for (int32_t i = 0; i < l->len[ih]; i++) {
            int32_t *pos = &l->pos[l->off[ih] + i];
            uint8_t *row = l->k + (size_t)(l->off[ih] + i) * c->row_bytes;
            if (*pos == i)
                continue;
            set_delta(t, i - *pos);
            wnw__rows_to_f32(c->type, row, 1, c->d, key);
            turn_key(t, key);
            wnw__rows_from_f32(c->type, key, 1, c->d, row);
            *pos = i;
        }
}

int wnw_session_renumber(wnw_session *s)
{
    const struct wnw__hparams *hp = &s->m->hp;
    const struct ggml_tensor *freqs = s->m->w.rope_freqs;
    const int32_t n_pair = hp->n_rot / 2;
    WNW_TRY(check_uniform(s));
    const int32_t n = wnw_cache_n(s, 0, 0);
    if (n == s->n_past)
        return WNW_OK;
    float *buffer = malloc(((size_t)n_pair * 3 + (size_t)s->cache.d + 1) * sizeof *buffer);
    if (!buffer)
        return wnw__fail(WNW_E_NOMEM, "no memory to turn keys of %d elements", (int)s->cache.d);
    float *theta = buffer, *cs = theta + n_pair, *key = cs + 2 * (size_t)n_pair;
    const int32_t *pos = wnw_cache_positions(s, 0, 0);
    for (int32_t i = 0; i < n; i++) /* positions ascend: none is overwritten before it is read */
        s->trace.tokens[i] = s->trace.tokens[pos[i]];
    for (int32_t il = 0; il < s->cache.n_layer; il++) {
        struct turn t = {
            .theta = theta, .cs = cs, .n_pair = n_pair, .neox = s->m->arch->rope_type == GGML_ROPE_TYPE_NEOX};
        wnw__rope_theta(hp, il, freqs ? freqs->data : NULL, theta);
        renumber_layer(s, il, &t, key);
    }
    free(buffer);
    wnw__trace_drop_queries(&s->trace, 0, s->cache.n_layer);
    wnw__qstats_reset(s->qstats);
    s->window.n = 0;
    s->nll.n = s->nll.end = 0;
    s->n_question = 0;
    s->n_prefix = 0;                    /* some of it may be gone */
    s->rules.n_before -= s->n_past - n; /* so that ratios still count all tokens read */
    s->n_past = n;
    return WNW_OK;
}
