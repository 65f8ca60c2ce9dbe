/* SPDX-License-Identifier: MIT */
/*
 * The attention that the entries of sampled tokens get when the program feeds these tokens a second time, after the sequence. A
 * session's second pass does the same with WNW_PASS_SAMPLE (session/second_pass.h). The program feeds them before the last tokens of a
 * prompt, whose logits it wants, and then removes them. The attention is kept for the next compression.
 */
#include "base/err.h"
#include "bridge/bridge_impl.h"
#include "method/sample_places.h"
#include "observe/queries.h"
#include "observe/source.h"
#include "observe/window.h"
#include "winnow_bridge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Queries whose attention over a layer is there at once: a prompt may be long, and so a row of it. */
enum { TOGETHER = 32 };

struct wnw_bridge_sample {
    const struct wnw__bridge_cache *cache; /* compared, never followed */
    int32_t n, n_fed, n_layer;
    wnw_sample_place place[WNW_SAMPLE_PLACES]; /* [n_places] among the tokens of the sequence */
    int32_t n_places;
    int32_t *cell, *order; /* [n] of the sampled tokens; when each was written, which tells whose it is */
    float **sum, **max;    /* [n_layer], each [n_head][n]; NULL in layers that policies leave alone */
    struct wnw_bridge_sample *next; /* of the layers on another device; NULL: no other */
};

bool wnw__bridge_sample_is_of(const struct wnw_bridge_sample *s, const struct wnw__bridge_cache *cache)
{
    return s->cache == cache;
}

const struct wnw_bridge_sample *wnw__bridge_sample_next(const struct wnw_bridge_sample *s)
{
    return s->next;
}

void wnw__bridge_sample_put(struct wnw_bridge_sample **list, struct wnw_bridge_sample *s)
{
    s->next = *list;
    *list = s;
}

/* Which of the sampled tokens one is of the sequence; -1: none. */
static int32_t number_of(const struct wnw_bridge_sample *s, int32_t token)
{
    return wnw__sample_number(s->place, s->n_places, token);
}

/* ---- Taking it ---- */

/* Fed queries of one of the attentions that read a layer, some of them at once. */
struct fed {
    const struct wnw__bridge_sequence *s;
    int32_t reader;
    size_t row; /* numbers of one token */
    float *one; /* [row] */
    bool *lost; /* one was not kept, or has a number beyond the range of its type */
};

static const float *fed_at(const void *of, int32_t il, int32_t pos)
{
    const struct fed *f = of;
    const struct wnw__bridge_layer *l = f->s->layer[il];
    const void *kept = wnw__bridge_query(l, f->s->live->cell[pos], f->reader);
    bool good = kept != NULL;
    if (good && l->queries.type == WNW_KV_F32)
        return kept;
    good = good && wnw__queries_widen(kept, 1, (int32_t)f->row, f->one);
    if (!good)
        memset(f->one, 0, f->row * sizeof *f->one);
    *f->lost = *f->lost || !good;
    return f->one;
}

/* Adds what rows of attention give the sampled entries. */
static void add_rows(const struct wnw_bridge_sample *to, const wnw_observation *obs)
{
    const int32_t group = obs->n_head / obs->n_head_kv;
    for (int32_t h = 0; h < obs->n_head; h++) {
        const int32_t ih = h / group, *pos = obs->pos + (int64_t)ih * obs->n;
        float *sum = to->sum[obs->il] + (int64_t)h * to->n, *max = to->max[obs->il] + (int64_t)h * to->n;
        for (int32_t e = 0; e < obs->n_entry[ih]; e++) {
            const int32_t i = number_of(to, pos[e]);
            for (int32_t r = 0; i >= 0 && r < obs->n_window; r++) {
                const float x = obs->window_attn[((int64_t)h * obs->n_window + r) * obs->n + e];
                sum[i] += x;
                max[i] = fmaxf(max[i], x);
            }
        }
    }
}

int wnw__bridge_sample_take(struct wnw__bridge_sequence *s, struct wnw__source *source, wnw_observation *obs)
{
    const struct wnw_bridge_sample *to = s->taking;
    const int32_t n = s->live->n;
    const size_t row = (size_t)obs->n_head * (size_t)obs->n_embd_head;
    bool lost = false;
    int rc = WNW_OK;
    float *one = malloc((row + 1) * sizeof *one);
    if (!one)
        return wnw__fail(WNW_E_NOMEM, "no memory for a query");
    for (int32_t reader = 0; reader < s->layer[obs->il]->facts.n_reader; reader++)
        for (int32_t at = n - to->n_fed; rc == WNW_OK && at < n; at += TOGETHER) {
            const int32_t some = n - at < TOGETHER ? n - at : TOGETHER;
            const struct fed of = {.s = s, .reader = reader, .row = row, .one = one, .lost = &lost};
            const struct wnw__window_queries queries = {.of = &of, .at = fed_at, .n = some, .end = at + some};
            rc = wnw__window_attend(source, &queries, NULL, obs);
            if (rc == WNW_OK)
                add_rows(to, obs);
        }
    free(one);
    if (rc == WNW_OK && lost)
        rc = wnw__fail(WNW_E_NOT_OBSERVED,
                       "queries of layer %d were not kept of tokens that were fed again, or are beyond the "
                       "range of f16",
                       (int)obs->il);
    return rc;
}

