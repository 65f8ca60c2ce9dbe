/* SPDX-License-Identifier: MIT */
/* Contents of kept entries: a plan may write into the cache besides dropping entries. */
#ifndef WNW_REWRITE_H
#define WNW_REWRITE_H

#include "cache/cache.h"
#include "plan/plan.h"

/* Keeps entries of layer il as wnw__cache_keep_layer does, or with room >= 0 as wnw__cache_thin_layer, and
 * writes the merges and pruned channels of `contents` [n_head_kv] (NULL = none) into them. Values are merged
 * in float32 and stored in the cache's type. all: every entry stays, and storage is left as it is. averages:
 * a merged value is divided by its sum of weights. The layer is unchanged on failure. */
int wnw__rewrite_layer(struct wnw__cache *c, int32_t il, const int32_t *const *keep, const int32_t *n_keep,
                       bool all, int32_t room, const struct wnw__plan_contents *contents, bool averages);

/* E_MISMATCH unless the cache holds every entry that is merged into another and drops it, the entry merged
 * into stays, and every pruned channel exists. */
int wnw__rewrite_check(const struct wnw__cache *c, int32_t il, const int32_t *const *keep,
                       const int32_t *n_keep, const struct wnw__plan_contents *contents);

#endif
