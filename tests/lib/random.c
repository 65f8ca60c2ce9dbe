/* SPDX-License-Identifier: MIT */
#include "random.h"

#include <math.h>
#include <stdlib.h>

#include "asserts.h"

uint64_t test_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int32_t *test_random_tokens(int32_t n, int32_t n_vocab, uint64_t seed)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    assert_non_null(ids);
    for (int32_t i = 0; i < n; i++)
        ids[i] = (int32_t)(test_random(&seed) % (uint64_t)n_vocab);
    return ids;
}

uint32_t test_lcg(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

float test_uniform(uint32_t *state)
{
    return (float)test_lcg(state) / (float)(1u << 24);
}

float test_signed(uint32_t *state)
{
    return (float)test_lcg(state) / 8388608.0f - 1.0f;
}

/* In (0, 1): its logarithm exists. */
static double open_uniform(uint32_t *state)
{
    return ((double)test_lcg(state) + 0.5) / (double)(1u << 24);
}

double test_normal(uint32_t *state)
{
    const double r = sqrt(-2 * log(open_uniform(state)));
    return r * cos(6.283185307179586 * open_uniform(state));
}

float *test_random_floats(size_t n, uint32_t seed, float scale)
{
    float *x = malloc((n + 1) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = scale * test_signed(&seed);
    return x;
}
