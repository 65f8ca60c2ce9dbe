/* SPDX-License-Identifier: MIT */
#include "cache/cache_impl.h"

#include <string.h>

int wnw__cache_copy(struct wnw__cache *dst, const struct wnw__cache *src)
{
    memcpy(dst->aux_planes, src->aux_planes, sizeof dst->aux_planes);
    for (int32_t il = 0; il < src->n_layer; il++) {
        const struct wnw__kv_layer *l = &src->layers[il];
        const struct wnw__kv_caps caps = {
            .entry = l->cap, .quantised = l->tail.quantised_cap, .tail = l->tail.cap};
        struct wnw__kv_layer copy;
        WNW_TRY(wnw__cache_layer_new(dst, &copy, &caps, l->n_swa));
        for (int32_t ih = 0; ih < src->n_head_kv; ih++)
            wnw__cache_gather_head(dst, &copy, l, ih, NULL, l->len[ih]);
        copy.n_settled = l->n_settled;
        copy.n_ambiguous = l->n_ambiguous;
        wnw__cache_layer_free(&dst->layers[il]);
        dst->layers[il] = copy;
    }
    return WNW_OK;
}
