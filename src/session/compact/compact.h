/* SPDX-License-Identifier: MIT */
/* From a plan to a smaller cache. */
#ifndef WNW_COMPACT_H
#define WNW_COMPACT_H

#include "cache/cache.h"
#include "plan/compress.h"
#include "winnow_tools.h"

/* ---- Applying a plan (apply.c) ---- */

/* As wnw_session_apply. room: number of coming tokens per head whose place may stay allocated; negative = tight storage. */
int wnw__session_apply(wnw_session *s, const wnw_plan *plan, int32_t room, wnw_report *report);

/* Applies a plan of the policy and, if the policy re-rotates keys, renumbers the kept entries. A plan whose
 * entries cannot be renumbered is refused before anything changes. */
int wnw__session_follow(wnw_session *s, const wnw_policy *policy, const wnw_plan *plan, int32_t room,
                        wnw_report *report);

/* The bytes of keys and values in layers on which policies act, once the plan is applied with tight storage. */
int wnw__session_allocated(uint64_t *bytes, const wnw_session *s, const wnw_plan *plan);

/* ---- New positions (renumber.c) ---- */

/* E_UNSUPPORTED where this session's entries cannot get new positions, no matter which are kept. */
int wnw__renumber_check(const wnw_session *s);
/* E_UNSUPPORTED unless layer il, KV head ih has n = n_first entries, as many as the first head: new positions
 * need equal counts. */
int wnw__renumber_check_count(int32_t il, int32_t ih, int32_t n, int32_t n_first);

/* ---- Contents of kept entries: a plan may write into the cache, too, not only drop entries (rewrite.c) ---- */

/* Keeps entries of layer il as wnw__cache_keep_layer does, or with room >= 0 as wnw__cache_keep_in_place. Writes the merges,
 * pruned channels, biases and values of kept->contents into them. Values are merged in float32 and stored in the cache's
 * type. The first kept->n_settled entries are settled then. Where every entry stays, storage is left as it is. The layer is
 * unchanged on failure. */
int wnw__rewrite_layer(struct wnw__cache *c, int32_t il, const struct wnw__kept_layer *kept, int32_t room);

/* E_MISMATCH unless the cache holds every entry that is merged into another and drops it, the entry merged
 * into stays, and every pruned channel exists. */
int wnw__rewrite_check(const struct wnw__cache *c, int32_t il, const struct wnw__kept_layer *kept);

#endif
