/* SPDX-License-Identifier: MIT */
/* Compaction: entries move within their layer, or to tighter storage. */
#include "cache/cache_impl.h"

#include <stdlib.h>
#include <string.h>

/* ---- Copying entries ---- */

void wnw__cache_copy_numbers(const struct wnw__cache *c, struct wnw__kv_layer *dst, int64_t to,
                             const struct wnw__kv_layer *src, int64_t from, int64_t n)
{
    if (dst == src && to == from)
        return;
    memmove(dst->pos + to, src->pos + from, (size_t)n * sizeof *dst->pos);
    for (int kind = 0; kind < WNW_N_AUX; kind++)
        for (int32_t p = 0; p < c->aux_planes[kind]; p++)
            memmove(wnw__cache_aux(dst, (enum wnw__aux)kind, p) + to,
                    wnw__cache_aux(src, (enum wnw__aux)kind, p) + from, (size_t)n * sizeof(float));
}

/* What a head has kept so far: rows of the cache's type, rows of its tail, and how many of those are first entries. */
struct kept {
    int32_t n_row, n_tail_row, n_first;
};

/* Copies the n stored rows of src after those that the head has kept. Where dst and src are the same layer,
 * rows never move up, because entries come in ascending order. */
static void copy_stored(const struct wnw__cache *c, struct wnw__kv_layer *dst, int32_t ih, struct kept *kept,
                        const struct wnw__kv_rows *src)
{
    const bool in_tail = c->n_tail > 0 && src->type != c->type;
    const int64_t first = c->n_tail > 0 ? dst->tail.quantised_off[ih] : dst->off[ih],
                  row = in_tail ? dst->tail.off[ih] + kept->n_tail_row : first + kept->n_row;
    uint8_t *k = (in_tail ? dst->tail.k : dst->k) + (size_t)row * src->row_bytes;
    const size_t v_bytes = in_tail ? src->row_bytes : c->v_row_bytes;
    if (k != src->k) {
        memmove(k, src->k, (size_t)src->n * src->row_bytes);
        if (v_bytes > 0)
            memmove((in_tail ? dst->tail.v : dst->v) + (size_t)row * v_bytes, src->v,
                    (size_t)src->n * v_bytes);
    }
    *(in_tail ? &kept->n_tail_row : &kept->n_row) += src->n;
}

/* The first neighbours among keep[0 .. n-1] that are stored alike; keep = NULL: entries i .. i+n-1. */
static struct wnw__kv_rows first_run(const struct wnw__cache *c, const struct wnw__kv_layer *l, int32_t ih,
                                     const int32_t *keep, int32_t i, int32_t n)
{
    int32_t n_run = keep ? 1 : n;
    while (keep && n_run < n && keep[n_run] == keep[0] + n_run)
        n_run++;
    return wnw__cache_rows(c, l, ih, keep ? keep[0] : i, (keep ? keep[0] : i) + n_run);
}

void wnw__cache_gather_head(const struct wnw__cache *c, struct wnw__kv_layer *dst,
                            const struct wnw__kv_layer *src, int32_t ih, const int32_t *keep, int32_t n_keep)
{
    const int32_t n_first = c->n_tail > 0 ? src->tail.n_first[ih] : 0;
    const bool any_quantised = c->n_tail > 0 && src->tail.n_quantised[ih] > 0;
    struct kept kept = {0};
    for (int32_t i = 0; i < n_keep;) {
        /* Neighbours are copied together: window methods keep long runs. */
        const struct wnw__kv_rows run = first_run(c, src, ih, keep ? keep + i : NULL, i, n_keep - i);
        const int32_t from = keep ? keep[i] : i;
        kept.n_first += from < n_first ? run.n : 0;
        copy_stored(c, dst, ih, &kept, &run);
        wnw__cache_copy_numbers(c, dst, dst->off[ih] + i, src, src->off[ih] + from, run.n);
        i += run.n;
    }
    dst->len[ih] = n_keep;
    if (c->n_tail == 0)
        return;
    /* As long as no entry is quantised, there is no border between the first entries and the last. */
    dst->tail.n_first[ih] = any_quantised ? kept.n_first : n_first;
    dst->tail.n_quantised[ih] = kept.n_row;
}