/* ---- Showing it ---- */

/* How much further on tokens were when the sample was taken: then a header was there that a policy may not see now. */
static int32_t shift_of(const struct wnw_bridge_sample *from, const struct wnw__bridge_live *live)
{
    int32_t first = 0;
    while (first < live->n && live->cell[first] != from->cell[0])
        first++;
    return from->place[0].from - first;
}

/* Whether the tokens that the sample has are those of the sequence. */
static bool is_of(const struct wnw_bridge_sample *from, const struct wnw__bridge_live *live, int32_t shift)
{
    int32_t i = 0;
    for (int32_t k = 0; k < from->n_places; k++)
        for (int32_t t = from->place[k].from - shift; t < from->place[k].to - shift; t++, i++) {
            const struct wnw__bridge_note *note = t < live->n ? wnw__bridge_note_of(live, t) : NULL;
            if (!note || live->cell[t] != from->cell[i] || note->order != from->order[i])
                return false;
        }
    return true;
}

int wnw__bridge_sample_show(struct wnw__bridge_sequence *s, wnw_observation *obs)
{
    const struct wnw__bridge_live *live = s->live;
    const struct wnw_bridge_sample *from = live->sample;
    if (!from || from->cache != live->cache || obs->il >= from->n_layer || !from->max[obs->il])
        return wnw__fail(WNW_E_NOT_OBSERVED,
                         "no sample of this prompt was fed a second time: that is before the last of several "
                         "batches in which it is read");
    const int32_t shift = shift_of(from, live), group = obs->n_head / obs->n_head_kv;
    if (!is_of(from, live, shift))
        return wnw__fail(WNW_E_NOT_OBSERVED, "the sample that was fed again is of other tokens");
    float *sum = wnw__bridge_room(s, WNW_ROOM_PASS_SUM, (size_t)obs->n_head * (size_t)obs->n),
          *max = wnw__bridge_room(s, WNW_ROOM_PASS_MAX, (size_t)obs->n_head * (size_t)obs->n);
    if (!sum || !max)
        return WNW_E_NOMEM;
    for (int32_t h = 0; h < obs->n_head; h++)
        for (int32_t e = 0; e < obs->n; e++) {
            const int32_t *pos = obs->pos + (int64_t)(h / group) * obs->n;
            const int32_t i = e < obs->n_entry[h / group] ? number_of(from, pos[e] + shift) : -1;
            sum[(int64_t)h * obs->n + e] = i >= 0 ? from->sum[obs->il][(int64_t)h * from->n + i] : 0.0f;
            max[(int64_t)h * obs->n + e] = i >= 0 ? from->max[obs->il][(int64_t)h * from->n + i] : 0.0f;
        }
    for (int32_t k = 0; k < from->n_places; k++) {
        const wnw_sample_place p = from->place[k];
        s->sampled[k] =
            (wnw_sample_place){.lead = p.lead - shift, .from = p.from - shift, .to = p.to - shift};
    }
    obs->pass2_sum = sum;
    obs->pass2_max = max;
    obs->n_pass2 = from->n_fed;
    obs->pass2_places = s->sampled;
    obs->n_pass2_places = from->n_places;
    return WNW_OK;
}

/* ---- Making it ---- */

static void free_one(struct wnw_bridge_sample *s)
{
    for (int32_t il = 0; il < s->n_layer; il++) {
        free(s->sum ? s->sum[il] : NULL);
        free(s->max ? s->max[il] : NULL);
    }
    free(s->sum);
    free(s->max);
    free(s->cell);
    free(s->order);
    free(s);
}

void wnw_bridge_sample_free(wnw_bridge_sample *s)
{
    while (s) {
        struct wnw_bridge_sample *next = s->next;
        free_one(s);
        s = next;
    }
}

