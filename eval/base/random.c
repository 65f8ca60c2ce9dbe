/* SPDX-License-Identifier: MIT */
/* Random numbers: FNV-1a, splitmix64 and xoshiro256** (Blackman and Vigna). */
#include "eval/base/random.h"

#include <string.h>

uint64_t eval_fnv(const void *s, size_t len)
{
    const unsigned char *bytes = s;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < len; i++)
        h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}

uint64_t eval_fnv_more(uint64_t hash, const void *s, size_t len)
{
    return hash * UINT64_C(0x100000001b3) ^ eval_fnv(s, len);
}

static uint64_t splitmix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

struct eval_random eval_random_seed(uint64_t seed)
{
    struct eval_random r;
    for (int i = 0; i < 4; i++)
        r.s[i] = splitmix(&seed);
    return r;
}

struct eval_random eval_random_key(const char *key)
{
    return eval_random_seed(eval_fnv(key, strlen(key)));
}

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

uint64_t eval_random_next(struct eval_random *r)
{
    const uint64_t out = rotate(r->s[1] * 5, 7) * 9, t = r->s[1] << 17;
    r->s[2] ^= r->s[0];
    r->s[3] ^= r->s[1];
    r->s[1] ^= r->s[2];
    r->s[0] ^= r->s[3];
    r->s[2] ^= t;
    r->s[3] = rotate(r->s[3], 45);
    return out;
}

uint64_t eval_random_below(struct eval_random *r, uint64_t n)
{
    /* Drawing the highest 2^64 mod n numbers would favour small remainders; there are (2^64 - n) mod n of
     * them. */
    const uint64_t surplus = (0 - n) % n;
    uint64_t x;
    do
        x = eval_random_next(r);
    while (x > UINT64_MAX - surplus);
    return x % n;
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
