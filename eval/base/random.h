/* SPDX-License-Identifier: MIT */
/* Random numbers for samples and intervals. Each key has a stream of its own, which is the same on every
 * machine. */
#ifndef WNW_EVAL_RANDOM_H
#define WNW_EVAL_RANDOM_H

#include "base/random.h"

/* xoshiro256**, its state filled by splitmix64. */
struct eval_random {
    uint64_t s[4];
};
struct eval_random eval_random_seed(uint64_t seed);
/* The stream of a key such as "niah_single_1|4096|0|42". */
struct eval_random eval_random_key(const char *key);

uint64_t eval_random_next(struct eval_random *r);
/* A uniform number in 0 .. n - 1, without bias; n > 0. */
uint64_t eval_random_below(struct eval_random *r, uint64_t n);
/* A uniform number in [0, 1). */
double eval_random_uniform(struct eval_random *r);
/* Puts ids[n] in random order. */
void eval_random_shuffle(struct eval_random *r, size_t *ids, size_t n);
/* Moves k random elements of ids[n] to the front, in random order; k <= n. */
void eval_random_sample(struct eval_random *r, size_t *ids, size_t n, size_t k);

#endif
