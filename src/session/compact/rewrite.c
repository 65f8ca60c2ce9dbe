/* SPDX-License-Identifier: MIT */
/*
 * Merging values and pruning key channels, as plans say. A head's new values are computed in float32 while
 * the dropped entries are still there; then the layer is compacted, and then the new values are written. So
 * every failure comes before any change.
 *
 *     v_t <- v_t + sum w v_from           divided by 1 + sum w with `averages`;
 *     k[c] <- 0                           for pruned channels, except in the last n_spared entries;
 *     v_t <- value, bias_t <- bias        of every kept entry, where the plan has some
 *     note_t <- what a selector noted     the same
 *
 * Sums run in the order of the plan's merges, so that they are the same for any number of threads. Norms of
 * projected values belong to the old values; they are marked as unknown (-1) and computed again at need.
 */
#include "session/compact/compact.h"
#include "session/session.h"

#include "plan/merge.h"

#include <stdlib.h>
#include <string.h>

/* A head of a cache as merges see it. */
struct head {
    const struct wnw__cache *c;
    int32_t il, ih;
};

static void read_value(const void *of, int32_t entry, float *dst)
{
    const struct head *h = of;
    wnw__cache_read(h->c, h->il, WNW_VALUES, h->ih, entry, 1, dst);
}

static struct wnw__merge_head merge_of(const struct head *h, const struct wnw__kept_layer *kept)
{
    const struct wnw__kv_layer *l = &h->c->layers[h->il];
    return (struct wnw__merge_head){.contents = &kept->contents[h->ih],
                                    .averages = kept->averages,
                                    .pos = l->pos + l->off[h->ih],
                                    .keep = kept->keep[h->ih],
                                    .n = l->len[h->ih],
                                    .n_keep = kept->n_keep[h->ih],
                                    .d = h->c->d,
                                    .read = read_value,
                                    .of = h};
}

int wnw__rewrite_check(const struct wnw__cache *c, int32_t il, const struct wnw__kept_layer *kept)
{
    for (int32_t ih = 0; kept->contents && ih < c->n_head_kv; ih++) {
        const struct wnw__merge_head h = merge_of(&(struct head){c, il, ih}, kept);
        WNW_TRY(wnw__merge_check(&h, il, ih));
    }
    return WNW_OK;
}

/* Norms of projected values belong to the value that was there. */
static void forget_norms(const struct wnw__cache *c, const struct wnw__kv_layer *l, int64_t row)
{
    for (int kind = WNW_AUX_PROJ; kind < WNW_N_AUX; kind++)
        for (int32_t p = 0; p < c->aux_planes[kind]; p++)
            wnw__cache_aux(l, (enum wnw__aux)kind, p)[row] = -1;
}

/* Writes the new values of one head after the layer was compacted, when kept entry t is row t of its head. */
static void write_values(struct wnw__cache *c, int32_t il, int32_t ih, const struct wnw__merged *w)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    for (int32_t t = 0; w->changed && t < l->len[ih]; t++) {
        if (!w->changed[t])
            continue;
        wnw__cache_write(c, il, WNW_VALUES, ih, t, 1, w->value + (size_t)t * (size_t)c->d);
        forget_norms(c, l, l->off[ih] + t);
    }
}

static void prune_keys(struct wnw__cache *c, int32_t il, int32_t ih,
                       const struct wnw__plan_contents *contents, float *row)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    for (int32_t t = 0; contents->n_channel > 0 && t < l->len[ih] - contents->n_spared; t++) {
        wnw__cache_read(c, il, WNW_KEYS, ih, t, 1, row);
        for (int32_t i = 0; i < contents->n_channel; i++)
            row[contents->channels[i]] = 0;
        wnw__cache_write(c, il, WNW_KEYS, ih, t, 1, row);
    }
}

