/* SPDX-License-Identifier: MIT */
/* Spearman's rank correlation by hand. */
#include "asserts.h"
#include "peek_arrays.h"

struct row {
    const char *name;
    int32_t n;
    double a[6], b[6], want;
};

static void correlates(void **state)
{
    const struct row *row = *state;
    double got;
    assert_ok(wnw__rank_correlation(&got, row->a, row->b, row->n));
    assert_near(got, row->want, 1e-12);
}

/* Without ties it is 1 - 6 sum d^2 / (n (n^2 - 1)). */
static const struct row rows[] = {
    {"the same order", 4, {1, 5, 7, 100}, {-3, 0, 1, 2}, 1},
    {"the other way round", 3, {1, 2, 3}, {9, 8, 7}, -1},
    {"two neighbours swapped: d = 0, 1, 1, 0, 0", 5, {1, 2, 3, 4, 5}, {1, 3, 2, 4, 5}, 1 - 12 / 120.0},
    {"d = 2, 1, 1, 1, 1, 2", 6, {1, 2, 3, 4, 5, 6}, {3, 1, 2, 5, 6, 4}, 1 - 6 * 12 / 210.0},
    /* Ranks 1.5, 1.5, 3, 4 and 1, 2, 3, 4: less the mean -1, -1, .5, 1.5 and -1.5, -.5, .5, 1.5. */
    {"ties have the mean of their ranks", 4, {7, 7, 8, 9}, {1, 2, 3, 4}, 4.5 / 4.743416490252569},
    {"one side constant", 3, {2, 2, 2}, {1, 2, 3}, 0},
    {"one number", 1, {2}, {3}, 0},
};

int main(void)
{
    return run_rows(correlates, rows);
}
