/* SPDX-License-Identifier: MIT */
#include "base/vectors.h"
#include "calibrate/compiler_impl.h"
#include "method/compiler.h"

#include <math.h>

/* Rewards that a change from the neutral action must have at least. */
enum { GUARD_N = 8 };
/* Standard errors by which it must be better; the weight of conservative Q-learning's penalty. */
static const double guard = 1, conservatism = 0.5;
/* Nats that a layer pays for being off its budget by the whole of it. */
static const double off_budget = 0.1;
/* Rewards of a cell that weigh as much as its parent. */
static const double parent_weight = 8;
/* The least agreement of two halves that counts as a signal. */
static const double least_split = 0.3;

/* ---- Bins ---- */

/* Cuts one feature of the items into bins: edges, and which bin every prompt falls into. */
static void cut(struct wnw__compiling *w, bool ppl, double *x)
{
    const int32_t n_bin = ppl ? w->grid.n_ppl : w->grid.n_entropy;
    double *edge = ppl ? w->ppl_edge : w->entropy_edge;
    bool odd = false; /* a trial with a number that is none has failed before */
    for (int32_t i = 0; i < w->o.items; i++)
        x[i] = w->items[i].noted[WNW_TASK_PROMPT][ppl];
    wnw__risk_edges(x, w->o.items, n_bin, edge);
    if (ppl)
        w->default_ppl_bin = wnw__bin(edge, n_bin, wnw__risk_median(x, w->o.items), &odd);
    for (int32_t i = 0; i < wnw__compiler_n_items(w); i++) {
        struct wnw__compiler_item *item = &w->items[i];
        *(ppl ? &item->ppl_bin : &item->entropy_bin) =
            wnw__bin(edge, n_bin, item->noted[WNW_TASK_PROMPT][ppl], &odd);
    }
}

int wnw__compiler_bins(struct wnw__compiling *w)
{
    const int32_t n = w->o.items, n_cell = w->grid.n_entropy * w->grid.n_ppl;
    double *x = wnw__compiler_own(w, (size_t)n, sizeof *x);
    int32_t *cell = wnw__compiler_own(w, (size_t)n, sizeof *cell);
    bool *keep = wnw__compiler_own(w, (size_t)n, sizeof *keep);
    if (w->short_of_memory)
        return wnw__fail(WNW_E_NOMEM, "no memory for %d prompts", (int)n);
    cut(w, false, x);
    cut(w, true, x);
    for (int32_t i = 0; i < n; i++)
        cell[i] = w->items[i].entropy_bin * w->grid.n_ppl + w->items[i].ppl_bin;
    /* About twice as many prompts of every pair of bins as there would be if all were alike. */
    WNW_TRY(
        wnw__risk_stratify(cell, n, n_cell, (2 * n + n_cell - 1) / n_cell, (int32_t)w->c->params.seed, keep));
    for (int32_t i = 0; i < n; i++)
        w->items[i].kept = keep[i];
    return WNW_OK;
}

/* ---- Rewards ---- */

/* Sets what item i's trials of a task earned: the reward is the loss against the full cache. A layer's threshold also pays
 * for entries above and below what the budget leaves there. */
static void credit(const struct wnw__compiling *w, enum wnw__compiler_task task, int32_t i,
                   const struct wnw__bandit_trials *t)
{
    const struct wnw__compiler_item *item = &w->items[i];
    const double *noted = item->noted[task], full = item->noted[WNW_TASK_PROMPT][2];
    const int32_t n_free = wnw__trial_n_free(item->n_prompt, w->o.window, w->budget);
    for (int32_t k = 0; k < t->n_trial; k++) {
        wnw__compiler_draw(w, task, i, k, t->n_slot, t->action + (int64_t)k * t->n_slot);
        t->reward[k] = full - noted[k];
    }
    for (int32_t s = 0; t->penalty && s < t->n_trial * t->n_slot; s++) {
        const double off = fabs(noted[t->n_trial + s] - n_free) / fmax(n_free, 1);
        t->penalty[s] = off_budget * fmin(off, 3);
    }
    for (int32_t s = 0; s < t->n_slot; s++)
        t->cell[s] = t->penalty ? wnw__risk_cell(&w->grid, s, item->entropy_bin, item->ppl_bin) : s;
}

