/* SPDX-License-Identifier: MIT */
/* Rules that a session follows by itself: when entries are dropped. */
#ifndef WNW_PHASES_H
#define WNW_PHASES_H

#include "winnow.h"

/* What wnw_session_set_eviction was told, and what became of it. */
struct wnw__rules {
    wnw_eviction ev;   /* policy NULL = no rules */
    wnw_policy *fixed; /* a recursive policy with the k that the size wants at present, owned; or NULL */
    int32_t n_before;  /* tokens read before the rules that no ratio counts */
    int32_t asked;     /* entries per layer and head that the prompt was to keep; 0 = no prompt yet */
    int32_t n_decoded; /* tokens since the last compression */
    int32_t *held;     /* [n_held] = [n_layer * n_head_kv] counts of heads that slide, 0 = grows; or NULL */
    int32_t n_held;
};

/* What the rules want done after a decoded token. */
int wnw__rules_after_decode(wnw_session *s);
/* Rules for an empty timeline, as they were set. */
void wnw__rules_reset(struct wnw__rules *r);
int wnw__rules_copy(struct wnw__rules *to, const struct wnw__rules *from);
void wnw__rules_free(struct wnw__rules *r);

#endif
