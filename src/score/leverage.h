/* SPDX-License-Identifier: MIT */
/* Leverage scores of keys: a scorer of its own, and half of Compactor. */
#ifndef WNW_LEVERAGE_H
#define WNW_LEVERAGE_H

#include "score/compactor.h"

struct wnw__leverage_opts {
    int32_t sketch; /* columns, 1 .. WNW_MAX_SKETCH */
    int32_t seed;
};
enum { WNW_MAX_SKETCH = 64 };
size_t wnw__leverage_scratch(const struct wnw__leverage_opts *o, const wnw_observation *obs);
int wnw__leverage(const struct wnw__leverage_opts *o, const wnw_observation *obs, struct wnw__ends ends,
                  float *score, float *scratch);

#endif
