/* SPDX-License-Identifier: MIT */
/* A parsed recipe: one part of each kind with its options, immutable after parsing. Recipes are made of the parts of
 * parts.def, of presets, and of parts that programs register. */
#ifndef WNW_POLICY_H
#define WNW_POLICY_H

#include "base/shape.h"
#include "policy/part.h"
#include "winnow_method.h"
#include "winnow_tools.h"

struct wnw_policy {
    union wnw__part part[WNW_N_PART_KINDS]; /* by wnw_part_kind */
    void *opts[WNW_N_PART_KINDS];           /* owned, never NULL in a finished policy */
    uint32_t flags[WNW_N_PART_KINDS];       /* WNW_FLAG_ bits of each part with these options */
    wnw_rounding rounding;                  /* of every count */
    char *text;                             /* canonical form, owned */
};

/* The parts, so that one can write wnw__head_budget_of(p)->allocate. */
static inline const wnw_scorer *wnw__scorer_of(const wnw_policy *p)
{
    return &p->part[WNW_PART_SCORER].scorer;
}
static inline const wnw_aggregation *wnw__aggregation_of(const wnw_policy *p)
{
    return &p->part[WNW_PART_AGGREGATION].aggregation;
}
static inline const wnw_layer_budget *wnw__layer_budget_of(const wnw_policy *p)
{
    return &p->part[WNW_PART_LAYER_BUDGET].layer;
}
static inline const wnw_head_budget *wnw__head_budget_of(const wnw_policy *p)
{
    return &p->part[WNW_PART_HEAD_BUDGET].heads;
}
static inline const wnw_selector *wnw__selector_of(const wnw_policy *p)
{
    return &p->part[WNW_PART_SELECTOR].selector;
}
static inline const wnw_contents *wnw__contents_of(const wnw_policy *p)
{
    return &p->part[WNW_PART_CONTENTS].contents;
}
static inline bool wnw__policy_has(const wnw_policy *p, wnw_part_kind kind, uint32_t flag)
{
    return p->flags[kind] & flag;
}
/* The policy's name in messages is that of its scorer. */
static inline const char *wnw__policy_name(const wnw_policy *p)
{
    return wnw__scorer_of(p)->part.name;
}

/* Parses a recipe whose first name is a scorer even if a preset has the same name. */
int wnw__policy_parse_parts(wnw_policy **out, const char *recipe);
/* Refuses parts that do not go together, for a policy whose parts, options and flags are set. E_ARG */
int wnw__policy_check_parts(const wnw_policy *p);

/* "score", "aggregate", "layer", ...: what a recipe may call a kind of part; NULL past the last. Static. */
const char *wnw__slot_name(int32_t kind);

/* Whether the scorer keeps every entry ("full"); contents of entries may still be changed. */
bool wnw__policy_keeps_all(const wnw_policy *p);
/* Whether the policy writes into entries also in layers where every entry stays. */
bool wnw__policy_rewrites_all(const wnw_policy *p);

/* "uniform", "layer", "composite" or "ragged". Static. */
const char *wnw__policy_layout(const wnw_policy *p);

/* WNW_FLAG_MATCHES_LAYERS if any part has it, else WNW_FLAG_MATCHES_HEADS if any part has it, else 0: no part
 * compares entries of one position. */
uint32_t wnw__policy_matches(const wnw_policy *p);
/* Whether the policy takes positions for the age of entries. */
bool wnw__policy_counts_age(const wnw_policy *p);
/* The entries that stay regardless of their score, limited to those that the head holds. */
wnw_protected wnw__policy_keep(const wnw_policy *p, const wnw_keep_problem *problem);
/* As wnw__policy_keep, with scorer_opts in place of the policy's. */
wnw_protected wnw__policy_keep_with(const wnw_policy *p, const void *scorer_opts,
                                    const wnw_keep_problem *problem);

