/* SPDX-License-Identifier: MIT */
#include "calibrate/risk_grid.h"

#include "base/random.h"
#include "base/vectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Shrinkage ---- */

/* A box of cells: layers, entropy bins and perplexity bins from .. to - 1. */
struct box {
    int32_t from[3], to[3];
};

static void add_box(const struct wnw__risk_grid *g, const struct wnw__bandit *b, const struct box *x,
                    int32_t action, int64_t *n, double *sum)
{
    *n = 0;
    *sum = 0;
    for (int32_t il = x->from[0]; il < x->to[0]; il++)
        for (int32_t e = x->from[1]; e < x->to[1]; e++)
            for (int32_t p = x->from[2]; p < x->to[2]; p++) {
                const int64_t i = (int64_t)wnw__risk_cell(g, il, e, p) * b->n_action + action;
                *n += b->of[i].n;
                *sum += b->of[i].sum;
            }
}

/* The parts of the grid that hold a cell, from everything to the cell alone. */
enum { N_LEVEL = 5 };
static void boxes_of(const struct wnw__risk_grid *g, int32_t il, int32_t e, int32_t p, struct box *out)
{
    const int32_t four = e / 4 * 4, after = four + 4 < g->n_entropy ? four + 4 : g->n_entropy;
    out[0] = (struct box){{0, 0, 0}, {g->n_layer, g->n_entropy, g->n_ppl}};
    out[1] = (struct box){{il, 0, 0}, {il + 1, g->n_entropy, g->n_ppl}};
    out[2] = (struct box){{il, 0, p}, {il + 1, g->n_entropy, p + 1}};
    out[3] = (struct box){{il, four, p}, {il + 1, after, p + 1}};
    out[4] = (struct box){{il, e, p}, {il + 1, e + 1, p + 1}};
}

void wnw__risk_shrink(const struct wnw__risk_grid *g, const struct wnw__bandit *b, double k, double *mean)
{
    for (int32_t c = 0; c < g->n_layer * g->n_entropy * g->n_ppl; c++) {
        struct box box[N_LEVEL];
        boxes_of(g, c / (g->n_entropy * g->n_ppl), c / g->n_ppl % g->n_entropy, c % g->n_ppl, box);
        for (int32_t a = 0; a < b->n_action; a++) {
            double value = 0, sum;
            int64_t n;
            add_box(g, b, &box[0], a, &n, &sum);
            value = n > 0 ? sum / (double)n : 0;
            for (int level = 1; level < N_LEVEL; level++) {
                add_box(g, b, &box[level], a, &n, &sum);
                value = (sum + k * value) / ((double)n + k);
            }
            mean[(int64_t)c * b->n_action + a] = value;
        }
    }
}

/* ---- Choices ---- */

const char *const wnw__risk_from[] = {"cell", "layer", "all", NULL};

/* Gives cells with fewer than `least` prompts the choice of the part of the grid that they belong to, where that has `enough`:
 * cell c belongs to part c / size. */
static int choose_in_parts(const struct wnw__bandit *b, const struct wnw__bandit_rule *rule, int32_t size,
                           int64_t least, int64_t enough, enum wnw__risk_from part_is, int32_t *choice,
                           uint8_t *from)
{
    struct wnw__bandit_rule of_part = *rule;
    struct wnw__bandit part;
    of_part.mean = NULL;
    WNW_TRY(wnw__bandit_gather(&part, b, size));
    int32_t *best = malloc((size_t)part.n_cell * sizeof *best);
    if (best)
        wnw__bandit_choose(&part, &of_part, best);
    for (int32_t c = 0; best && c < b->n_cell; c++)
        if (b->n_prompt[c] < least && part.n_prompt[c / size] >= enough) {
            from[c] = (uint8_t)part_is;
            choice[c] = best[c / size];
        }
    wnw__bandit_free(&part);
    if (!best)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d thresholds", (int)b->n_cell);
    free(best);
    return WNW_OK;
}

int wnw__risk_choose(const struct wnw__risk_grid *g, const struct wnw__bandit *b,
                     const struct wnw__bandit_rule *rule, int64_t least, int32_t *choice, uint8_t *from)
{
    wnw__bandit_choose(b, rule, choice);
    for (int32_t c = 0; c < b->n_cell; c++)
        from[c] = WNW_FROM_CELL;
    WNW_TRY(choose_in_parts(b, rule, b->n_cell, least, 0, WNW_FROM_ALL, choice, from));
    WNW_TRY(choose_in_parts(b, rule, g->n_entropy * g->n_ppl, least, least, WNW_FROM_LAYER, choice, from));
    for (int32_t c = 0; c < b->n_cell; c++)
        if (choice[c] < 0)
            choice[c] = b->reference;
    return WNW_OK;
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
