/* SPDX-License-Identifier: MIT */
#include "calibrate/risk_bins.h"

#include "base/random.h"
#include "base/vectors.h"

#include <math.h>
#include <stdlib.h>

/* The value of sorted x[n] at position q (n - 1). */
static double quantile(const double *x, int32_t n, double q)
{
    const double at = q * (n - 1);
    const int32_t low = (int32_t)at, high = low + 1 < n ? low + 1 : low;
    return x[low] + (at - low) * (x[high] - x[low]);
}

void wnw__risk_edges(double *x, int32_t n, int32_t n_bin, double *edge)
{
    qsort(x, (size_t)n, sizeof *x, wnw__ascending_f64);
    for (int32_t i = 0; i + 1 < n_bin; i++) {
        edge[i] = (double)(float)quantile(x, n, (double)(i + 1) / n_bin);
        if (i == 0)
            continue;
        const double gap = 1e-6 * fmax(1, fabs(edge[i - 1]));
        if (edge[i] < edge[i - 1] + gap) {
            edge[i] = (double)(float)(edge[i - 1] + gap);
            if (edge[i] <= edge[i - 1]) /* rounding took the gap away */
                edge[i] = (double)nextafterf((float)edge[i - 1], INFINITY);
        }
    }
}

double wnw__risk_median(double *x, int32_t n)
{
    qsort(x, (size_t)n, sizeof *x, wnw__ascending_f64);
    return quantile(x, n, 0.5);
}

int wnw__risk_stratify(const int32_t *cell, int32_t n, int32_t n_cell, int32_t most, int32_t seed, bool *keep)
{
    int32_t *order = malloc((size_t)n * sizeof *order), *taken = calloc((size_t)n_cell, sizeof *taken);
    const uint64_t stream = wnw__stream(seed, 0, 0);
    if (!order || !taken) {
        free(order);
        free(taken);
        return wnw__fail(WNW_E_NOMEM, "no memory to choose among %d prompts", (int)n);
    }
    for (int32_t i = 0; i < n; i++)
        order[i] = i;
    for (int32_t i = n - 1; i > 0; i--) {
        const int32_t j = (int32_t)(wnw__mix(stream ^ (uint64_t)i) % (uint64_t)(i + 1)), other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
    for (int32_t i = 0; i < n; i++)
        keep[order[i]] = taken[cell[order[i]]]++ < most;
    free(order);
    free(taken);
    return WNW_OK;
}
