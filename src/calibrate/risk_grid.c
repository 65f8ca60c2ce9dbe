/* SPDX-License-Identifier: MIT */
#include "calibrate/risk_grid.h"

#include "base/random.h"
#include "base/vectors.h"

#include <math.h>
#include <stdlib.h>

/* ---- Shrinkage ---- */

/* The parts of the grid that hold cell c, from everything to the cell alone: the number of the one of a level. */
enum { N_LEVEL = 5 };
static int32_t part_of(const struct wnw__risk_grid *g, int32_t c, int level)
{
    const int32_t p = c % g->n_ppl, e = c / g->n_ppl % g->n_entropy, il = c / g->n_ppl / g->n_entropy;
    const int32_t part[N_LEVEL] = {0, il, il * g->n_ppl + p, wnw__risk_cell(g, il, e / 4, p), c};
    return part[level];
}

/* Draws value, the mean of a larger part, to that of the rewards of action a in cell c's part of the level. */
static double draw(const struct wnw__risk_grid *g, const struct wnw__bandit *b, int32_t c, int level,
                   int32_t a, double k, double value)
{
    const int32_t part = part_of(g, c, level);
    double n = 0, sum = 0;
    for (int32_t o = 0; o < b->n_cell; o++)
        if (part_of(g, o, level) == part) {
            n += (double)b->of[o * b->n_action + a].n;
            sum += b->of[o * b->n_action + a].sum;
        }
    if (level == 0)
        return n > 0 ? sum / n : 0;
    return (sum + k * value) / (n + k);
}

void wnw__risk_shrink(const struct wnw__risk_grid *g, const struct wnw__bandit *b, double k, double *mean)
{
    for (int32_t i = 0; i < b->n_cell * b->n_action; i++) {
        mean[i] = 0;
        for (int level = 0; level < N_LEVEL; level++)
            mean[i] = draw(g, b, i / b->n_action, level, i % b->n_action, k, mean[i]);
    }
}

/* ---- Choices ---- */

const char *const wnw__risk_from[] = {"cell", "layer", "all", NULL};

static int64_t n_prompt_of(const struct wnw__bandit *b, int32_t first, int32_t n)
{
    int64_t sum = 0;
    for (int32_t c = first; c < first + n; c++)
        sum += b->n_prompt[c];
    return sum;
}

void wnw__risk_choose(const struct wnw__risk_grid *g, const struct wnw__bandit *b,
                      const struct wnw__bandit_rule *rule, int64_t least, int32_t *choice, uint8_t *from)
{
    const int32_t size[WNW_N_FROM] = {1, g->n_entropy * g->n_ppl, b->n_cell};
    for (int32_t c = 0; c < b->n_cell; c++) {
        int32_t part = WNW_FROM_CELL;
        while (part < WNW_FROM_ALL && n_prompt_of(b, c / size[part] * size[part], size[part]) < least)
            part++;
        const int32_t best = wnw__bandit_best(b, rule, c / size[part] * size[part], size[part]);
        choice[c] = best < 0 ? b->reference : best;
        from[c] = (uint8_t)part;
    }
}

/* ---- Bins ---- */

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
        const double before = edge[i - 1], least = before + 1e-6 * fmax(1, fabs(before));
        if (edge[i] < least)
            edge[i] = (double)(float)least;
        if (edge[i] <= before) /* rounding took the gap away */
            edge[i] = (double)nextafterf((float)before, INFINITY);
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
    const bool good = order && taken;
    for (int32_t i = 0; good && i < n; i++)
        order[i] = i;
    for (int32_t i = n - 1; good && i > 0; i--) {
        const int32_t j = (int32_t)(wnw__mix(stream ^ (uint64_t)i) % (uint64_t)(i + 1)), other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
    for (int32_t i = 0; good && i < n; i++)
        keep[order[i]] = taken[cell[order[i]]]++ < most;
    free(order);
    free(taken);
    return good ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory to choose among %d prompts", (int)n);
}
