/* SPDX-License-Identifier: MIT */
/* The two halves of Compactor, which are scorers of their own too. */
#ifndef WNW_SCORE_COMPACTOR_H
#define WNW_SCORE_COMPACTOR_H

#include "policy/method.h"

/* Entries of every head that are left out at both ends, as if they were not there; their score is 0. */
struct wnw__trim {
    int32_t first, last;
};

/* Entries of head ih behind the trimmed ones: [*first, returned end). */
static inline int32_t wnw__trimmed(const wnw_observation *obs, int32_t ih, struct wnw__trim trim,
                                   int32_t *first)
{
    *first = trim.first < obs->n_entry[ih] ? trim.first : obs->n_entry[ih];
    return obs->n_entry[ih] - trim.last > *first ? obs->n_entry[ih] - trim.last : *first;
}

/* Scores to mean 0 and variance 1 (divisor count - 1) over all heads of the layer; all 0 if they are equal.
 */
void wnw__standardise(const wnw_observation *obs, struct wnw__trim trim, float *score);

struct wnw__leverage_opts {
    int32_t sketch; /* columns, 1 .. WNW_MAX_SKETCH */
    int32_t seed;
};
enum { WNW_MAX_SKETCH = 64 };
size_t wnw__leverage_scratch(const struct wnw__leverage_opts *o, const wnw_observation *obs);
int wnw__leverage(const struct wnw__leverage_opts *o, const wnw_observation *obs, struct wnw__trim trim,
                  float *score, float *scratch);

struct wnw__noncausal_opts {
    int32_t chunk;
    int32_t pool;
    int32_t scaled;
    int32_t padded;
};
size_t wnw__noncausal_scratch(const struct wnw__noncausal_opts *o, const wnw_observation *obs);
int wnw__noncausal(const struct wnw__noncausal_opts *o, const wnw_observation *obs, struct wnw__trim trim,
                   float *score, float *scratch);

#endif
