/* SPDX-License-Identifier: MIT */
/*
 * Rows of Q4_K as ggml's CPU backend keeps them for its own products. Eight rows are one, a chunk of 256 columns after the
 * other. A chunk begins with d of each row and dmin of each row, 16 bits each. Then come 12 bytes for each block of 32 columns.
 * They have the scales and minima of the eight rows, in the form of those of eight blocks in a row of the file. Half-bytes are
 * last, 8 bytes of each row in turn. src/bridge/graph/by_eight.c checks that a process's ggml does so.
 */
#include "kernel/matmul.h"

enum { N = WNW_EIGHT, SCALES = 12, VALUES = 128 };

/* Turns eight rows of eight bytes. */
static void turn(uint64_t x[N])
{
    static const uint64_t mask[] = {UINT64_C(0x00ff00ff00ff00ff), UINT64_C(0x0000ffff0000ffff),
                                    UINT64_C(0x00000000ffffffff)};
    for (int step = 1, k = 0; step < N; step *= 2, k++)
        for (int i = 0; i < N; i++) {
            if (i & step)
                continue;
            const uint64_t other = (x[i] >> (8 * step) ^ x[i + step]) & mask[k];
            x[i + step] ^= other;
            x[i] ^= other << (8 * step);
        }
}

/* Eight numbers of six bits: the first four, and those whose upper two bits are elsewhere. */
static uint64_t six_bits(uint32_t first, uint32_t low)
{
    return (first & 0x3f3f3f3f) | (uint64_t)((low & 0x0f0f0f0f) | (first >> 6 & 0x03030303) << 4) << 32;
}

static void scales_of_blocks(const uint8_t *p, uint64_t *scale, uint64_t *min)
{
    uint32_t a, b, c;
    memcpy(&a, p, 4);
    memcpy(&b, p + 4, 4);
    memcpy(&c, p + 8, 4);
    *scale = six_bits(a, c);
    *min = six_bits(b, c >> 4);
}

static void scales_of_row(uint64_t scale, uint64_t min, uint8_t *p)
{
    const uint32_t s = (uint32_t)(scale >> 32), m = (uint32_t)(min >> 32);
    const uint32_t a = (uint32_t)scale | (s & 0x30303030) << 2, b = (uint32_t)min | (m & 0x30303030) << 2,
                   c = (s & 0x0f0f0f0f) | (m & 0x0f0f0f0f) << 4;
    memcpy(p, &a, 4);
    memcpy(p + 4, &b, 4);
    memcpy(p + 8, &c, 4);
}

void wnw__rows_of_eight(const uint8_t *eight, uint8_t (*rows)[WNW_EIGHT_UNIT])
{
    const uint8_t *scales = eight + 4 * N, *values = scales + SCALES * N;
    uint64_t scale[N], min[N];
    for (int i = 0; i < N; i++)
        scales_of_blocks(scales + SCALES * i, &scale[i], &min[i]);
    turn(scale);
    turn(min);
    for (int r = 0; r < N; r++) {
        memcpy(rows[r], eight + 2 * r, 2);
        memcpy(rows[r] + 2, eight + 2 * N + 2 * r, 2);
        scales_of_row(scale[r], min[r], rows[r] + 4);
        for (int at = 0; at < VALUES; at += 8)
            memcpy(rows[r] + 16 + at, values + at * N + 8 * r, 8);
    }
}
