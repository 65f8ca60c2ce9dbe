/* SPDX-License-Identifier: MIT */
/* Hashes, and random numbers from a counter: such a number depends on its index alone, not on numbers drawn
 * before. */
#ifndef WNW_BASE_RANDOM_H
#define WNW_BASE_RANDOM_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* ---- FNV-1a, 64 bits: compares contents that nobody has forged ---- */

#define WNW_HASH_START UINT64_C(0xcbf29ce484222325)
#define WNW_HASH_PRIME UINT64_C(0x100000001b3)

/* The hash of all bytes so far: h is that of the bytes before data[n], WNW_HASH_START where there are none. */
static inline uint64_t wnw__hash(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * WNW_HASH_PRIME;
    return h;
}

/* The hash of data[n] alone. */
static inline uint64_t wnw__hash_of(const void *data, size_t n)
{
    return wnw__hash(WNW_HASH_START, data, n);
}

/* The hash of a list of pieces, in which their borders count: h is that of the pieces before data[n],
 * WNW_HASH_START where there are none. It is not FNV-1a of the pieces in a row; identifiers of runs that are on
 * disk are made with it. */
static inline uint64_t wnw__hash_join(uint64_t h, const void *data, size_t n)
{
    return h * WNW_HASH_PRIME ^ wnw__hash_of(data, n);
}

/* ---- splitmix64 (Steele, Lea and Flood 2014) ---- */

/* Finaliser of splitmix64. */
static inline uint64_t wnw__mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The next number of a sequence. */
static inline uint64_t wnw__mix_next(uint64_t *state)
{
    const uint64_t z = wnw__mix(*state);
    *state += 0x9e3779b97f4a7c15u;
    return z;
}

/* A stream of its own for a seed, a layer and a KV head; entry i of it is wnw__mix(stream ^ i). */
static inline uint64_t wnw__stream(int32_t seed, int32_t il, int32_t ih)
{
    return wnw__mix(wnw__mix((uint64_t)seed << 32 | (uint32_t)il) ^ (uint64_t)ih);
}

/* Number i of the stream, uniform in [0, 1), a multiple of 2^-24. */
static inline float wnw__uniform(uint64_t stream, uint32_t i)
{
    return (float)(wnw__mix(stream ^ i) >> 40) / 16777216.0f;
}

/* Number i of the stream, normal with mean 0 and variance 1 (Box and Muller). */
static inline float wnw__normal(uint64_t stream, uint32_t i)
{
    const uint64_t bits = wnw__mix(stream ^ i);
    const double u = ((double)(bits >> 32) + 1) / 4294967296.0, v = (double)(uint32_t)bits / 4294967296.0;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

#endif
