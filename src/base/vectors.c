/* SPDX-License-Identifier: MIT */
#include "base/vectors.h"

#include <stdlib.h>

/* ---- Orders for qsort ---- */

int wnw__ascending_f64(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int wnw__ascending_i32(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

int wnw__ascending_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int wnw__ascending_size(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* ---- Factors ---- */

bool wnw__cholesky(double *a, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j <= i; j++) {
            double sum = a[i * n + j];
            for (int32_t k = 0; k < j; k++)
                sum -= a[i * n + k] * a[j * n + k];
            if (i == j && !(sum > 0))
                return false;
            a[i * n + j] = i == j ? sqrt(sum) : sum / a[j * n + j];
        }
    return true;
}

/* ---- Ranks ---- */

struct element {
    double x;
    int32_t i;
};

/* Writes the ranks of x[n] less their mean to rank[n]; order[n] is scratch. */
static void rank(const double *x, int32_t n, struct element *order, double *rank)
{
    for (int32_t i = 0; i < n; i++)
        order[i] = (struct element){x[i], i};
    qsort(order, (size_t)n, sizeof *order, wnw__ascending_f64);
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
