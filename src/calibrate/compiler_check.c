/* SPDX-License-Identifier: MIT */
#include "base/vectors.h"
#include "calibrate/compiler_impl.h"

#include <math.h>
#include <stdlib.h>

/* The least agreement of two halves that counts as a signal. */
static const double least_split = 0.3;

bool wnw__compiler_has_weights(const struct wnw__compiling *w)
{
    bool any = false;
    for (int32_t i = 0; i < w->c->info.n_layer * w->c->info.n_head_kv; i++)
        any = any || w->weight[i] != 1;
    return any;
}

static void set_ones(struct wnw__compiling *w)
{
    for (int32_t i = 0; w->o.accept == WNW_ACCEPT_CHECKED && i < w->c->info.n_layer * w->c->info.n_head_kv;
         i++)
        w->weight[i] = 1;
}

/* ---- Halves ---- */

int wnw__compiler_check_halves(struct wnw__compiling *w)
{
    const int32_t n = w->head_log.n_cell;
    double *slope = malloc(2 * (size_t)n * sizeof *slope);
    if (!slope)
        return wnw__fail(WNW_E_NOMEM, "no memory for the slopes of %d heads", (int)n);
    for (int32_t half = 0; half < 2; half++)
        for (int32_t i = 0; i < n; i++)
            slope[half * n + i] = wnw__bandit_slope(&w->half_log[half], i);
    const int rc = wnw__rank_correlation(&w->checks.split, slope, slope + n, n);
    free(slope);
    w->checks.no_signal = w->checks.split < least_split;
    if (rc == WNW_OK && w->checks.no_signal)
        set_ones(w);
    return rc;
}

/* ---- Held-out prompts ---- */

/* What one prompt gains: the loss that a comparison takes off, in nats per token. */
typedef double (*gain_fn)(const struct wnw__compiler_item *item);

static double learned_gain(const struct wnw__compiler_item *item)
{
    return item->head_held[WNW_HELD_ONES] - item->head_held[WNW_HELD_LEARNED];
}

static double gain_over_one(const struct wnw__compiler_item *item)
{
    return item->tau_held[WNW_HELD_TAU_ONE] - item->tau_held[WNW_HELD_TAU_LEARNED];
}

static double gain_over_constant(const struct wnw__compiler_item *item)
{
    return item->constant_held[WNW_HELD_CONSTANT_NLL] - item->tau_held[WNW_HELD_TAU_LEARNED];
}

static double gain_over_none(const struct wnw__compiler_item *item)
{
    return item->tau_held[WNW_HELD_TAU_NONE] - item->tau_held[WNW_HELD_TAU_LEARNED];
}

/* Mean over the held-out prompts and its standard error, infinite for one prompt. */
static double mean_of(const struct wnw__compiling *w, gain_fn gain, double *error)
{
    const struct wnw__compiler_item *held = w->items + w->o.items;
    const int32_t n = w->o.held_out;
    double mean = 0, square = 0;
    for (int32_t i = 0; i < n; i++)
        mean += gain(&held[i]) / n;
    for (int32_t i = 0; i < n; i++)
        square += (gain(&held[i]) - mean) * (gain(&held[i]) - mean);
    *error = n > 1 ? sqrt(square / (n - 1) / n) : INFINITY;
    return mean;
}

void wnw__compiler_check_heads(struct wnw__compiling *w)
{
    struct wnw__compiler_checks *k = &w->checks;
    k->compared = true;
    k->gain = mean_of(w, learned_gain, &k->gain_error);
    k->rejected = k->gain < k->gain_error;
    if (k->rejected)
        set_ones(w);
}

void wnw__compiler_check_thresholds(struct wnw__compiling *w)
{
    struct wnw__compiler_checks *k = &w->checks;
    const struct wnw__compiler_item *held = w->items + w->o.items;
    k->tau_gain_one = mean_of(w, gain_over_one, &k->tau_error_one);
    k->tau_gain_none = mean_of(w, gain_over_none, &k->tau_error_none);
    k->tau_gain_constant = mean_of(w, gain_over_constant, &k->tau_error_constant);
    k->tau_rejected = k->tau_gain_constant < k->tau_error_constant;
    k->kept_learned = k->kept_one = k->kept_constant = k->bound_layers = k->bound_prompts = 0;
    for (int32_t i = 0; i < w->o.held_out; i++) {
        k->kept_learned += held[i].tau_held[WNW_HELD_TAU_KEPT + WNW_HELD_TAU_LEARNED] / w->o.held_out;
        k->kept_one += held[i].tau_held[WNW_HELD_TAU_KEPT + WNW_HELD_TAU_ONE] / w->o.held_out;
        k->kept_constant += held[i].constant_held[WNW_HELD_CONSTANT_KEPT] / w->o.held_out;
        k->bound_layers += held[i].tau_held[WNW_HELD_TAU_BOUND] / w->o.held_out;
        k->bound_prompts += (double)(held[i].tau_held[WNW_HELD_TAU_BOUND] > 0) / w->o.held_out;
    }
}

bool wnw__compiler_is_constant(const struct wnw__compiling *w)
{
    return w->checks.tau_rejected && w->o.accept == WNW_ACCEPT_CHECKED;
}
