/* SPDX-License-Identifier: MIT */
#include "base/rank_correlation.h"

#include <math.h>
#include <stdlib.h>

struct element {
    double x;
    int32_t i;
};

static int ascending(const void *a, const void *b)
{
    const double x = ((const struct element *)a)->x, y = ((const struct element *)b)->x;
    return (x > y) - (x < y);
}

/* Writes the ranks of x[n] less their mean to rank[n]; order[n] is scratch. */
static void rank(const double *x, int32_t n, struct element *order, double *rank)
{
    for (int32_t i = 0; i < n; i++)
        order[i] = (struct element){x[i], i};
    qsort(order, (size_t)n, sizeof *order, ascending);
    for (int32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && order[end].x == order[i].x;)
            end++;
        for (int32_t k = i; k < end; k++)
            rank[order[k].i] = (i + end - n) / 2.0;
    }
}

int wnw__rank_correlation(double *out, const double *a, const double *b, int32_t n)
{
    double across = 0, of_a = 0, of_b = 0;
    *out = 0;
    if (n < 2)
        return WNW_OK;
    struct element *order = malloc((size_t)n * sizeof *order);
    double *ranks = malloc(2 * (size_t)n * sizeof *ranks);
    if (order && ranks) {
        rank(a, n, order, ranks);
        rank(b, n, order, ranks + n);
    }
    for (int32_t i = 0; order && ranks && i < n; i++) {
        across += ranks[i] * ranks[n + i];
        of_a += ranks[i] * ranks[i];
        of_b += ranks[n + i] * ranks[n + i];
    }
    if (of_a > 0 && of_b > 0)
        *out = across / sqrt(of_a * of_b);
    const bool good = order && ranks;
    free(order);
    free(ranks);
    return good ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory to rank %d numbers", (int)n);
}