/* ---- Compaction of a layer ---- */

/* Moves the kept entries to new storage. */
static int move_kept(struct wnw__cache *c, int32_t il, const int32_t *const *keep, const int32_t *n_keep,
                     const struct wnw__kv_caps *caps)
{
    struct wnw__kv_layer *l = &c->layers[il], tight;
    WNW_TRY(wnw__cache_layer_new(c, &tight, caps, l->n_swa));
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        wnw__cache_gather_head(c, &tight, l, ih, keep[ih], n_keep[ih]);
    tight.n_ambiguous = l->n_ambiguous;
    wnw__cache_layer_free(l);
    *l = tight;
    return WNW_OK;
}

/* Makes room for the kept entries and `room` more in each head; caps->entry is NULL without memory. */
static void kept_caps(const struct wnw__cache *c, int32_t il, const int32_t *const *keep,
                      const int32_t *n_keep, int32_t room, struct wnw__kv_caps *caps)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    *caps = wnw__cache_caps_new(c);
    if (!caps->entry)
        wnw__fail(WNW_E_NOMEM, "no memory to compact cache layer %d", (int)il);
    for (int32_t ih = 0; caps->entry && ih < c->n_head_kv; ih++) {
        caps->entry[ih] = (int32_t)wnw__cache_round_up((int64_t)n_keep[ih] + room, c->growth);
        if (c->n_tail == 0)
            continue;
        int32_t n_quantised = 0;
        for (int32_t i = 0; i < n_keep[ih]; i++)
            n_quantised += keep[ih][i] >= l->tail.n_first[ih] &&
                           keep[ih][i] - l->tail.n_first[ih] < l->tail.n_quantised[ih];
        /* Of `room` new entries, as many as a tail has no room for push others out of it. */
        const int32_t in_tail = n_keep[ih] - n_quantised, most = wnw__cache_most_f16(c) + 1;
        const int32_t least = in_tail > most ? in_tail : most,
                      tail = in_tail + room < most ? in_tail + room : least;
        caps->tail[ih] = (int32_t)wnw__cache_round_up(tail, c->growth);
        caps->quantised[ih] = (int32_t)wnw__cache_round_up(
            n_quantised + (room > 0 && in_tail + room >= most ? room + WNW_CACHE_BLOCK : 0), c->growth);
    }
}

int wnw__cache_keep_layer(struct wnw__cache *c, int32_t il, const int32_t *const *keep, const int32_t *n_keep)
{
    struct wnw__kv_caps caps;
    kept_caps(c, il, keep, n_keep, 0, &caps);
    const int rc = caps.entry ? move_kept(c, il, keep, n_keep, &caps) : WNW_E_NOMEM;
    free(caps.entry);
    return rc;
}

uint64_t wnw__cache_bytes_keeping(const struct wnw__cache *c, int32_t il, const int32_t *const *keep,
                                  const int32_t *n_keep)
{
    struct wnw__kv_caps caps;
    kept_caps(c, il, keep, n_keep, 0, &caps);
    const uint64_t bytes = caps.entry ? wnw__cache_caps_bytes(c, &caps) : 0;
    free(caps.entry);
    return bytes;
}

