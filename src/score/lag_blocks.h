/* SPDX-License-Identifier: MIT */
/* The common part of scorers whose scores belong to consecutive blocks (LagKV and its baselines): S sinks are
 * followed by blocks of L entries. The last complete block and the remainder are never touched. */
#ifndef WNW_LAG_BLOCKS_H
#define WNW_LAG_BLOCKS_H

#include "policy/part.h"

/* The options struct of such a scorer begins with this. */
struct wnw__lag_opts {
    int32_t sink, lag, skip;
};
#define WNW_OPTIONS_LAG                                                                             \
    {.name = "sink",                                                                                \
     .help = "first tokens that always stay",                                                       \
     .type = WNW_OPT_INT,                                                                           \
     .offset = offsetof(struct wnw__lag_opts, sink),                                                \
     .def = 16,                                                                                     \
     .min = 0,                                                                                      \
     .max = 65536},                                                                                 \
        {.name = "lag",                                                                             \
         .help = "tokens of a block",                                                               \
         .type = WNW_OPT_INT,                                                                       \
         .offset = offsetof(struct wnw__lag_opts, lag),                                             \
         .def = 128,                                                                                \
         .min = 1,                                                                                  \
         .max = 65536},                                                                             \
    {                                                                                               \
        .name = "skip", .help = "first layers that are left whole (and not counted in a size)",     \
        .type = WNW_OPT_INT, .offset = offsetof(struct wnw__lag_opts, skip), .min = 0, .max = 65536 \
    }

/* The number of blocks of n entries that are thinned: all complete ones after the sinks but the last. */
int32_t wnw__lag_n_thinned(const struct wnw__lag_opts *o, int32_t n);

/* Hooks of the descriptor. */
bool wnw__lag_skips(const void *opts, int32_t il);
void wnw__lag_keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out);
void wnw__lag_blocks(const void *opts, wnw_blocks *out);
/* Halves the blocks, whose protected tail shrinks with them, until the tail and one entry per block fit into
 * n_keep, then gives up sinks. */
bool wnw__lag_fit(void *opts, int32_t n, int32_t n_keep);
extern const wnw_block_rule wnw__lag_rule; /* of both */

#endif
