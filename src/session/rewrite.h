/* SPDX-License-Identifier: MIT */
/* Contents of kept entries: what a plan writes into the cache besides dropping entries. */
#ifndef WNW_REWRITE_H
#define WNW_REWRITE_H

#include "cache/cache.h"
#include "plan/plan.h"

/* Keeps entries of layer il as wnw__cache_keep_layer does, or with room >= 0 as wnw__cache_thin_layer, and
 * writes what `contents` [n_head_kv] (NULL = nothing) says into them. Values are merged in float32 and stored
 * in the cache's type. all: every entry stays and storage is left as it is. The layer is unchanged on
 * failure. */
int wnw__rewrite_layer(struct wnw__cache *c, int32_t il, const int32_t *const *keep, const int32_t *n_keep,
                       bool all, int32_t room, const struct wnw__plan_contents *contents, bool averages);

/* E_MISMATCH unless the cache holds what is merged, and what it is merged into stays. */
int wnw__rewrite_check(const struct wnw__cache *c, int32_t il, const int32_t *const *keep,
                       const int32_t *n_keep, const struct wnw__plan_contents *contents);

#endif
