/* SPDX-License-Identifier: MIT */
/* Taking a sample of a sequence (sequence/sample.c): which tokens it has, and their attention in each layer that policies act on. */
#include "bridge/sequence/sequence.h"

#include "bridge/sequence/sample.h"
#include "observe/source.h"

#include <stdlib.h>

static void free_one(struct wnw_bridge_sample *s)
{
    for (int32_t il = 0; il < s->n_layer; il++) {
        free(s->sum ? s->sum[il] : NULL);
        free(s->max ? s->max[il] : NULL);
    }
    free(s->sum);
    free(s->max);
    free(s->cell);
    free(s->write_order);
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
                      const struct wnw__bridge_sequence_cells *sequence_cells, const wnw_bridge_sample_of *of)
{
    struct wnw_bridge_sample *s = *out = calloc(1, sizeof *s);
    if (!s)
        return wnw__fail(WNW_E_NOMEM, "no memory for a sample");
    s->cache = sequence_cells->cache;
    s->n_fed = of->n_fed;
    s->n_places = of->n_places;
    for (int32_t k = 0; k < of->n_places; k++) {
        s->place[k] = of->places[k];
        s->n += of->places[k].to - of->places[k].from;
    }
    s->n_layer = wnw__bridge_n_numbers(b);
    s->cell = malloc((size_t)s->n * sizeof *s->cell);
    s->write_order = malloc((size_t)s->n * sizeof *s->write_order);
    s->sum = calloc((size_t)s->n_layer + 1, sizeof *s->sum);
    s->max = calloc((size_t)s->n_layer + 1, sizeof *s->max);
    if (!s->cell || !s->write_order || !s->sum || !s->max)
        return wnw__fail(WNW_E_NOMEM, "no memory for a sample of %d tokens", (int)s->n);
    for (int32_t t = s->place[0].from; t < s->place[s->n_places - 1].to; t++) {
        const struct wnw__bridge_note *note = wnw__bridge_note_of(sequence_cells, t);
        const int32_t i = wnw__bridge_sampled(s, t);
        if (i < 0)
            continue;
        if (!note || note->unobserved)
            return wnw__fail(WNW_E_NOT_OBSERVED,
                             "token %d was not observed: its policy was set after it was read, or memory ran "
                             "out",
                             (int)t);
        s->cell[i] = sequence_cells->cell[t];
        s->write_order[i] = note->write_order;
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
                     const struct wnw__bridge_sequence_cells *sequence_cells,
                     const struct wnw__bridge_layer *like)
{
    struct wnw__bridge_sequence seq;
    struct wnw__plan_source src = {0};
    int rc = wnw__bridge_sequence_list(&seq, b, sequence_cells, like);
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

/* The caller frees *s in any case, and ends the plan that began. */
static int new_with_layers(struct wnw_bridge_sample **s, struct wnw__bridge_backend *b,
                           const struct wnw__bridge_sequence_cells *sequence_cells,
                           const wnw_bridge_sample_of *of)
{
    const struct wnw__bridge_cache *cache = sequence_cells->cache;
    WNW_TRY(check(of));
    WNW_TRY(new_sample(s, b, sequence_cells, of));
    if (b->far)
        WNW_TRY(b->far->plan_begin(b, sequence_cells->cache));
    for (int32_t i = 0; i < cache->n_layer; i++) {
        const struct wnw__bridge_layer *l = cache->layers[i];
        if (wnw__bridge_acts_on(b, l) && !(*s)->max[wnw__bridge_number(b, l)])
            WNW_TRY(take_like(*s, b, sequence_cells, l));
    }
    return WNW_OK;
}

int wnw__bridge_sample_new(struct wnw_bridge_sample **out, struct wnw__bridge_backend *b,
                           const struct wnw__bridge_sequence_cells *sequence_cells,
                           const wnw_bridge_sample_of *of)
{
    struct wnw_bridge_sample *s = NULL;
    int rc = new_with_layers(&s, b, sequence_cells, of);
    if (b->far)
        rc = b->far->plan_end(b, rc, false);
    if (rc != WNW_OK) {
        wnw_bridge_sample_free(s);
        s = NULL;
    }
    *out = s;
    return rc;
}