/* Sees to it that the cache keeps biases and notes, if the plan has any for a head of the layer. */
static int keep_numbers(struct wnw__cache *c, const struct wnw__plan_contents *contents)
{
    bool bias = false, note = false;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        bias = bias || contents[ih].bias;
        note = note || contents[ih].note;
    }
    if (bias && c->aux_planes[WNW_AUX_BIAS] == 0)
        WNW_TRY(wnw__cache_set_aux(c, WNW_AUX_BIAS, 1));
    return note && c->aux_planes[WNW_AUX_NOTE] == 0 ? wnw__cache_set_aux(c, WNW_AUX_NOTE, 1) : WNW_OK;
}

/* Writes notes, fitted biases and values after the layer was compacted. */
static void write_fitted(struct wnw__cache *c, int32_t il, int32_t ih,
                         const struct wnw__plan_contents *contents)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    const int32_t n = l->len[ih];
    if (contents->bias && n > 0)
        memcpy(wnw__cache_aux(l, WNW_AUX_BIAS, 0) + l->off[ih], contents->bias, (size_t)n * sizeof(float));
    if (contents->note && n > 0)
        memcpy(wnw__cache_aux(l, WNW_AUX_NOTE, 0) + l->off[ih], contents->note, (size_t)n * sizeof(float));
    if (!contents->values || n == 0)
        return;
    wnw__cache_write(c, il, WNW_VALUES, ih, 0, n, contents->values);
    for (int32_t t = 0; t < n; t++)
        forget_norms(c, l, l->off[ih] + t);
}

static bool keeps_all(const struct wnw__cache *c, int32_t il, const struct wnw__kept_layer *kept)
{
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        if (kept->n_keep[ih] != c->layers[il].len[ih])
            return false;
    return true;
}

/* What becomes of the contents of a layer's heads: w[n_head_kv] from before the layer is compacted, row[d] for one key. */
struct change {
    const struct wnw__plan_contents *contents;
    struct wnw__merged *w;
    float *row;
};

static void change_free(struct change *ch, int32_t n_head)
{
    for (int32_t ih = 0; ch->w && ih < n_head; ih++)
        wnw__merged_free(&ch->w[ih]);
    free(ch->w);
    free(ch->row);
}

/* Merges values, and makes room for biases, as long as all entries are there. */
static int change_prepare(struct change *ch, struct wnw__cache *c, int32_t il,
                          const struct wnw__kept_layer *kept)
{
    ch->contents = kept->contents;
    if (!ch->contents)
        return WNW_OK;
    ch->w = calloc((size_t)c->n_head_kv, sizeof *ch->w);
    ch->row = malloc((size_t)c->d * sizeof *ch->row);
    if (!ch->w || !ch->row)
        return wnw__fail(WNW_E_NOMEM, "no memory to merge values");
    WNW_TRY(keep_numbers(c, ch->contents));
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        if (ch->contents[ih].n_merge > 0) {
            const struct wnw__merge_head h = merge_of(&(struct head){c, il, ih}, kept);
            WNW_TRY(wnw__merge_values(&ch->w[ih], &h));
        }
    return WNW_OK;
}

/* Writes all of it, once the layer was compacted. */
static void change_write(const struct change *ch, struct wnw__cache *c, int32_t il)
{
    for (int32_t ih = 0; ch->contents && ih < c->n_head_kv; ih++) {
        write_values(c, il, ih, &ch->w[ih]);
        prune_keys(c, il, ih, &ch->contents[ih], ch->row);
        write_fitted(c, il, ih, &ch->contents[ih]);
    }
}

int wnw__rewrite_layer(struct wnw__cache *c, int32_t il, const struct wnw__kept_layer *kept, int32_t room)
{
    struct change ch = {0};
    int rc = change_prepare(&ch, c, il, kept);
    if (rc == WNW_OK && !keeps_all(c, il, kept))
        rc = room < 0 ? wnw__cache_keep_layer(c, il, kept->keep, kept->n_keep)
                      : wnw__cache_keep_in_place(c, il, kept->keep, kept->n_keep, room);
    if (rc == WNW_OK) {
        change_write(&ch, c, il);
        c->layers[il].n_settled = kept->n_settled;
    }
    change_free(&ch, c->n_head_kv);
    return rc;
}