/* Credits the trials of all prompts that were tried to logs that are empty before. */
static int credit_all(struct wnw__compiling *w, enum wnw__compiler_task task, int32_t n_slot, int32_t n_cell)
{
    const bool of_tau = task == WNW_TASK_TAUS;
    const struct wnw__compiler_actions *actions = of_tau ? &w->taus : &w->heads;
    const int first = of_tau ? WNW_LOG_TAUS : WNW_LOG_HEADS, n_log = of_tau ? 1 : 3;
    struct wnw__bandit_trials t = w->trials;
    int32_t n_seen = 0;
    t.n_trial = of_tau ? w->o.tau_trials : w->o.head_trials;
    t.n_slot = n_slot;
    if (!of_tau)
        t.penalty = NULL;
    for (int i = 0; i < n_log; i++) {
        wnw__bandit_free(&w->log[first + i]); /* of the last budget */
        WNW_TRY(wnw__bandit_init(&w->log[first + i], n_cell, actions->n, actions->reference));
    }
    for (int32_t i = 0; i < w->o.items; i++) {
        if (!w->items[i].kept)
            continue;
        credit(w, task, i, &t);
        wnw__bandit_add(&w->log[first], &t);
        if (!of_tau)
            wnw__bandit_add(&w->log[WNW_LOG_HALVES + n_seen++ % 2], &t);
    }
    return WNW_OK;
}

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

/* More than its standard error. What changes nothing, as thresholds that never bind, gains 0 with an error of 0. */
static bool is_a_gain(const struct wnw__compiler_gain *g)
{
    return g->mean > g->error;
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

static int check_heads(struct wnw__compiling *w)
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
    k->rejected = !is_a_gain(&k->gain[WNW_HEADS_OVER_ONE]);
    if (k->rejected)
        set_ones(w);
    return WNW_OK;
}

/* ---- One threshold that keeps as much on average ---- */

/* Where the falling line of mean sizes over the steps passes through `kept`, straight between steps. If lower thresholds keep no more, it is
 * the lowest. Sums of the same sizes may differ by their rounding. */
static double constant_for(const struct wnw__compiling *w, double kept)
{
    const int32_t n = w->o.held_out;
    const double most = kept * (1 + 1e-9);
    double before = held_sum(w, WNW_TASK_HELD_TAUS, WNW_HELD_CURVE, 1) / n;
    for (int32_t i = 1; i < WNW_COMPILER_STEPS; i++) {
        const double here = held_sum(w, WNW_TASK_HELD_TAUS, WNW_HELD_CURVE + i, 1) / n;
        if (here <= most) {
            const double low = wnw__compiler_step(i - 1), high = wnw__compiler_step(i);
            const double share = before > here ? (before - kept) / (before - here) : 0;
            return low + (high - low) * fmin(fmax(share, 0), 1);
        }
        before = here;
    }
    return wnw__compiler_step(WNW_COMPILER_STEPS - 1);
}

/* ---- Thresholds ---- */

static int check_thresholds(struct wnw__compiling *w)
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
    k->tau_rejected = !is_a_gain(&k->gain[WNW_OVER_CONSTANT]);
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

/* ---- Tables ---- */

int wnw__compiler_learn_heads(struct wnw__compiling *w)
{
    const int32_t n_kv = w->c->info.n_head_kv, n_cell = w->n_il * n_kv;
    const struct wnw__bandit_rule rule = {w->heads.value, NULL,    conservatism,
                                          guard,          GUARD_N, WNW_TIE_NEUTRAL};
    WNW_TRY(wnw__compiler_do(w, WNW_TASK_HEADS));
    WNW_TRY(credit_all(w, WNW_TASK_HEADS, n_cell, n_cell));
    for (int32_t i = 0; i < w->c->info.n_layer * n_kv; i++)
        w->weight[i] = 1;
    for (int32_t s = 0; s < n_cell; s++) {
        const int32_t best = wnw__bandit_best(&w->log[WNW_LOG_HEADS], &rule, s, 1);
        const int32_t a = best >= 0 ? best : w->heads.reference;
        w->weight[w->il[s / n_kv] * n_kv + s % n_kv] = (float)w->heads.value[a];
        w->checks.n_changed += a != w->heads.reference;
    }
    return check_heads(w);
}

int wnw__compiler_learn_thresholds(struct wnw__compiling *w)
{
    const int32_t n_cell = w->grid.n_layer * w->grid.n_entropy * w->grid.n_ppl;
    const struct wnw__bandit_rule rule = {w->taus.value, w->mean, conservatism, guard, GUARD_N, WNW_TIE_LOW};
    WNW_TRY(wnw__compiler_do(w, WNW_TASK_TAUS));
    WNW_TRY(credit_all(w, WNW_TASK_TAUS, w->n_il, n_cell));
    wnw__risk_shrink(&w->grid, &w->log[WNW_LOG_TAUS], parent_weight, w->mean);
    wnw__risk_choose(&w->grid, &w->log[WNW_LOG_TAUS], &rule, w->o.cell_prompts, w->choice, w->tau_from);
    for (int32_t i = 0; i < n_cell; i++)
        w->tau[i] = w->taus.value[w->choice[i]];
    return check_thresholds(w);
}
