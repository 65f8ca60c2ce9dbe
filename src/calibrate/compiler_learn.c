/* SPDX-License-Identifier: MIT */
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

/* Keeps about twice as many prompts of every pair of bins as there would be if all were alike. */
static int stratify(struct wnw__compiling *w, int32_t *cell, bool *keep)
{
    const int32_t n_cell = w->grid.n_entropy * w->grid.n_ppl, most = (2 * w->o.items + n_cell - 1) / n_cell;
    for (int32_t i = 0; i < w->o.items; i++)
        cell[i] = w->items[i].entropy_bin * w->grid.n_ppl + w->items[i].ppl_bin;
    WNW_TRY(wnw__risk_stratify(cell, w->o.items, n_cell, most, (int32_t)w->c->params.seed, keep));
    for (int32_t i = 0; i < w->o.items; i++)
        w->items[i].kept = keep[i];
    return WNW_OK;
}

int wnw__compiler_bins(struct wnw__compiling *w)
{
    const size_t n = (size_t)w->o.items;
    double *x = wnw__compiler_own(w, n, sizeof *x);
    int32_t *cell = wnw__compiler_own(w, n, sizeof *cell);
    bool *keep = wnw__compiler_own(w, n, sizeof *keep);
    if (w->short_of_memory)
        return wnw__fail(WNW_E_NOMEM, "no memory for %zu prompts", n);
    cut(w, false, x);
    cut(w, true, x);
    return stratify(w, cell, keep);
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

static struct wnw__bandit_rule rule_of(const struct wnw__compiler_actions *actions, enum wnw__bandit_tie tie)
{
    return (struct wnw__bandit_rule){actions->value, NULL, conservatism, guard, GUARD_N, tie};
}

/* ---- Tables ---- */

int wnw__compiler_learn_heads(struct wnw__compiling *w)
{
    const int32_t n_kv = w->c->info.n_head_kv, n_cell = w->n_il * n_kv;
    const struct wnw__bandit_rule rule = rule_of(&w->heads, WNW_TIE_NEUTRAL);
    WNW_TRY(credit_all(w, WNW_TASK_HEADS, n_cell, n_cell));
    for (int32_t i = 0; i < w->c->info.n_layer * n_kv; i++)
        w->weight[i] = 1;
    for (int32_t s = 0; s < n_cell; s++) {
        const int32_t best = wnw__bandit_best(&w->log[WNW_LOG_HEADS], &rule, s, 1);
        const int32_t a = best >= 0 ? best : w->heads.reference;
        w->weight[w->il[s / n_kv] * n_kv + s % n_kv] = (float)w->heads.value[a];
        w->checks.n_changed += a != w->heads.reference;
    }
    return WNW_OK;
}

int wnw__compiler_learn_thresholds(struct wnw__compiling *w)
{
    const int32_t n_cell = w->grid.n_layer * w->grid.n_entropy * w->grid.n_ppl;
    struct wnw__bandit_rule rule = rule_of(&w->taus, WNW_TIE_LOW);
    WNW_TRY(credit_all(w, WNW_TASK_TAUS, w->n_il, n_cell));
    wnw__risk_shrink(&w->grid, &w->log[WNW_LOG_TAUS], parent_weight, w->mean);
    rule.mean = w->mean;
    wnw__risk_choose(&w->grid, &w->log[WNW_LOG_TAUS], &rule, w->o.cell_prompts, w->choice, w->tau_from);
    for (int32_t i = 0; i < n_cell; i++)
        w->tau[i] = w->taus.value[w->choice[i]];
    return WNW_OK;
}
