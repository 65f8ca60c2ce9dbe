/* SPDX-License-Identifier: MIT */
/* When entries are dropped: what a session was told, and its place in following it. The rooms rules/ and run/ act on it. */
#ifndef WNW_EVICTION_H
#define WNW_EVICTION_H

#include "winnow.h"

/* When to compress and to which size; the fields are those of wnw_run. */
struct wnw__eviction {
    const wnw_policy *policy; /* borrowed; NULL = no rules */
    wnw_size size;
    wnw_phase phase;
    int32_t chunk, every;
    int64_t target;
    double every_ratio; /* in place of the target; 0 = none */
    bool every_ratio_read;
    double slack; /* wnw_run_more.chunk_slack */
    bool once;
};

/* What wnw_session_begin was told, and the state of following it. */
struct wnw__rules {
    struct wnw__eviction ev;
    wnw_policy *own; /* owned: ev.policy where the run named a recipe; or NULL */
    wnw_policy
        *sized_policy;   /* owned: a recursive policy with the k that the size wants at present; or NULL */
    int32_t n_uncounted; /* tokens read before the rules began and dropped by then; no ratio counts them */
    int32_t n_keep;      /* entries per layer and head that the size left of the prompt; 0 = no prompt yet */
    int32_t n_decoded;   /* tokens since the last compression */
    bool is_over;        /* `once`, and the piece was read: what is read now stays */
    bool has_warned;     /* a compression while decoding has told the log that it misses the size */
    int32_t
        *slide_counts; /* [n_layer * n_head_kv] entries that a sliding head keeps, 0 = it grows; or NULL */
    int32_t n_slide_counts;
};

/* Keeps the rules as they were set and forgets the state, for an empty timeline. */
void wnw__rules_reset(struct wnw__rules *r);
/* `to` is valid before (or {0}); it stays as it was on failure. */
int wnw__rules_copy(struct wnw__rules *to, const struct wnw__rules *from);
void wnw__rules_free(struct wnw__rules *r);

#endif
