/* SPDX-License-Identifier: MIT */
/* Attention without the causal mask, for the scorers noncausal and compactor. */
#ifndef WNW_SCORE_NONCAUSAL_H
#define WNW_SCORE_NONCAUSAL_H

#include "score/score.h"

struct wnw__noncausal_opts {
    int32_t chunk;
    int32_t pool;
    int32_t scaled;
    int32_t padded;
};
#define WNW_OPTION_CHUNK(opts, at)                                                        \
    {                                                                                     \
        .name = "chunk", .help = "tokens that attend to each other", .type = WNW_OPT_INT, \
        .offset = offsetof(opts, at), .def = 256, .min = 1, .max = 4096                   \
    }
#define WNW_OPTION_CHUNK_POOL(opts, at)                                                               \
    {                                                                                                 \
        .name = "pool", .help = "width of the pooling along the positions, odd", .type = WNW_OPT_INT, \
        .offset = offsetof(opts, at), .def = 3, .min = 1, .max = 1023                                 \
    }
#define WNW_OPTION_SCALED(opts, at)                                                              \
    {                                                                                            \
        .name = "scaled", .help = "logits as the model scales them; 0: bare products (kvpress)", \
        .type = WNW_OPT_BOOL, .offset = offsetof(opts, at), .def = 1                             \
    }
#define WNW_OPTION_PADDED(opts, at)                                                           \
    {                                                                                         \
        .name = "padded",                                                                     \
        .help = "fill the last chunk up with zero keys and queries that take part (kvpress)", \
        .type = WNW_OPT_BOOL, .offset = offsetof(opts, at)                                    \
    }
/* E_ARG: the pooling's width is even. The sentence begins with the owner. */
int wnw__noncausal_check(const char *owner, const struct wnw__noncausal_opts *o);
size_t wnw__noncausal_scratch(const struct wnw__noncausal_opts *o, const wnw_observation *obs);
int wnw__noncausal(const struct wnw__noncausal_opts *o, const wnw_observation *obs, struct wnw__ends ends,
                   float *score, float *scratch);

#endif
