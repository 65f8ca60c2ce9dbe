/* SPDX-License-Identifier: MIT */
/* Attention without the causal mask: a scorer of its own, and half of Compactor. */
#ifndef WNW_NONCAUSAL_H
#define WNW_NONCAUSAL_H

#include "score/compactor.h"

struct wnw__noncausal_opts {
    int32_t chunk;
    int32_t pool;
    int32_t scaled;
    int32_t padded;
};
size_t wnw__noncausal_scratch(const struct wnw__noncausal_opts *o, const wnw_observation *obs);
int wnw__noncausal(const struct wnw__noncausal_opts *o, const wnw_observation *obs, struct wnw__ends ends,
                   float *score, float *scratch);

#endif
