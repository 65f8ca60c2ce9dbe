/* SPDX-License-Identifier: MIT */
/* Random numbers: xoshiro256** (Blackman and Vigna), its state filled by splitmix64. */
#include "eval/base/random.h"

#include "base/random.h"

#include <string.h>

struct eval_random eval_random_seed(uint64_t seed)
{
    struct eval_random r;
    for (int i = 0; i < 4; i++)
        r.s[i] = wnw__mix_next(&seed);
    return r;
}

struct eval_random eval_random_key(const char *key)
{
    return eval_random_seed(wnw__hash_of(key, strlen(key)));
}

uint64_t eval_random_below(struct eval_random *r, uint64_t n)
{
    return eval_random_fair(r, n) % n;
}

double eval_random_uniform(struct eval_random *r)
{
    return (double)(eval_random_next(r) >> 11) * 0x1p-53;
}

static void swap(size_t *a, size_t *b)
{
    const size_t t = *a;
    *a = *b;
    *b = t;
}

void eval_random_shuffle(struct eval_random *r, size_t *ids, size_t n)
{
    for (size_t i = n; i-- > 1;)
        swap(&ids[i], &ids[eval_random_below(r, i + 1)]);
}

void eval_random_sample(struct eval_random *r, size_t *ids, size_t n, size_t k)
{
    for (size_t i = 0; i < k; i++)
        swap(&ids[i], &ids[i + eval_random_below(r, n - i)]);
}
