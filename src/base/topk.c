/* SPDX-License-Identifier: MIT */
#include "base/topk.h"
#include "base/clamp.h"

#include <string.h>

uint32_t wnw__score_key(float x)
{
    x += 0.0f; /* -0 becomes +0 */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

void wnw__cut_count(struct wnw__cut_search *s, const float *score, int64_t n)
{
    const uint32_t known = s->key, mask = s->mask;
    const int shift = s->shift;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t key = wnw__score_key(score[i]);
        s->count[(key >> shift) & 0xffu] += (key & mask) == known;
    }
}

bool wnw__cut_next(struct wnw__cut_search *s)
{
    uint32_t byte = 255;
    while (byte > 0 && s->left > s->count[byte])
        s->left -= s->count[byte--];
    s->key |= byte << s->shift;
    s->mask |= 0xffu << s->shift;
    s->shift -= 8;
    memset(s->count, 0, sizeof s->count);
    return s->shift >= 0;
}

struct wnw__cut wnw__topk_cut(const float *score, int64_t n, int64_t k)
{
    struct wnw__cut_search s = {.shift = 24, .left = k};
    if (k <= 0)
        return (struct wnw__cut){.key = UINT32_MAX, .n_tie = 0};
    do
        wnw__cut_count(&s, score, n);
    while (wnw__cut_next(&s));
    return (struct wnw__cut){.key = s.key, .n_tie = s.left};
}

int32_t wnw__topk(const float *score, int32_t n, int32_t k, int32_t first, int32_t *out)
{
    k = (int32_t)wnw__clamp(k, 0, n);
    struct wnw__cut cut = wnw__topk_cut(score, n, k);
    int32_t m = 0;
    for (int32_t i = 0; i < n && m < k; i++)
        if (wnw__cut_take(&cut, score[i]))
            out[m++] = first + i;
    return m;
}

int32_t wnw__topk_late(const float *score, int32_t n, int32_t k, int32_t first, int32_t *out)
{
    k = (int32_t)wnw__clamp(k, 0, n);
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
    k = (int32_t)wnw__clamp(k, 0, n);
    struct wnw__cut cut = wnw__topk_cut(x, n, k);
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += wnw__cut_take(&cut, x[i]) ? x[i] : 0;
    return sum;
}
