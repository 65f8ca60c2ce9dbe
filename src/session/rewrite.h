/* SPDX-License-Identifier: MIT */
/* Contents of kept entries: a plan may write into the cache besides dropping entries. */
#ifndef WNW_REWRITE_H
#define WNW_REWRITE_H

#include "cache/cache.h"
#include "plan/compress.h"

/* Keeps entries of layer il as wnw__cache_keep_layer does, or with room >= 0 as wnw__cache_keep_in_place, and
 * writes the merges, pruned channels, biases and values of kept->contents into them. Values are merged in float32 and stored
 * in the cache's type. The first kept->n_settled entries are settled then. Where every entry stays, storage is left as it is. The layer is unchanged on failure. */
int wnw__rewrite_layer(struct wnw__cache *c, int32_t il, const struct wnw__kept_layer *kept, int32_t room);

/* E_MISMATCH unless the cache holds every entry that is merged into another and drops it, the entry merged
 * into stays, and every pruned channel exists. */
int wnw__rewrite_check(const struct wnw__cache *c, int32_t il, const struct wnw__kept_layer *kept);

#endif
