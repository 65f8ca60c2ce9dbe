/* SPDX-License-Identifier: MIT */
/* The values that a plan's merges give to kept entries, wherever entries are stored. */
#ifndef WNW_MERGE_H
#define WNW_MERGE_H

#include "base/err.h"
#include "plan/plan.h"

/* The entries of one head and what becomes of them. Borrowed. */
struct wnw__merge_head {
    const struct wnw__plan_contents *contents;
    bool averages;       /* as in struct wnw_plan */
    const int32_t *pos;  /* [n] positions of the entries, ascending */
    const int32_t *keep; /* [n_keep] entries that stay, ascending */
    int32_t n, n_keep, d;
    /* Converts the value of an entry to dst[d]. */
    void (*read)(const void *of, int32_t entry, float *dst);
    const void *of;
};

/* New values of kept entries. */
struct wnw__merged {
    float *value;  /* [n_keep][d] */
    bool *changed; /* [n_keep] whether something is merged into the entry; else its value is not set */
};

/* E_MISMATCH unless the head holds every entry that is merged into another, the plan drops it, the entry merged into stays,
 * and every pruned channel exists. il, ih: for the message. */
int wnw__merge_check(const struct wnw__merge_head *h, int32_t il, int32_t ih);
/* Computes, in float32 and in the order of the plan,
 *
 *     v_t <- v_t + sum w v_from           divided by 1 + sum w with `averages`
 *
 * The caller frees *out with wnw__merged_free, after a failure too. Entries whose merges wnw__merge_check accepts. */
int wnw__merge_values(struct wnw__merged *out, const struct wnw__merge_head *h);
void wnw__merged_free(struct wnw__merged *m);

#endif
