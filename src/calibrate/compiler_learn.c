/* SPDX-License-Identifier: MIT */
#include "calibrate/compiler_impl.h"
#include "method/compiler.h"

#include <math.h>
#include <stdlib.h>

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
    double *x = malloc(n * sizeof *x);
    int32_t *cell = malloc(n * sizeof *cell);
    bool *keep = calloc(n, sizeof *keep);
    int rc = x && cell && keep ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for %zu prompts", n);
    if (rc == WNW_OK) {
        cut(w, false, x);
        cut(w, true, x);
        rc = stratify(w, cell, keep);
    }
    free(x);
    free(cell);
    free(keep);
    return rc;
}

/* ---- Rewards ---- */

/* Credits item i's trials of a task to the logs: the reward is the loss against the full cache. A layer's threshold also pays
 * for entries above and below what the budget leaves there. */
static void credit(const struct wnw__compiling *w, enum wnw__compiler_task task, int32_t i,
                   const struct wnw__bandit_trials *t, struct wnw__bandit *log, struct wnw__bandit *half)
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
    wnw__bandit_add(log, t);
    if (half)
        wnw__bandit_add(half, t);
}

/* Credits the trials of all prompts that were tried. half[2], where not NULL, are the logs of every second prompt each. */
static int credit_all(const struct wnw__compiling *w, enum wnw__compiler_task task, int32_t n_slot,
                      struct wnw__bandit *log, struct wnw__bandit *half)
{
    const bool of_tau = task == WNW_TASK_TAUS;
    const int32_t n_trial = of_tau ? w->o.tau_trials : w->o.head_trials;
    const size_t n = (size_t)n_trial * (size_t)n_slot;
    int32_t n_seen = 0;
    const struct wnw__bandit_trials t = {.n_trial = n_trial,
                                         .n_slot = n_slot,
                                         .cell = calloc((size_t)n_slot, sizeof *t.cell),
                                         .action = calloc(n, sizeof *t.action),
                                         .reward = calloc((size_t)n_trial, sizeof *t.reward),
                                         .penalty = of_tau ? calloc(n, sizeof *t.penalty) : NULL};
    const bool good = t.cell && t.action && t.reward && (t.penalty || !of_tau);
    for (int32_t i = 0; good && i < w->o.items; i++)
        if (w->items[i].kept)
            credit(w, task, i, &t, log, half ? &half[n_seen++ % 2] : NULL);
    free(t.cell);
    free(t.action);
    free(t.reward);
    free(t.penalty);
    return good ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for the rewards of a prompt");
}

static struct wnw__bandit_rule rule_of(const struct wnw__compiler_actions *actions, enum wnw__bandit_tie tie)
{
    return (struct wnw__bandit_rule){actions->value, NULL, conservatism, guard, GUARD_N, tie};
}

/* Makes an empty log in place of the one of the last budget. */
static int renew(struct wnw__bandit *log, int32_t n_cell, const struct wnw__compiler_actions *actions)
{
    wnw__bandit_free(log);
    return wnw__bandit_init(log, n_cell, actions->n, actions->reference);
}

/* ---- Tables ---- */

int wnw__compiler_learn_heads(struct wnw__compiling *w)
{
    const int32_t n_kv = w->c->info.n_head_kv, n_cell = w->n_il * n_kv;
    const struct wnw__bandit_rule rule = rule_of(&w->heads, WNW_TIE_NEUTRAL);
    WNW_TRY(renew(&w->head_log, n_cell, &w->heads));
    WNW_TRY(renew(&w->half_log[0], n_cell, &w->heads));
    WNW_TRY(renew(&w->half_log[1], n_cell, &w->heads));
    WNW_TRY(credit_all(w, WNW_TASK_HEADS, n_cell, &w->head_log, w->half_log));
    int32_t *choice = calloc((size_t)n_cell, sizeof *choice);
    if (!choice)
        return wnw__fail(WNW_E_NOMEM, "no memory for head weights");
    wnw__bandit_choose(&w->head_log, &rule, choice);
    for (int32_t i = 0; i < w->c->info.n_layer * n_kv; i++)
        w->weight[i] = 1;
    for (int32_t s = 0; s < n_cell; s++) {
        const int32_t a = choice[s] >= 0 ? choice[s] : w->heads.reference;
        w->weight[w->il[s / n_kv] * n_kv + s % n_kv] = (float)w->heads.value[a];
        w->checks.n_changed += a != w->heads.reference;
    }
    free(choice);
    return WNW_OK;
}

int wnw__compiler_learn_thresholds(struct wnw__compiling *w)
{
    const int32_t n_cell = w->grid.n_layer * w->grid.n_entropy * w->grid.n_ppl;
    struct wnw__bandit_rule rule = rule_of(&w->taus, WNW_TIE_LOW);
    WNW_TRY(renew(&w->tau_log, n_cell, &w->taus));
    WNW_TRY(credit_all(w, WNW_TASK_TAUS, w->n_il, &w->tau_log, NULL));
    int32_t *choice = calloc((size_t)n_cell, sizeof *choice);
    double *mean = calloc((size_t)n_cell * (size_t)w->taus.n, sizeof *mean);
    int rc = choice && mean ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for %d thresholds", (int)n_cell);
    if (rc == WNW_OK) {
        wnw__risk_shrink(&w->grid, &w->tau_log, parent_weight, mean);
        rule.mean = mean;
        rc = wnw__risk_choose(&w->grid, &w->tau_log, &rule, w->o.cell_prompts, choice, w->tau_from);
    }
    for (int32_t i = 0; rc == WNW_OK && i < n_cell; i++)
        w->tau[i] = w->taus.value[choice[i]];
    free(choice);
    free(mean);
    return rc;
}
