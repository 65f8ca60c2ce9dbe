/* SPDX-License-Identifier: MIT */
#include "calibrate/curve_solve.h"

#include <math.h>
#include <stdlib.h>

void wnw__curve_hull(double *worth, int32_t n, int32_t *length)
{
    int32_t n_pool =
        0; /* pools so far: means in worth[n_pool], lengths in length[n_pool], never after rank i */
    for (int32_t i = 0; i < n; i++) {
        double mean = worth[i];
        int32_t len = 1;
        while (n_pool > 0 && worth[n_pool - 1] < mean) {
            n_pool--;
            mean = (worth[n_pool] * length[n_pool] + mean * len) / (length[n_pool] + len);
            len += length[n_pool];
        }
        worth[n_pool] = mean;
        length[n_pool++] = len;
    }
    for (int32_t i = n; n_pool > 0;) {
        const double mean = worth[--n_pool];
        for (int32_t k = length[n_pool]; k > 0; k--)
            worth[--i] = mean;
    }
}

/* An entry that may go. */
struct entry {
    double worth;
    int32_t head, rank;
};

static int by_worth(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->worth != y->worth)
        return x->worth < y->worth ? -1 : 1;
    if (x->head != y->head)
        return x->head < y->head ? -1 : 1;
    return x->rank > y->rank ? -1 : x->rank < y->rank;
}

/* The entries of all heads that may go, in the order in which they do. */
static int64_t list_entries(const struct wnw__curve_head *heads, int32_t n_head, struct entry *list)
{
    int64_t n = 0;
    for (int32_t h = 0; h < n_head; h++) {
        const int32_t spare = heads[h].n_entry - heads[h].n_least;
        const int32_t from = heads[h].n_worth - (spare < heads[h].n_worth ? spare : heads[h].n_worth);
        for (int32_t rank = heads[h].n_worth - 1; rank >= from; rank--)
            list[n++] = (struct entry){.worth = heads[h].worth[rank], .head = h, .rank = rank};
    }
    qsort(list, (size_t)n, sizeof *list, by_worth);
    return n;
}

int wnw__curve_share_out(const struct wnw__curve_head *heads, int32_t n_head, const double *ratio,
                         int32_t n_ratio, int32_t *n_keep)
{
    int64_t n_all = 0, n_dropped = 0, n_worth = 0;
    for (int32_t h = 0; h < n_head; h++) {
        n_all += heads[h].n_entry;
        n_worth += heads[h].n_worth;
    }
    struct entry *list = malloc((size_t)(n_worth + 1) * sizeof *list);
    int32_t *count = malloc((size_t)(n_head + 1) * sizeof *count);
    if (!list || !count) {
        free(list);
        free(count);
        return wnw__fail(WNW_E_NOMEM, "no memory to share out %lld entries", (long long)n_all);
    }
    const int64_t n_list = list_entries(heads, n_head, list);
    for (int32_t h = 0; h < n_head; h++)
        count[h] = heads[h].n_entry;
    for (int32_t i = 0; i < n_ratio; i++) {
        const int64_t target = (int64_t)nearbyint(ratio[i] * (double)n_all);
        while (n_dropped < target && n_dropped < n_list)
            count[list[n_dropped++].head]--;
        for (int32_t h = 0; h < n_head; h++)
            n_keep[(int64_t)i * n_head + h] = count[h];
    }
    free(list);
    free(count);
    return WNW_OK;
}
