/* SPDX-License-Identifier: MIT */
/* Dropping the newest entries, so that the cache is the one that it was before they came. */
#include "cache/cache_impl.h"

static int check_window(const struct wnw__cache *c, int32_t il, int32_t next)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    const int32_t first = wnw__cache_first_seen(c, l, next);
    if (l->n_swa == 0 || l->len[0] == 0 || l->pos[l->off[0]] <= first)
        return WNW_OK;
    return wnw__fail(
        WNW_E_UNSUPPORTED,
        "layer %d has a sliding window of %d tokens and holds nothing before position %d any more; going "
        "back to %d needs its entries from position %d on",
        (int)il, (int)l->n_swa, (int)l->pos[l->off[0]], (int)next, (int)first);
}

/* The tail that stays is long enough for its oldest block to have left it already. */
static int check_tail(const struct wnw__cache *c, int32_t il, int32_t next)
{
    const struct wnw__kv_layer *l = &c->layers[il];
    for (int32_t ih = 0; c->n_tail > 0 && ih < c->n_head_kv; ih++) {
        const int32_t n_quantised = l->tail.n_quantised[ih];
        if (n_quantised > 0 && wnw__cache_find(l, ih, next) - l->tail.n_first[ih] - n_quantised < c->n_tail)
            return wnw__fail(
                WNW_E_UNSUPPORTED,
                "entries of layer %d, head %d that were in the tail of the cache at position %d have been "
                "quantised since",
                (int)il, (int)ih, (int)next);
    }
    return WNW_OK;
}

int wnw__cache_can_rewind(const struct wnw__cache *c, int32_t il, int32_t next)
{
    WNW_TRY(check_window(c, il, next));
    return check_tail(c, il, next);
}

void wnw__cache_rewind(struct wnw__cache *c, int32_t next)
{
    for (int32_t il = 0; il < c->n_layer; il++)
        for (int32_t ih = 0; ih < c->n_head_kv; ih++)
            c->layers[il].len[ih] = wnw__cache_find(&c->layers[il], ih, next);
}
