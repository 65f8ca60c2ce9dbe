/* SPDX-License-Identifier: MIT */
#include "base/vectors.h"
#include "calibrate/compiler_impl.h"

#include <math.h>

/* The least agreement of two halves that counts as a signal. */
static const double least_split = 0.3;

/* ---- Held-out prompts ---- */

/* Sums what a task noted at `at` over the held-out prompts, each divided by n. */
static double held_sum(const struct wnw__compiling *w, enum wnw__compiler_task task, int32_t at, double n)
{
    double sum = 0;
    for (int32_t i = w->o.items; i < wnw__compiler_n_items(w); i++)
        sum += w->items[i].noted[task][at] / n;
    return sum;
}

/* What the second cost is below the first: mean over the held-out prompts, and its error, infinite for one prompt. */
static struct wnw__compiler_gain gain_of(const struct wnw__compiling *w, enum wnw__compiler_task task_a,
                                         int32_t a, enum wnw__compiler_task task_b, int32_t b)
{
    const struct wnw__compiler_item *held = w->items + w->o.items;
    const int32_t n = w->o.held_out;
    double mean = 0, square = 0;
    for (int32_t i = 0; i < n; i++)
        mean += (held[i].noted[task_a][a] - held[i].noted[task_b][b]) / n;
    for (int32_t i = 0; i < n; i++) {
        const double gain = held[i].noted[task_a][a] - held[i].noted[task_b][b];
        square += (gain - mean) * (gain - mean);
    }
    return (struct wnw__compiler_gain){mean, n > 1 ? sqrt(square / (n - 1) / n) : INFINITY};
}

static bool gains_nothing(const struct wnw__compiler_checks *k, enum wnw__compiler_over over)
{
    return k->gain[over].mean < k->gain[over].error;
}

/* ---- Head weights ---- */

bool wnw__compiler_has_weights(const struct wnw__compiling *w)
{
    bool any = false;
    for (int32_t i = 0; i < w->c->info.n_layer * w->c->info.n_head_kv; i++)
        any = any || w->weight[i] != 1;
    return any;
}

static void set_ones(struct wnw__compiling *w)
{
    const int32_t n = w->c->info.n_layer * w->c->info.n_head_kv;
    for (int32_t i = 0; w->o.accept == WNW_ACCEPT_CHECKED && i < n; i++)
        w->weight[i] = 1;
}

static int compare_halves(struct wnw__compiling *w)
{
    const int32_t n = w->log[WNW_LOG_HEADS].n_cell;
    for (int32_t i = 0; i < 2 * n; i++)
        w->slope[i] = wnw__bandit_slope(&w->log[WNW_LOG_HALVES + i / n], i % n);
    return wnw__rank_correlation(&w->checks.split, w->slope, w->slope + n, n);
}

int wnw__compiler_check_heads(struct wnw__compiling *w)
{
    struct wnw__compiler_checks *k = &w->checks;
    WNW_TRY(compare_halves(w));
    k->no_signal = k->split < least_split;
    if (k->no_signal)
        set_ones(w);
    if (!wnw__compiler_has_weights(w))
        return WNW_OK;
    WNW_TRY(wnw__compiler_do(w, WNW_TASK_HELD_HEADS));
    k->compared = true;
    k->gain[WNW_HEADS_OVER_ONE] = gain_of(w, WNW_TASK_HELD_HEADS, 0, WNW_TASK_HELD_HEADS, 1);
    k->rejected = gains_nothing(k, WNW_HEADS_OVER_ONE);
    if (k->rejected)
        set_ones(w);
    return WNW_OK;
}

/* ---- One threshold that keeps as much on average ---- */

/* Where the falling line of mean sizes over the steps passes through `kept`, straight between steps. */
static double constant_for(const struct wnw__compiling *w, double kept)
{
    const int32_t n = w->o.held_out;
    double before = held_sum(w, WNW_TASK_HELD_TAUS, WNW_HELD_CURVE, 1) / n;
    for (int32_t i = 1; i < WNW_COMPILER_STEPS; i++) {
        const double here = held_sum(w, WNW_TASK_HELD_TAUS, WNW_HELD_CURVE + i, 1) / n;
        if (here <= kept) {
            const double low = wnw__compiler_step(i - 1), high = wnw__compiler_step(i);
            const double share = before > here ? (before - kept) / (before - here) : 0;
            return low + (high - low) * fmin(fmax(share, 0), 1);
        }
        before = here;
    }
    return wnw__compiler_step(WNW_COMPILER_STEPS - 1);
}

/* ---- Thresholds ---- */

int wnw__compiler_check_thresholds(struct wnw__compiling *w)
{
    struct wnw__compiler_checks *k = &w->checks;
    const enum wnw__compiler_task held = WNW_TASK_HELD_TAUS, one = WNW_TASK_HELD_CONSTANT;
    const int32_t n = w->o.held_out;
    WNW_TRY(wnw__compiler_do(w, held));
    k->constant = constant_for(w, held_sum(w, held, WNW_HELD_KEPT + WNW_HELD_LEARNED, 1) / n);
    WNW_TRY(wnw__compiler_do(w, one));
    k->gain[WNW_OVER_ONE] = gain_of(w, held, WNW_HELD_ONE, held, WNW_HELD_LEARNED);
    k->gain[WNW_OVER_NONE] = gain_of(w, held, WNW_HELD_NONE, held, WNW_HELD_LEARNED);
    k->gain[WNW_OVER_CONSTANT] = gain_of(w, one, 0, held, WNW_HELD_LEARNED);
    k->tau_rejected = gains_nothing(k, WNW_OVER_CONSTANT);
    k->kept_learned = held_sum(w, held, WNW_HELD_KEPT + WNW_HELD_LEARNED, n);
    k->kept_one = held_sum(w, held, WNW_HELD_KEPT + WNW_HELD_ONE, n);
    k->kept_constant = held_sum(w, one, 1, n);
    k->bound_layers = held_sum(w, held, WNW_HELD_BOUND, n);
    for (int32_t i = w->o.items; i < wnw__compiler_n_items(w); i++)
        k->bound_prompts += (double)(w->items[i].noted[held][WNW_HELD_BOUND] > 0) / n;
    return WNW_OK;
}

bool wnw__compiler_is_constant(const struct wnw__compiling *w)
{
    return w->checks.tau_rejected && w->o.accept == WNW_ACCEPT_CHECKED;
}
