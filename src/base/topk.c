/* SPDX-License-Identifier: MIT */
#include "base/topk.h"

#include <string.h>

uint32_t wnw__score_key(float x)
{
    x += 0.0f; /* -0 becomes +0 */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct wnw__cut wnw__topk_cut(const float *score, int64_t n, int64_t k)
{
    if (k <= 0)
        return (struct wnw__cut){.key = UINT32_MAX, .n_tie = 0};

    /* Byte by byte from the top, this finds the value that the k-th best has among keys with the same
     * prefix. */
    uint32_t prefix = 0, mask = 0;
    int64_t left = k;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t count[256] = {0};
        for (int64_t i = 0; i < n; i++) {
            const uint32_t key = wnw__score_key(score[i]);
            count[(key >> shift) & 0xffu] += (key & mask) == prefix;
        }
        uint32_t byte = 255;
        while (byte > 0 && left > count[byte])
            left -= count[byte--];
        prefix |= byte << shift;
        mask |= 0xffu << shift;
    }
    return (struct wnw__cut){.key = prefix, .n_tie = left};
}

int32_t wnw__topk(const float *score, int32_t n, int32_t k, int32_t first, int32_t *out)
{
    k = k < 0 ? 0 : k > n ? n : k;
    struct wnw__cut cut = wnw__topk_cut(score, n, k);
    int32_t m = 0;
    for (int32_t i = 0; i < n && m < k; i++)
        if (wnw__cut_take(&cut, score[i]))
            out[m++] = first + i;
    return m;
}

int32_t wnw__topk_late(const float *score, int32_t n, int32_t k, int32_t first, int32_t *out)
{
    k = k < 0 ? 0 : k > n ? n : k;
    const struct wnw__cut cut = wnw__topk_cut(score, n, k);
    int64_t skip = -cut.n_tie; /* number of scores equal to the cut that come before the taken ones */
    for (int32_t i = 0; i < n; i++)
        skip += wnw__score_key(score[i]) == cut.key;
    int32_t m = 0;
    for (int32_t i = 0; i < n && m < k; i++) {
        const uint32_t key = wnw__score_key(score[i]);
        if (key > cut.key || (key == cut.key && skip-- <= 0))
            out[m++] = first + i;
    }
    return m;
}

/* Puts x where it belongs in the heap h[n] whose top, the lowest value, has been taken out at `at`. */
static void sift(float *h, int64_t n, int64_t at, float x)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && h[child + 1] < h[child])
            child++;
        if (!(h[child] < x))
            break;
        h[at] = h[child];
    }
    h[at] = x;
}

void wnw__sort_descending(float *x, int32_t n)
{
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sift(x, n, i, x[i]);
    for (int64_t last = (int64_t)n - 1; last > 0; last--) {
        const float moved = x[last];
        x[last] = x[0];
        sift(x, last, 0, moved);
    }
}

double wnw__topk_sum(const float *x, int32_t n, int32_t k)
{
    if (!x || n < 1)
        return 0;
    k = k < 0 ? 0 : k > n ? n : k;
    struct wnw__cut cut = wnw__topk_cut(x, n, k);
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += wnw__cut_take(&cut, x[i]) ? x[i] : 0;
    return sum;
}
