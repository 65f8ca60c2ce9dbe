/* SPDX-License-Identifier: MIT */
/* The common part of the two halves of Compactor, which are scorers of their own too. */
#ifndef WNW_SCORE_COMPACTOR_H
#define WNW_SCORE_COMPACTOR_H

#include "policy/part.h"

/* Entries of every head that are left out at both ends, as if they were not there; their score is 0. */
struct wnw__trim {
    int32_t first, last;
};

/* Entries of head ih after the trimmed ones: [*first, returned end). */
static inline int32_t wnw__trimmed(const wnw_observation *obs, int32_t ih, struct wnw__trim trim,
                                   int32_t *first)
{
    *first = trim.first < obs->n_entry[ih] ? trim.first : obs->n_entry[ih];
    return obs->n_entry[ih] - trim.last > *first ? obs->n_entry[ih] - trim.last : *first;
}

/* Shifts and scales scores to mean 0 and variance 1 (divisor count - 1) over all heads of the layer; all
 * become 0 if they are equal. */
void wnw__standardise(const wnw_observation *obs, struct wnw__trim trim, float *score);

#endif
