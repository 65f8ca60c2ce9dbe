/* SPDX-License-Identifier: MIT */
/* The rules that a session follows by itself: they say when entries are dropped. */
#ifndef WNW_PHASES_H
#define WNW_PHASES_H

#include "winnow.h"

/* When to compress and to which size; the fields are those of wnw_run. */
struct wnw__eviction {
    const wnw_policy *policy; /* borrowed; NULL = no rules */
    wnw_size size;
    wnw_phase phase;
    int32_t chunk, every;
    int64_t target;
};

/* What wnw_session_begin was told, and the state of following it. */
struct wnw__rules {
    struct wnw__eviction ev;
    wnw_policy *fixed; /* owned: a recursive policy with the k that the size wants at present; or NULL */
    int32_t n_before;  /* tokens read before the rules began and dropped by then; no ratio counts them */
    int32_t asked;     /* entries per layer and head that the size left of the prompt; 0 = no prompt yet */
    int32_t n_decoded; /* tokens since the last compression */
    bool has_warned;   /* a compression while decoding has told the log that it misses the size */
    int32_t *held;     /* [n_layer * n_head_kv] entries that a sliding head keeps, 0 = it grows; or NULL */
    int32_t n_held;
};

/* Checks whether the session can follow the rules with the profile (NULL = none). Errors as
 * wnw_session_begin. */
int wnw__rules_check(const wnw_session *s, const struct wnw__eviction *ev, const wnw_profile *profile);
/* Makes the session follow rules that were checked (wnw__rules_check) and declared (wnw__session_declare). */
void wnw__rules_set(wnw_session *s, const struct wnw__eviction *ev);
/* Whether the rules plan again at fixed intervals while decoding, so that queries of generated tokens
 * count. */
bool wnw__rules_replan(const struct wnw__eviction *ev);
/* Does what the rules want after each decoded token. */
int wnw__rules_after_decode(wnw_session *s);
/* Keeps the rules as they were set and forgets the state, for an empty timeline. */
void wnw__rules_reset(struct wnw__rules *r);
/* `to` is valid before (or {0}); it stays as it was on failure. */
int wnw__rules_copy(struct wnw__rules *to, const struct wnw__rules *from);
void wnw__rules_free(struct wnw__rules *r);

#endif
