/* SPDX-License-Identifier: MIT */
/* Building a keep-plan head by head. */
#ifndef WNW_PLAN_H
#define WNW_PLAN_H

#include "base/err.h"
#include "winnow_method.h"

/* What is written into the kept entries of one head. Merges name entries by position, as a plan does
 * throughout. */
struct wnw__plan_contents {
    wnw_merge *merges;                    /* [n_merge] */
    int32_t *channels;                    /* [n_channel] */
    int32_t n_merge, n_channel, n_spared; /* n_spared: last entries whose channels stay */
    float *bias, *values; /* of the kept entries, [n_keep], [n_keep][n_embd_head]; NULL = as they are */
    int32_t n_embd_head;
    float *note; /* [n_keep] what the selector noted of the kept entries; NULL = nothing */
};

struct wnw_plan {
    int32_t n_layer, n_head_kv, n_tokens;
    int32_t *n_settled;                  /* [n_layer] first kept entries of every head that are settled */
    int32_t n_head_done;                 /* heads added so far, in order of layer, then head */
    int64_t *off;                        /* [n_layer * n_head_kv + 1] first entry of each head in pos */
    int32_t *pos;                        /* kept positions, one head after another */
    int64_t cap;                         /* entries that pos has room for */
    struct wnw__plan_contents *contents; /* [n_layer * n_head_kv], or NULL: nothing is written */
    bool averages; /* every value to which others were added is divided by 1 + the sum of their weights */
};

/* Makes an empty plan, to which n_layer * n_head_kv heads must be added. The caller frees it
 * (wnw_plan_free). */
int wnw__plan_begin(wnw_plan **out, int32_t n_layer, int32_t n_head_kv, int32_t n_tokens);
/* Makes room for the contents of all heads, which are empty at first. */
int wnw__plan_begin_contents(wnw_plan *p, bool averages);
/* Sets what is written into the kept entries of head i = il * n_head_kv + ih; the arrays are copied. */
int wnw__plan_set_contents(wnw_plan *p, int64_t i, const wnw_merge *merges, int32_t n_merge,
                           const int32_t *channels, int32_t n_channel, int32_t n_spared);
/* Sets the biases [n] and the values [n][d] of the n kept entries of head i; copied. Either may be NULL. */
int wnw__plan_set_fitted(wnw_plan *p, int64_t i, int32_t n, int32_t d, const float *bias,
                         const float *values);
/* Sets the notes [n] of the n kept entries of head i; copied. */
int wnw__plan_set_notes(wnw_plan *p, int64_t i, int32_t n, const float *note);
/* The contents [n_head_kv] of layer il, borrowed from the plan, or NULL. */
const struct wnw__plan_contents *wnw__plan_contents_of(const wnw_plan *p, int32_t il);
/* Adds the next head, of n positions. The caller fills the returned array before adding another. NULL: memory
 * is missing. */
int32_t *wnw__plan_add_head(wnw_plan *p, int32_t n);

#endif
