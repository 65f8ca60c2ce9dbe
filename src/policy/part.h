/* SPDX-License-Identifier: MIT */
/*
 * The parts of the library. One part = one file = one const descriptor of winnow_method.h, and one line in
 * parts.def, which parts.h makes declarations of. A program that registers its own part describes it by the same descriptor.
 *
 *   scorer:       observation of one layer      -> score[n_head][n] or     src/score/
 *                                                  score[n_head_kv][n]
 *   aggregation:  scores of a layer's heads     -> score[n_head_kv][n]     src/aggregate/
 *   layer budget: one count for the whole model -> one count per layer     src/budget/
 *   head budget:  count of a layer, its scores  -> one count per KV head   src/budget/
 *   selector:     scores and count of one head  -> kept entries            src/select/
 *   positions:    kept entries                  -> their positions         src/positions/
 *   contents:     kept and dropped entries      -> merges, pruned channels src/contents/
 *
 * Only the driver (src/plan) knows the order of the steps.
 */
#ifndef WNW_PART_H
#define WNW_PART_H

#include "base/err.h"
#include "winnow_method.h"

#define WNW_N_PART_KINDS 7

/* Number of blocks that are thinned among n entries: all complete blocks after the sinks except the last. */
static inline int32_t wnw__blocks_thinned(const wnw_blocks *b, int32_t n)
{
    return n < b->sink || (n - b->sink) / b->lag < 2 ? 0 : (n - b->sink) / b->lag - 1;
}

/* The fewest of n entries that blocks leave: the sinks, the last blocks, and one entry of every block that is
 * thinned, because a block that keeps none is no longer part of the method. */
static inline int32_t wnw__blocks_least(const wnw_blocks *b, int32_t n)
{
    return n - wnw__blocks_thinned(b, n) * (b->lag - 1);
}

/* A layer budget with the option `rounding` has an options struct that begins with this. */
struct wnw__layer_opts {
    int32_t rounding; /* wnw_rounding, for every count of the policy */
};
#define WNW_OPTION_ROUNDING                                                                                 \
    {                                                                                                       \
        .name = "rounding", .help = "exact: floor(x + 1e-6); trunc: bare truncation, as kvpress does",      \
        .type = WNW_OPT_ENUM, .offset = offsetof(struct wnw__layer_opts, rounding), .def = WNW_ROUND_EXACT, \
        .choices = wnw__rounding_choices                                                                    \
    }
extern const char *const wnw__rounding_choices[];
/* The row of an option table for the member `norm`, a wnw_proj_norm. */
#define WNW_OPTION_PROJ_NORM(opts)                                                                      \
    {                                                                                                   \
        .name = "norm", .help = "norm of the values after the output projection", .type = WNW_OPT_ENUM, \
        .offset = offsetof(opts, norm), .def = WNW_PROJ_L2, .choices = wnw__proj_norm_choices           \
    }
extern const char *const wnw__proj_norm_choices[];

/* Calls work(i, user) for every i of 0 .. n - 1, on the session's threads where the observation has some. */
static inline void wnw__observation_each(const wnw_observation *obs, int32_t n,
                                         void (*work)(int32_t i, void *user), void *user)
{
    if (obs->each) {
        obs->each(obs, n, work, user);
        return;
    }
    for (int32_t i = 0; i < n; i++)
        work(i, user);
}

/* Whether the content rule ever writes into entries. */
static inline bool wnw__contents_works(const wnw_contents *c)
{
    return c->merge || c->prune || c->fit;
}

/* ---- The lists ---- */

/* A copy of a descriptor of any kind. */
union wnw__part {
    wnw_part head;
    wnw_scorer scorer;
    wnw_aggregation aggregation;
    wnw_layer_budget layer;
    wnw_head_budget heads;
    wnw_selector selector;
    wnw_positions positions;
    wnw_contents contents;
};

/* Part i of all kinds in a fixed order; NULL past the end. */
const wnw_part *wnw__part_get(int32_t i);
/* The part of this name; NULL if there is none. */
const wnw_part *wnw__part_find(const char *name, size_t len);
/* Size in bytes of a descriptor of the kind; 0 if there is no such kind. */
size_t wnw__part_size(wnw_part_kind kind);
const char *wnw__part_kind_name(wnw_part_kind kind);
/* WNW_FLAG_ bits that a part of the kind may have. */
uint32_t wnw__part_flags(wnw_part_kind kind);
/* Whether the part belongs to the library, so that its functions set an error sentence when they fail. */
bool wnw__part_is_ours(const wnw_part *part);
/* Turns the result rc of a part's function into a status. A failed function of a registered part gets a
 * sentence. */
int wnw__part_status(const wnw_part *part, int rc);
/* E_ARG where the part's options contradict each other, or make it ask for something that does not exist
 * (part_check.c). */
int wnw__part_check(const wnw_part *part, const void *opts);
/* E_ARG in the name of `owner` unless the blocks' sizes are in range. */
int wnw__blocks_check(const char *owner, const wnw_blocks *b);
/* Whether parts of the kind may gather. */
bool wnw__part_gathers(wnw_part_kind kind);

#endif
