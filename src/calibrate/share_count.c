/* SPDX-License-Identifier: MIT */
#include "calibrate/share_count.h"

#include <stdlib.h>
#include <string.h>

struct scored {
    float score;
    int32_t at; /* row x n + entry */
};

/* Highest score first; of equal ones the lower row, then the earlier entry. */
static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

int wnw__share_count(int32_t *count, const float *score, int32_t n_row, int32_t n, const int64_t *best,
                     int32_t n_best)
{
    const int64_t n_all = (int64_t)n_row * n;
    struct scored *list = n_all <= INT32_MAX ? malloc((size_t)(n_all + 1) * sizeof *list) : NULL;
    if (!list)
        return wnw__fail(WNW_E_NOMEM, "no memory for the scores of %lld entries", (long long)n_all);
    for (int64_t i = 0; i < n_all; i++)
        list[i] = (struct scored){score[i], (int32_t)i};
    qsort(list, (size_t)n_all, sizeof *list, by_score);
    memset(count, 0, (size_t)n_best * (size_t)n_row * sizeof *count);
    for (int32_t i = 0; i < n_best; i++)
        for (int64_t k = 0; k < best[i] && k < n_all; k++)
            count[(int64_t)i * n_row + list[k].at / n]++;
    free(list);
    return WNW_OK;
}

double wnw__share_overlap(const double *a, const double *b, int32_t n)
{
    double sum_a = 0, sum_b = 0, common = 0;
    for (int32_t i = 0; i < n; i++) {
        sum_a += a[i];
        sum_b += b[i];
    }
    if (sum_a <= 0 || sum_b <= 0)
        return sum_a <= 0 && sum_b <= 0 ? 1 : 0;
    for (int32_t i = 0; i < n; i++)
        common += a[i] / sum_a < b[i] / sum_b ? a[i] / sum_a : b[i] / sum_b;
    return common;
}