/* E_ARG unless there are n policies, n >= 0. */
int wnw__policies_check(const wnw_policy *const *policies, int32_t n);
/* E_ARG where one session cannot record what n policies want, because they disagree about the tokens that
 * query statistics leave out. */
int wnw__observations_agree(const wnw_policy *const *policies, int32_t n);
/* E_ARG where n policies cannot be planned at once: as above, or they disagree about what a second pass
 * feeds. */
int wnw__needs_agree(const wnw_policy *const *policies, int32_t n);

/* Adds to `needs` what `more` asks for: all flags and profiles, the larger window. skip, second_pass and
 * sample are taken from `more` where it asks for them. */
void wnw__needs_merge(wnw_needs *needs, const wnw_needs *more);

int wnw__policy_copy(wnw_policy **out, const wnw_policy *p);

/* What the part of kind k asks for, both while it works and while it gathers. */
wnw_needs wnw__policy_part_needs(const wnw_policy *p, int32_t k);
/* The window, in tokens, of the part that asks for the prompt's perplexity; windows of other parts do not
 * matter. */
int32_t wnw__policy_perplexity_window(const wnw_policy *p);
/* Whether the policy leaves layer il whole by its own rule. */
bool wnw__policy_skips(const wnw_policy *p, int32_t il);
/* Whether the policy acts on layer il of a model of this shape. */
static inline bool wnw__policy_takes_layer(const wnw_policy *p, const struct wnw__shape *shape, int32_t il)
{
    return wnw__layer_takes_part(shape, il) && !wnw__policy_skips(p, il);
}

/* Whether the part of kind k gathers something over all layers. */
bool wnw__policy_gathers(const wnw_policy *p, int32_t k);
/* Whether counts or selection need the scores of all layers. */
bool wnw__policy_sees_all_layers(const wnw_policy *p);

/* Whether the policy settles blocks of entries one after another, at times of its own choice (LagKV). */
bool wnw__policy_is_recursive(const wnw_policy *p);
/* Whether heads that a prompt's compression has cut keep their number of entries while decoding
 * (DuoAttention). */
bool wnw__policy_slides(const wnw_policy *p);
/* Whether a size counts only chosen entries, and protected ones come on top (a form of CompilerKV's gate). */
bool wnw__policy_protects_apart(const wnw_policy *p);
/* The scorer's blocks after the n_settled entries that are settled already; lag is 0 for a scorer without
 * blocks. */
wnw_blocks wnw__policy_blocks(const wnw_policy *p, int32_t n_settled);
/* As wnw__policy_blocks, with scorer_opts in place of the policy's. */
wnw_blocks wnw__policy_blocks_with(const wnw_policy *p, const void *scorer_opts, int32_t n_settled);
/* E_MISMATCH if the policy cannot work without a kind of results that the profile (may be NULL) lacks. */
int wnw__policy_check_profile(const wnw_policy *p, const wnw_profile *profile);

/* ---- Presets: named recipes, as rows of data (presets.txt) ---- */

struct wnw__preset {
    const char *name, *about, *paper;
    const char *details; /* facts that the parts' own texts do not state; NULL = none */
    /* A scorer and parts, with the options that differ from their defaults. Unlike in a user's recipe, an option reaches the part
     * that it follows and no other one. */
    const char *recipe;
    bool parity; /* reproduces another program's or paper's setting */
};

extern const struct wnw__preset wnw__presets[]; /* [wnw__n_presets] */
extern const int32_t wnw__n_presets;
/* Preset i; NULL past the end. */
const struct wnw__preset *wnw__preset_get(int32_t i);
const struct wnw__preset *wnw__preset_find(const char *name, size_t len);

/* ---- Parts that programs register ---- */

struct wnw_registry {
    const wnw_part **parts; /* borrowed descriptors */
    int32_t n, cap;
};

/* The part of this name; NULL if there is none or r is NULL. */
const wnw_part *wnw__registry_find(const wnw_registry *r, const char *name, size_t len);

#endif
