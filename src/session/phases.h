/* SPDX-License-Identifier: MIT */
/* Rules that a session follows by itself: when entries are dropped. */
#ifndef WNW_PHASES_H
#define WNW_PHASES_H

#include "winnow.h"

/* When to compress and to what, of wnw_run. */
struct wnw__eviction {
    const wnw_policy *policy; /* borrowed; NULL = no rules */
    wnw_size size;
    wnw_phase phase;
    int32_t chunk, every;
    int64_t target;
};

/* What wnw_session_begin was told, and what became of it. */
struct wnw__rules {
    struct wnw__eviction ev;
    wnw_policy *fixed; /* a recursive policy with the k that the size wants at present, owned; or NULL */
    int32_t n_before;  /* tokens read before the rules that no ratio counts */
    int32_t asked;     /* entries per layer and head that the prompt was to keep; 0 = no prompt yet */
    int32_t n_decoded; /* tokens since the last compression */
    int32_t *held;     /* [n_held] = [n_layer * n_head_kv] counts of heads that slide, 0 = grows; or NULL */
    int32_t n_held;
};

/* Whether the session could follow the rules with the profile (NULL = none). Errors as wnw_session_begin. */
int wnw__rules_check(const wnw_session *s, const struct wnw__eviction *ev, const wnw_profile *profile);
/* Follows rules that were checked and declared (wnw__session_declare). */
void wnw__rules_set(wnw_session *s, const struct wnw__eviction *ev);
/* Whether generated tokens may be dropped at fixed intervals, so that their queries count. */
bool wnw__rules_replan(const struct wnw__eviction *ev);
/* What the rules want done after a decoded token. */
int wnw__rules_after_decode(wnw_session *s);
/* Rules for an empty timeline, as they were set. */
void wnw__rules_reset(struct wnw__rules *r);
int wnw__rules_copy(struct wnw__rules *to, const struct wnw__rules *from);
void wnw__rules_free(struct wnw__rules *r);

#endif
