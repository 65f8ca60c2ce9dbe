/* SPDX-License-Identifier: MIT */
/* Room for more entries in a layer. */
#include "cache/cache_impl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- Other room for what a layer holds ---- */

/* Moves the rows of all heads within an arena, from their old places to new ones. Heads stay in order, and none overlaps
 * another, before or after. So those that move down take nobody's place if the first of them goes first, nor do those that
 * move up if the last goes first. */
static void move_rows(uint8_t *arena, size_t row_bytes, const struct wnw__kv_layer *l, const int64_t *to,
                      int32_t n_head)
{
    for (int32_t ih = 0; ih < n_head; ih++)
        if (to[ih] < l->off[ih])
            memmove(arena + (size_t)to[ih] * row_bytes, arena + (size_t)l->off[ih] * row_bytes,
                    (size_t)l->len[ih] * row_bytes);
    for (int32_t ih = n_head - 1; ih >= 0; ih--)
        if (to[ih] > l->off[ih])
            memmove(arena + (size_t)to[ih] * row_bytes, arena + (size_t)l->off[ih] * row_bytes,
                    (size_t)l->len[ih] * row_bytes);
}

/* Makes the arenas of l larger mappings of the same pages; false: they are as they were, but for their addresses. */
static bool extend(struct wnw__kv_layer *l, size_t k_bytes, size_t v_bytes)
{
    void *k = mremap(l->k, l->mapped_bytes, k_bytes, MREMAP_MAYMOVE);
    if (k == MAP_FAILED)
        return false;
    l->k = k;
    void *v = v_bytes > 0 ? mremap(l->v, l->v_mapped_bytes, v_bytes, MREMAP_MAYMOVE) : NULL;
    if (v == MAP_FAILED) {
        (void)mremap(k, k_bytes, l->mapped_bytes, 0); /* what is cut off is not used */
        return false;
    }
    l->v = v;
    l->mapped_bytes = k_bytes;
    l->v_mapped_bytes = v_bytes;
    return true;
}

/* Gives a layer more room in the pages that it has and some more: only rows of heads after the first one move. To copy all
 * rows to new pages takes several times as long, because the system clears each of them first. False: the layer has the room
 * that it had, also because in place it cannot be done. */
static bool grow_in_place(const struct wnw__cache *c, struct wnw__kv_layer *l,
                          const struct wnw__kv_caps *caps)
{
    struct wnw__kv_layer fresh;
    if (c->n_tail > 0 || l->n_rows == 0 || l->of_file ||
        wnw__cache_layer_new_bare(c, &fresh, caps, l->n_swa) != WNW_OK)
        return false;
    const size_t k_bytes = wnw__cache_page_round((size_t)fresh.n_rows * c->row_bytes),
                 v_bytes = wnw__cache_page_round((size_t)fresh.n_rows * c->v_row_bytes);
    if (fresh.n_rows <= l->n_rows || !extend(l, k_bytes, v_bytes)) {
        wnw__cache_layer_free(&fresh);
        return false;
    }
    move_rows(l->k, c->row_bytes, l, fresh.off, c->n_head_kv);
    if (v_bytes > 0)
        move_rows(l->v, c->v_row_bytes, l, fresh.off, c->n_head_kv);
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        wnw__cache_copy_numbers(c, &fresh, fresh.off[ih], l, l->off[ih], l->len[ih]);
        fresh.len[ih] = l->len[ih];
    }
    fresh.k = l->k;
    fresh.v = l->v;
    fresh.mapped_bytes = k_bytes;
    fresh.v_mapped_bytes = v_bytes;
    fresh.n_settled = l->n_settled;
    fresh.n_ambiguous = l->n_ambiguous;
    l->k = l->v = NULL;
    wnw__cache_layer_free(l);
    *l = fresh;
    return true;
}

