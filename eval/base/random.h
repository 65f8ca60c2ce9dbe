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

static inline uint64_t eval_random_rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static inline uint64_t eval_random_next(struct eval_random *r)
{
    const uint64_t out = eval_random_rotate(r->s[1] * 5, 7) * 9, t = r->s[1] << 17;
    r->s[2] ^= r->s[0];
    r->s[3] ^= r->s[1];
    r->s[1] ^= r->s[2];
    r->s[0] ^= r->s[3];
    r->s[2] ^= t;
    r->s[3] = eval_random_rotate(r->s[3], 45);
    return out;
}

/* A number of 64 bits whose remainder by n > 0 is as likely to be each. Drawing the highest 2^64 mod n numbers would favour small
 * remainders; there are (2^64 - n) mod n of them, fewer than n, so that what they take is hardly ever computed. */
static inline uint64_t eval_random_fair(struct eval_random *r, uint64_t n)
{
    uint64_t x = eval_random_next(r);
    if (x > UINT64_MAX - n)
        for (const uint64_t surplus = (0 - n) % n; x > UINT64_MAX - surplus;)
            x = eval_random_next(r);
    return x;
}

/* A uniform number in 0 .. n - 1, without bias; n > 0. */
uint64_t eval_random_below(struct eval_random *r, uint64_t n);

/* For many numbers below one n: the division by it is done once, and each number takes a product in its place. */
struct eval_range {
    uint64_t n, inverse; /* inverse: 2^64 / n, rounded down, or 1 less */
};

static inline struct eval_range eval_range_of(uint64_t n)
{
    return (struct eval_range){n, UINT64_MAX / n};
}

/* x mod n. The product with the inverse is less than 1 below x / n, so that its whole part is the quotient or 1 less. */
static inline uint64_t eval_range_remainder(const struct eval_range *range, uint64_t x)
{
#ifdef __SIZEOF_INT128__
    __extension__ typedef unsigned __int128 wide;
    const uint64_t quotient = (uint64_t)((wide)x * range->inverse >> 64), rest = x - quotient * range->n;
    return rest < range->n ? rest : rest - range->n;
#else
    return x % range->n;
#endif
}

/* The number that eval_random_below draws. */
static inline uint64_t eval_random_within(struct eval_random *r, const struct eval_range *range)
{
    return eval_range_remainder(range, eval_random_fair(r, range->n));
}

/* A uniform number in [0, 1). */
double eval_random_uniform(struct eval_random *r);
/* Puts ids[n] in random order. */
void eval_random_shuffle(struct eval_random *r, size_t *ids, size_t n);
/* Moves k random elements of ids[n] to the front, in random order; k <= n. */
void eval_random_sample(struct eval_random *r, size_t *ids, size_t n, size_t k);

#endif
