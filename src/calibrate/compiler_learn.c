/* SPDX-License-Identifier: MIT */
#include "calibrate/compiler_impl.h"
#include "method/compiler.h"

#include <stdlib.h>

/* Rewards that a change from the neutral action must have at least. */
enum { GUARD_N = 8 };
/* Rewards of a cell that weigh as much as its parent (chapter: k). */
static const double parent_weight = 8;

/* ---- Bins ---- */

/* Cuts one feature of the items into bins: edges, and which bin every prompt falls into. */
static void cut(struct wnw__compiling *w, bool ppl, double *x)
{
    const int32_t n_bin = ppl ? w->grid.n_ppl : w->grid.n_entropy;
    double *edge = ppl ? w->ppl_edge : w->entropy_edge;
    bool odd = false; /* a trial with a number that is none has failed before */
    for (int32_t i = 0; i < w->o.items; i++)
        x[i] = ppl ? w->items[i].ppl : w->items[i].entropy;
    wnw__risk_edges(x, w->o.items, n_bin, edge);
    if (ppl)
        w->default_ppl_bin = wnw__bin(edge, n_bin, wnw__risk_median(x, w->o.items), &odd);
    for (int32_t i = 0; i < wnw__compiler_n_items(w); i++) {
        struct wnw__compiler_item *item = &w->items[i];
        *(ppl ? &item->ppl_bin : &item->entropy_bin) =
            wnw__bin(edge, n_bin, ppl ? item->ppl : item->entropy, &odd);
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

/* What the trials of one item are credited with. */
struct credit {
    int32_t *cell;            /* [n_slot] */
    uint8_t *action;          /* [n_trial][n_slot] */
    double *reward, *penalty; /* [n_trial], [n_trial][n_slot] */
    struct wnw__bandit_trials trials;
};

static int credit_new(struct credit *k, int32_t n_trial, int32_t n_slot)
{
    const size_t n = (size_t)n_trial * (size_t)n_slot;
    k->cell = calloc((size_t)n_slot, sizeof *k->cell);
    k->action = calloc(n, sizeof *k->action);
    k->reward = calloc((size_t)n_trial, sizeof *k->reward);
    k->penalty = calloc(n, sizeof *k->penalty);
    k->trials = (struct wnw__bandit_trials){.n_trial = n_trial,
                                            .n_slot = n_slot,
                                            .cell = k->cell,
                                            .action = k->action,
                                            .reward = k->reward,
                                            .penalty = k->penalty};
    return k->cell && k->action && k->reward && k->penalty
               ? WNW_OK
               : wnw__fail(WNW_E_NOMEM, "no memory for the rewards of a prompt");
}

static void credit_free(struct credit *k)
{
    free(k->cell);
    free(k->action);
    free(k->reward);
    free(k->penalty);
}

/* Fills in what item i was tried with, and what it cost: the reward is the loss against the full cache. */
static void fill(const struct wnw__compiling *w, enum wnw__compiler_pass pass, int32_t i, struct credit *k)
{
    const struct wnw__compiler_item *item = &w->items[i];
    const double *nll = pass == WNW_PASS_HEADS ? item->head_nll : item->tau_nll;
    const int32_t n_slot = k->trials.n_slot;
    for (int32_t t = 0; t < k->trials.n_trial; t++) {
        wnw__compiler_draw(w, pass, i, t, n_slot, k->action + (int64_t)t * n_slot);
        k->reward[t] = item->nll_full - nll[t];
        if (pass == WNW_PASS_THRESHOLDS)
            wnw__compiler_penalty(w, item, t, k->penalty + (int64_t)t * n_slot);
    }
    for (int32_t s = 0; s < n_slot; s++)
        k->cell[s] =
            pass == WNW_PASS_HEADS ? s : wnw__risk_cell(&w->grid, s, item->entropy_bin, item->ppl_bin);
}

/* ---- Head weights ---- */

static int log_heads(struct wnw__compiling *w, struct credit *k)
{
    const int32_t n_cell = w->n_il * w->c->info.n_head_kv;
    struct wnw__bandit *const logs[3] = {&w->head_log, &w->half_log[0], &w->half_log[1]};
    int32_t n_seen = 0;
    for (int l = 0; l < 3; l++) {
        wnw__bandit_free(logs[l]);
        WNW_TRY(wnw__bandit_init(logs[l], n_cell, w->heads.n, w->heads.reference));
    }
    for (int32_t i = 0; i < w->o.items; i++) {
        if (!w->items[i].kept)
            continue;
        fill(w, WNW_PASS_HEADS, i, k);
        wnw__bandit_add(&w->head_log, &k->trials);
        wnw__bandit_add(&w->half_log[n_seen++ % 2], &k->trials);
    }
    return WNW_OK;
}

static int choose_heads(struct wnw__compiling *w)
{
    const struct wnw__bandit_rule rule = {.value = w->heads.value,
                                          .conservatism = w->o.conservatism,
                                          .guard = w->o.guard,
                                          .guard_n = GUARD_N,
                                          .tie = WNW_TIE_NEUTRAL};
    const int32_t n_kv = w->c->info.n_head_kv;
    int32_t *choice = calloc((size_t)w->head_log.n_cell, sizeof *choice);
    if (!choice)
        return wnw__fail(WNW_E_NOMEM, "no memory for head weights");
    wnw__bandit_choose(&w->head_log, &rule, choice);
    for (int32_t i = 0; i < w->c->info.n_layer * n_kv; i++)
        w->weight[i] = 1;
    w->checks.n_changed = 0;
    for (int32_t s = 0; s < w->head_log.n_cell; s++) {
        const int32_t a = choice[s] >= 0 ? choice[s] : w->heads.reference;
        w->weight[w->il[s / n_kv] * n_kv + s % n_kv] = (float)w->heads.value[a];
        w->checks.n_changed += a != w->heads.reference;
    }
    free(choice);
    return WNW_OK;
}

int wnw__compiler_learn_heads(struct wnw__compiling *w)
{
    struct credit k = {0};
    int rc = credit_new(&k, w->o.head_trials, w->n_il * w->c->info.n_head_kv);
    if (rc == WNW_OK)
        rc = log_heads(w, &k);
    if (rc == WNW_OK)
        rc = choose_heads(w);
    credit_free(&k);
    return rc;
}

/* ---- Thresholds ---- */

static int log_thresholds(struct wnw__compiling *w, struct credit *k)
{
    const struct wnw__risk_grid *g = &w->grid;
    wnw__bandit_free(&w->tau_log);
    WNW_TRY(
        wnw__bandit_init(&w->tau_log, g->n_layer * g->n_entropy * g->n_ppl, w->taus.n, w->taus.reference));
    for (int32_t i = 0; i < w->o.items; i++) {
        if (!w->items[i].kept)
            continue;
        fill(w, WNW_PASS_THRESHOLDS, i, k);
        wnw__bandit_add(&w->tau_log, &k->trials);
    }
    return WNW_OK;
}

/* Fills choice[n_cell] from the log; mean[n_cell][n_action] is scratch. */
static int choose_thresholds(struct wnw__compiling *w, int32_t *choice, double *mean)
{
    const struct wnw__bandit_rule rule = {.value = w->taus.value,
                                          .mean = mean,
                                          .conservatism = w->o.conservatism,
                                          .guard = w->o.guard,
                                          .guard_n = GUARD_N,
                                          .tie = WNW_TIE_LOW};
    wnw__risk_shrink(&w->grid, &w->tau_log, parent_weight, mean);
    return wnw__risk_choose(&w->grid, &w->tau_log, &rule, w->o.cell_prompts, choice, w->tau_from);
}

int wnw__compiler_learn_thresholds(struct wnw__compiling *w)
{
    const size_t n_cell = (size_t)w->grid.n_layer * (size_t)w->grid.n_entropy * (size_t)w->grid.n_ppl;
    int32_t *choice = calloc(n_cell, sizeof *choice);
    double *mean = calloc(n_cell * (size_t)w->taus.n, sizeof *mean);
    struct credit k = {0};
    int rc = choice && mean ? credit_new(&k, w->o.tau_trials, w->n_il)
                            : wnw__fail(WNW_E_NOMEM, "no memory for %zu thresholds", n_cell);
    if (rc == WNW_OK)
        rc = log_thresholds(w, &k);
    if (rc == WNW_OK)
        rc = choose_thresholds(w, choice, mean);
    for (size_t i = 0; rc == WNW_OK && i < n_cell; i++)
        w->tau[i] = w->taus.value[choice[i]];
    credit_free(&k);
    free(choice);
    free(mean);
    return rc;
}
