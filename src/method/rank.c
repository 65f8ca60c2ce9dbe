/* SPDX-License-Identifier: MIT */
#include "method/rank.h"

#include "base/topk.h"

#include <string.h>

/* How many of sorted[n], highest first, are above x. */
static int32_t count_above(const float *sorted, int32_t n, float x)
{
    int32_t low = 0, high = n;
    while (low < high) {
        const int32_t mid = low + (high - low) / 2;
        if (sorted[mid] > x)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

void wnw__ranks(const float *score, int32_t n, float *rank, float *sorted)
{
    if (n < 1)
        return;
    memcpy(sorted, score, (size_t)n * sizeof *sorted);
    wnw__sort_descending(sorted, n);
    for (int32_t i = 0; i < n; i++)
        rank[i] = (float)count_above(sorted, n, score[i]);
}
