/* SPDX-License-Identifier: MIT */
/* The common part of the two halves of Compactor, which are scorers of their own too. */
#ifndef WNW_SCORE_COMPACTOR_H
#define WNW_SCORE_COMPACTOR_H

#include "policy/part.h"

/* Entries of every head that are left out at both ends, as if they were not there; their score is 0. */
struct wnw__ends {
    int32_t first, last;
};

/* Entries of head ih between the ends: [*first, returned end). */
static inline int32_t wnw__between_ends(const wnw_observation *obs, int32_t ih, struct wnw__ends ends,
                                        int32_t *first)
{
    *first = ends.first < obs->n_entry[ih] ? ends.first : obs->n_entry[ih];
    return obs->n_entry[ih] - ends.last > *first ? obs->n_entry[ih] - ends.last : *first;
}

/* Shifts and scales scores to mean 0 and variance 1 (divisor count - 1) over all heads of the layer; all
 * become 0 if they are equal. */
void wnw__standardise(const wnw_observation *obs, struct wnw__ends ends, float *score);

#endif