static int new_sample(struct wnw_bridge_sample **out, const struct wnw__bridge_backend *b,
                      const struct wnw__bridge_live *live, const wnw_bridge_sample_of *of)
{
    struct wnw_bridge_sample *s = *out = calloc(1, sizeof *s);
    if (!s)
        return wnw__fail(WNW_E_NOMEM, "no memory for a sample");
    s->cache = live->cache;
    s->n_fed = of->n_fed;
    s->n_places = of->n_places;
    for (int32_t k = 0; k < of->n_places; k++) {
        s->place[k] = of->places[k];
        s->n += of->places[k].to - of->places[k].from;
    }
    s->n_layer = wnw__bridge_n_numbers(b);
    s->cell = malloc((size_t)s->n * sizeof *s->cell);
    s->order = malloc((size_t)s->n * sizeof *s->order);
    s->sum = calloc((size_t)s->n_layer + 1, sizeof *s->sum);
    s->max = calloc((size_t)s->n_layer + 1, sizeof *s->max);
    if (!s->cell || !s->order || !s->sum || !s->max)
        return wnw__fail(WNW_E_NOMEM, "no memory for a sample of %d tokens", (int)s->n);
    for (int32_t t = s->place[0].from; t < s->place[s->n_places - 1].to; t++) {
        const struct wnw__bridge_note *note = wnw__bridge_note_of(live, t);
        const int32_t i = number_of(s, t);
        if (i < 0)
            continue;
        if (!note || note->missed)
            return wnw__fail(WNW_E_NOT_OBSERVED,
                             "token %d was not observed: its policy was set after it was read, or memory ran "
                             "out",
                             (int)t);
        s->cell[i] = live->cell[t];
        s->order[i] = note->order;
    }
    return WNW_OK;
}

/* Takes the attention in a layer; the observation is made for that alone. */
static int take_layer(struct wnw_bridge_sample *s, struct wnw__plan_source *src, int32_t il)
{
    const size_t n = (size_t)src->shape.n_head * (size_t)s->n + 1;
    const wnw_needs none = {0};
    wnw_observation obs;
    s->sum[il] = calloc(n, sizeof **s->sum);
    s->max[il] = calloc(n, sizeof **s->max);
    if (!s->sum[il] || !s->max[il])
        return wnw__fail(WNW_E_NOMEM, "no memory for a sample of %d tokens", (int)s->n);
    return src->observe(src, il, &none, NULL, &obs);
}

/* Takes it in all layers that have the shape of one. */
static int take_like(struct wnw_bridge_sample *s, struct wnw__bridge_backend *b,
                     const struct wnw__bridge_live *live, const struct wnw__bridge_layer *like)
{
    struct wnw__bridge_sequence seq;
    struct wnw__plan_source src = {0};
    int rc = wnw__bridge_sequence_list(&seq, b, live, like);
    seq.taking = s;
    if (rc == WNW_OK)
        rc = wnw__bridge_source(&src, &seq);
    for (int32_t il = 0; rc == WNW_OK && il < seq.shape.n_layer; il++)
        if (wnw__layer_takes_part(&seq.shape, il))
            rc = take_layer(s, &src, il);
    wnw__source_close(&src);
    wnw__bridge_sequence_release(&seq);
    return rc;
}

/* Of places that are in order and hold something each. */
static int check(const wnw_bridge_sample_of *of)
{
    bool good = of->n_fed >= 1 && of->n_fed < of->n_cells && of->places && of->n_places >= 1 &&
                of->n_places <= WNW_SAMPLE_PLACES;
    int32_t at = 0;
    for (int32_t k = 0; good && k < of->n_places; at = of->places[k++].to)
        good = of->places[k].from >= at && of->places[k].to > of->places[k].from &&
               of->places[k].to <= of->n_cells - of->n_fed;
    if (!good)
        return wnw__fail(
            WNW_E_ARG,
            "%d places of %d tokens, with %d that were fed after them, are no sample: give 1 to %d "
            "places, in order, each not empty, before what was fed",
            (int)of->n_places, (int)of->n_cells, (int)of->n_fed, WNW_SAMPLE_PLACES);
    return WNW_OK;
}

int wnw__bridge_sample_new(struct wnw_bridge_sample **out, struct wnw__bridge_backend *b,
                           const struct wnw__bridge_live *live, const wnw_bridge_sample_of *of)
{
    struct wnw_bridge_sample *s = NULL;
    int rc = check(of);
    if (rc == WNW_OK)
        rc = new_sample(&s, b, live, of);
    if (rc == WNW_OK && b->far)
        rc = b->far->plan_begin(b, live->cache);
    for (int32_t i = 0; rc == WNW_OK && i < live->cache->n_layer; i++) {
        const struct wnw__bridge_layer *l = live->cache->layers[i];
        if (wnw__bridge_acts_on(b, l) && !s->max[wnw__bridge_number(b, l)])
            rc = take_like(s, b, live, l);
    }
    if (b->far)
        rc = b->far->plan_end(b, rc, false);
    if (rc != WNW_OK) {
        wnw_bridge_sample_free(s);
        s = NULL;
    }
    *out = s;
    return rc;
}