int wnw__cache_resize_layer(struct wnw__cache *c, int32_t il, const struct wnw__kv_caps *caps)
{
    struct wnw__kv_layer *l = &c->layers[il], fresh;
    if (grow_in_place(c, l, caps))
        return WNW_OK;
    WNW_TRY(wnw__cache_layer_new(c, &fresh, caps, l->n_swa));
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        wnw__cache_gather_head(c, &fresh, l, ih, NULL, l->len[ih]);
    fresh.n_settled = l->n_settled;
    fresh.n_ambiguous = l->n_ambiguous;
    wnw__cache_layer_free(l);
    *l = fresh;
    return WNW_OK;
}

/* ---- As much as is needed ---- */

/* Empties the numbers of the n rows after each head's entries, where rewound entries may have left some. */
static void empty_new_numbers(const struct wnw__cache *c, struct wnw__kv_layer *l, int32_t n)
{
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        wnw__cache_empty_numbers(c, l, l->off[ih] + l->len[ih], n);
}

/* The capacity to ask for where `need` rows are needed. */
static int32_t grown(const struct wnw__cache *c, int64_t need, int32_t cap, bool tight)
{
    const int64_t with_slack = (int64_t)cap + cap / 8;
    return (int32_t)wnw__cache_round_up(tight || need > with_slack ? need : with_slack, c->growth);
}

/* Sets the capacities that layer il needs; returns whether it has them already. */
static bool need_caps(const struct wnw__cache *c, int32_t il, int32_t n, int32_t n_at_once, bool tight,
                      const struct wnw__kv_caps *caps)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    bool enough = true;
    for (int32_t ih = 0; ih < c->n_head_kv; ih++) {
        enough = enough && l->cap[ih] - l->len[ih] >= n;
        caps->entry[ih] = grown(c, (int64_t)l->len[ih] + n, l->cap[ih], tight);
        if (c->n_tail == 0)
            continue;
        if (l->cap[ih] - l->len[ih] >= n)
            caps->entry[ih] = l->cap[ih];
        const int32_t had_quantised = l->tail.quantised_cap[ih], had_tail = l->tail.cap[ih];
        int32_t quantised, tail;
        wnw__cache_tail_need(c, l, ih, n, n_at_once, &quantised, &tail);
        enough = enough && quantised <= had_quantised && tail <= had_tail;
        caps->quantised[ih] =
            quantised <= had_quantised ? had_quantised : grown(c, quantised, had_quantised, tight);
        caps->tail[ih] = tail <= had_tail ? had_tail : grown(c, tail, had_tail, tight);
    }
    return enough;
}

static int reserve(struct wnw__cache *c, int32_t il, int32_t n, int32_t n_at_once, bool tight)
{
    struct wnw__kv_caps caps = wnw__cache_caps_new(c);
    if (!caps.entry)
        return wnw__fail(WNW_E_NOMEM, "no memory to grow cache layer %d", (int)il);
    int rc = WNW_OK;
    if (need_caps(c, il, n, n_at_once, tight, &caps))
        empty_new_numbers(c, &c->layers[il], n);
    else
        rc = wnw__cache_resize_layer(c, il, &caps);
    free(caps.entry);
    return rc;
}

int wnw__cache_reserve_layer(struct wnw__cache *c, int32_t il, int32_t n, bool tight)
{
    return reserve(c, il, n, n, tight || c->tight);
}

int wnw__cache_trim_layer(struct wnw__cache *c, int32_t il)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    struct wnw__kv_caps caps = wnw__cache_caps_new(c);
    if (!caps.entry)
        return wnw__fail(WNW_E_NOMEM, "no memory to trim cache layer %d", (int)il);
    int64_t rows = 0;
    (void)need_caps(c, il, 0, 0, true, &caps);
    for (int32_t ih = 0; ih < c->n_head_kv; ih++)
        rows += caps.entry[ih];
    const int rc = rows < l->n_rows ? wnw__cache_resize_layer(c, il, &caps) : WNW_OK;
    free(caps.entry);
    return rc;
}

int wnw__cache_expect_layer(struct wnw__cache *c, int32_t il, int32_t n, int32_t n_at_once)
{
    return reserve(c, il, n, n_at_once < n ? n_at_once : n, true);
}
