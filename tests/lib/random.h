/* SPDX-License-Identifier: MIT */
/* Random numbers that depend on the seed alone, the same on every machine. */
#ifndef WNW_TESTS_RANDOM_H
#define WNW_TESTS_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Next number of a 64-bit generator (splitmix64). */
uint64_t test_random(uint64_t *state);
/* n token ids in 0..n_vocab-1. Released with free. */
int32_t *test_random_tokens(int32_t n, int32_t n_vocab, uint64_t seed);

/* A linear congruential generator of 32 bits, whose upper 24 bits are used. */
uint32_t test_lcg(uint32_t *state);
/* In [0, 1). */
float test_uniform(uint32_t *state);
/* In [-1, 1). */
float test_signed(uint32_t *state);
/* Standard normal. */
double test_normal(uint32_t *state);
/* n numbers in [-scale, scale), by test_lcg. Released with free; never NULL. */
float *test_random_floats(size_t n, uint32_t seed, float scale);

#endif
