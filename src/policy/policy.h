/* SPDX-License-Identifier: MIT */
/* A parsed recipe: one part of each kind with its options. Immutable after parsing. */
#ifndef WNW_POLICY_H
#define WNW_POLICY_H

#include "policy/part.h"

#define WNW_N_PART_KINDS 7

struct wnw_policy {
    struct wnw__part part[WNW_N_PART_KINDS]; /* by wnw_part_kind */
    void *opts[WNW_N_PART_KINDS];            /* owned, never NULL in a finished policy */
    char *text;                              /* canonical form, owned */
};

/* Parses a recipe whose first name is a scorer even if a preset has the same name. */
int wnw__policy_parse_parts(wnw_policy **out, const char *recipe);

/* Whether the scorer keeps everything ("full"), whatever is done with the contents of entries. */
bool wnw__policy_keeps_all(const wnw_policy *p);
/* Whether it has work to do with layers of which everything stays. */
bool wnw__policy_rewrites_all(const wnw_policy *p);

/* "uniform", "layer", "composite" or "ragged". Static. */
const char *wnw__policy_layout(const wnw_policy *p);

/* What of the policy compares entries of one position. */
enum wnw__matches wnw__policy_matches(const wnw_policy *p);
/* Whether it takes positions for the age of entries. */
bool wnw__policy_counts_age(const wnw_policy *p);

/* E_ARG unless there are n policies, n >= 0. */
int wnw__policies_check(const wnw_policy *const *policies, int32_t n);
/* E_ARG where one session cannot observe what n policies want: they disagree about the tokens that query
 * statistics leave out. */
int wnw__observations_agree(const wnw_policy *const *policies, int32_t n);
/* E_ARG where they cannot be planned at once either: they disagree about what a second pass feeds. */
int wnw__needs_agree(const wnw_policy *const *policies, int32_t n);

/* Adds what `more` asks for. */
void wnw__needs_merge(wnw_needs *needs, const wnw_needs *more);

int wnw__policy_copy(wnw_policy **out, const wnw_policy *p);

/* The window of the part that asks for the prompt's perplexity, whatever others observe. */
int32_t wnw__policy_perplexity_window(const wnw_policy *p);
/* Whether the policy leaves layer il whole by its own rule. */
bool wnw__policy_skips(const wnw_policy *p, int32_t il);

/* Whether the policy settles blocks of entries one after the other and decides itself when (LagKV). */
bool wnw__policy_is_recursive(const wnw_policy *p);
/* Whether heads that a prompt's compression has cut hold their count while decoding (DuoAttention). */
bool wnw__policy_slides(const wnw_policy *p);
/* Of a recursive policy: its blocks behind the n_final entries that are settled already; lag 0 where scores
 * have no blocks. */
struct wnw__blocks wnw__policy_blocks(const wnw_policy *p, int32_t n_final);
/* E_MISMATCH if the policy cannot work without a kind of results that the profile (may be NULL) lacks. */
int wnw__policy_check_profile(const wnw_policy *p, const wnw_profile *profile);

/* Rounding of every count of the policy. */
enum wnw__rounding wnw__policy_rounding(const wnw_policy *p);

#endif