void wnw__cache_drop(struct wnw__cache *c, int32_t il, int32_t ih, int32_t from, int32_t n)
{
    struct wnw__kv_layer *l = &c->layers[il];
    const int32_t n_first = c->n_tail > 0 ? l->tail.n_first[ih] : 0;
    const int32_t n_quantised = c->n_tail > 0 ? l->tail.n_quantised[ih] : 0, len = l->len[ih];
    struct kept kept = {0};
    for (int32_t i = 0; i < len;) {
        const int32_t end = i < from ? from : len;
        if (i == from) {
            i += n;
            continue;
        }
        const struct wnw__kv_rows run = wnw__cache_rows(c, l, ih, i, end);
        kept.n_first += i < n_first ? run.n : 0;
        copy_stored(c, l, ih, &kept, &run);
        i += run.n;
    }
    wnw__cache_copy_numbers(c, l, l->off[ih] + from, l, l->off[ih] + from + n, len - from - n);
    l->len[ih] -= n;
    if (c->n_tail > 0) {
        l->tail.n_first[ih] = n_quantised > 0 ? kept.n_first : n_first;
        l->tail.n_quantised[ih] = kept.n_row;
    }
}

static uint64_t stored_bytes(const struct wnw__cache *c, const struct wnw__kv_caps *caps)
{
    uint64_t bytes = 0;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        bytes += c->n_tail > 0 ? (uint64_t)caps->quantised[ih] * c->row_bytes +
                                     (uint64_t)caps->tail[ih] * c->tail_row_bytes
                               : (uint64_t)caps->entry[ih] * c->row_bytes;
    return bytes;
}

int wnw__cache_keep_in_place(struct wnw__cache *c, int32_t il, const int32_t *const *keep,
                             const int32_t *n_keep, int32_t room)
{
    struct wnw__kv_layer *l = &c->layers[il];
    const struct wnw__kv_caps has = {
        .entry = l->cap, .quantised = l->tail.quantised_cap, .tail = l->tail.cap};
    struct wnw__kv_caps caps;
    kept_caps(c, il, keep, n_keep, c->tight ? 0 : room, &caps);
    if (!caps.entry)
        return WNW_E_NOMEM;
    const uint64_t had = stored_bytes(c, &has), needs = stored_bytes(c, &caps);
    const uint64_t least = c->tight ? 1 : had / 8 + (had % 8 != 0);
    int rc = WNW_OK;
    if (had >= needs && had - needs >= least) {
        rc = move_kept(c, il, keep, n_keep, &caps);
    } else {
        for (int32_t ih = 0; ih < c->n_head_kv; ih++)
            wnw__cache_gather_head(c, l, l, ih, keep[ih], n_keep[ih]);
    }
    free(caps.entry);
    return rc;
}

/* ---- Sliding windows ---- */

/* Every head of a sliding-window layer holds the same positions, because no policy touches such a layer. */
static int drop_unseen(struct wnw__cache *c, int32_t il, int32_t next)
{
    struct wnw__kv_layer *l = &c->layers[il];
    const int32_t len = l->len[0];
    const int32_t seen = wnw__cache_first_seen(c, l, next);
    int32_t first = 0;
    while (first < len && l->pos[l->off[0] + first] < seen)
        first++;
    if (first < c->growth)
        return WNW_OK;
    int32_t *index = malloc(((size_t)(len - first) + 1) * sizeof *index);
    const int32_t **keep = calloc((size_t)c->n_head_kv, sizeof *keep);
    int32_t *n_keep = calloc((size_t)c->n_head_kv, sizeof *n_keep);
    int rc = WNW_E_NOMEM;
    if (!index || !keep || !n_keep) {
        wnw__fail(rc, "no memory to move the window of cache layer %d", (int)il);
        goto done;
    }
    for (int32_t i = first; i < len; i++)
        index[i - first] = i;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        keep[ih] = index;
        n_keep[ih] = len - first;
    }
    rc = wnw__cache_keep_layer(c, il, keep, n_keep);
done:
    free(index);
    free(keep);
    free(n_keep);
    return rc;
}

int wnw__cache_drop_unseen(struct wnw__cache *c, int32_t il, int32_t next)
{
    return c->layers[il].n_swa > 0 && c->layers[il].n_rows > 0 ? drop_unseen(c, il, next) : WNW_OK;
}
