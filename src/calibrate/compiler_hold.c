/* SPDX-License-Identifier: MIT */
#include "base/json.h"
#include "calibrate/compiler_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int run_held_heads(const struct wnw__compiler_unit *unit, struct wnw__trial_prompt *p, json_t **result)
{
    struct wnw__compiling *w = unit->w;
    struct wnw__compiler_draft d = {0};
    double nll[WNW_HELD_HEADS] = {0};
    int rc = wnw__compiler_draft_new(&d, w); /* its weights are all 1 */
    for (int32_t k = 0; rc == WNW_OK && k < WNW_HELD_HEADS; k++) {
        const struct wnw__trial_choice choice = {.budget = w->budget,
                                                 .weight = k == WNW_HELD_LEARNED ? w->weight : d.weight};
        wnw_plan *plan = NULL;
        rc = wnw__trial_plan(&plan, p, &choice, NULL);
        if (rc == WNW_OK)
            rc = wnw__compiler_try(w, p, plan, k, WNW_HELD_HEADS, &nll[k]);
        wnw_plan_free(plan);
    }
    if (rc == WNW_OK)
        *result = json_pack("{s:o}", "nll", wnw__json_f64s(nll, WNW_HELD_HEADS));
    wnw__compiler_draft_free(&d);
    return rc;
}

/* Entries per KV head of the layers that take part. */
static double kept_mean(const struct wnw__compiling *w, const wnw_plan *plan)
{
    double sum = 0;
    const int32_t *unused;
    for (int32_t i = 0; i < w->n_il; i++)
        for (int32_t ih = 0; ih < w->c->info.n_head_kv; ih++)
            sum += wnw_plan_head(plan, w->il[i], ih, &unused);
    return sum / ((double)w->n_il * w->c->info.n_head_kv);
}

/* ---- Thresholds ---- */

double wnw__compiler_step(int32_t i)
{
    return exp(log(16) * (2.0 * i / (WNW_COMPILER_STEPS - 1) - 1));
}

/* Sets the learned thresholds of the item's cell, or `otherwise` where learned is false; tau[n_layer]. */
static void set_taus(const struct wnw__compiling *w, const struct wnw__compiler_item *item, bool learned,
                     double otherwise, double *tau)
{
    for (int32_t i = 0; i < w->n_il; i++)
        tau[w->il[i]] =
            learned ? w->tau[wnw__risk_cell(&w->grid, i, item->entropy_bin, item->ppl_bin)] : otherwise;
}

static struct wnw__trial_choice choice_of(const struct wnw__compiling *w, const double *tau)
{
    return (struct wnw__trial_choice){.budget = w->budget,
                                      .weight = w->weight,
                                      .tau = tau,
                                      .pooled = w->o.gate == WNW_COMPILER_POOLED,
                                      .floor = w->o.floor};
}

/* Compares thresholds; out[WNW_HELD_TAU_BOUND]. */
static int hold_thresholds(struct wnw__compiling *w, struct wnw__trial_prompt *p,
                           const struct wnw__compiler_item *item, double *tau, double *out)
{
    for (int32_t k = 0; k < WNW_HELD_TAU_KEPT; k++) {
        struct wnw__trial_choice choice = choice_of(w, k == WNW_HELD_TAU_NONE ? NULL : tau);
        wnw_plan *plan;
        set_taus(w, item, k == WNW_HELD_TAU_LEARNED, 1, tau);
        if (k == WNW_HELD_TAU_NONE)
            choice.budget = (int32_t)nearbyint(out[WNW_HELD_TAU_KEPT + WNW_HELD_TAU_LEARNED]);
        WNW_TRY(wnw__trial_plan(&plan, p, &choice, NULL));
        out[WNW_HELD_TAU_KEPT + k] = kept_mean(w, plan);
        const int rc = wnw__compiler_try(w, p, plan, k, WNW_HELD_TAU_KEPT, &out[k]);
        wnw_plan_free(plan);
        WNW_TRY(rc);
    }
    return WNW_OK;
}

/* Counts what thresholds would keep, which takes no trial; out[WNW_HELD_TAU]. */
static int count_thresholds(struct wnw__compiling *w, const struct wnw__trial_prompt *p,
                            const struct wnw__compiler_item *item, double *tau, double *out)
{
    const struct wnw__trial_choice choice = choice_of(w, tau);
    const int32_t n_free = wnw__trial_n_free(item->n_prompt, w->o.window, w->budget);
    double unused;
    int32_t *count = calloc((size_t)w->n_il, sizeof *count);
    if (!count)
        return wnw__fail(WNW_E_NOMEM, "no memory for the counts of a prompt");
    set_taus(w, item, true, 1, tau);
    int rc = wnw__trial_count(&unused, p, &choice, NULL, count);
    for (int32_t i = 0; rc == WNW_OK && i < w->n_il; i++)
        out[WNW_HELD_TAU_BOUND] += (double)(count[i] < n_free) / w->n_il;
    for (int32_t i = 0; rc == WNW_OK && i < WNW_COMPILER_STEPS; i++) {
        set_taus(w, item, false, wnw__compiler_step(i), tau);
        rc = wnw__trial_count(&out[WNW_HELD_TAU_CURVE + i], p, &choice, NULL, NULL);
    }
    free(count);
    return rc;
}

static int run_held_thresholds(const struct wnw__compiler_unit *unit, struct wnw__trial_prompt *p,
                               json_t **result)
{
    struct wnw__compiling *w = unit->w;
    const struct wnw__compiler_item *item = &w->items[unit->item];
    double out[WNW_HELD_TAU] = {0};
    double *tau = calloc((size_t)w->c->info.n_layer, sizeof *tau);
    int rc = tau ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for thresholds");
    if (rc == WNW_OK)
        rc = hold_thresholds(w, p, item, tau, out);
    if (rc == WNW_OK)
        rc = count_thresholds(w, p, item, tau, out);
    if (rc == WNW_OK)
        *result = json_pack("{s:o}", "nll", wnw__json_f64s(out, WNW_HELD_TAU));
    free(tau);
    return rc;
}

/* ---- One threshold that keeps as much on average ---- */

/* Mean of element `at` over the held-out prompts. */
static double held_mean(const struct wnw__compiling *w, int32_t at)
{
    double sum = 0;
    for (int32_t i = 0; i < w->o.held_out; i++)
        sum += w->items[w->o.items + i].tau_held[at];
    return sum / w->o.held_out;
}

/* The mean of the learned thresholds in the cells that the held-out prompts fall into. */
static double mean_learned(const struct wnw__compiling *w)
{
    double sum = 0;
    for (int32_t k = 0; k < w->o.held_out; k++) {
        const struct wnw__compiler_item *item = &w->items[w->o.items + k];
        for (int32_t i = 0; i < w->n_il; i++)
            sum += w->tau[wnw__risk_cell(&w->grid, i, item->entropy_bin, item->ppl_bin)];
    }
    return sum / ((double)w->o.held_out * w->n_il);
}

/* Where the falling line of mean sizes over the steps passes through `kept`, straight between steps. */
static double constant_for(const struct wnw__compiling *w, double kept)
{
    double before = held_mean(w, WNW_HELD_TAU_CURVE);
    for (int32_t i = 1; i < WNW_COMPILER_STEPS; i++) {
        const double here = held_mean(w, WNW_HELD_TAU_CURVE + i);
        if (here <= kept) {
            const double low = wnw__compiler_step(i - 1), high = wnw__compiler_step(i);
            const double share = before > here ? (before - kept) / (before - here) : 0;
            return low + (high - low) * fmin(fmax(share, 0), 1);
        }
        before = here;
    }
    return wnw__compiler_step(WNW_COMPILER_STEPS - 1);
}

static int run_held_constant(const struct wnw__compiler_unit *unit, struct wnw__trial_prompt *p,
                             json_t **result)
{
    struct wnw__compiling *w = unit->w;
    double out[WNW_HELD_CONSTANT] = {0};
    wnw_plan *plan = NULL;
    double *tau = calloc((size_t)w->c->info.n_layer, sizeof *tau);
    const struct wnw__trial_choice choice = choice_of(w, tau);
    int rc = tau ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for thresholds");
    if (rc == WNW_OK) {
        set_taus(w, &w->items[unit->item], false, w->checks.constant, tau);
        rc = wnw__trial_plan(&plan, p, &choice, NULL);
    }
    if (rc == WNW_OK) {
        out[WNW_HELD_CONSTANT_KEPT] = kept_mean(w, plan);
        rc = wnw__compiler_try(w, p, plan, 0, 1, &out[WNW_HELD_CONSTANT_NLL]);
    }
    if (rc == WNW_OK)
        *result = json_pack("{s:o}", "nll", wnw__json_f64s(out, WNW_HELD_CONSTANT));
    wnw_plan_free(plan);
    free(tau);
    return rc;
}

int wnw__compiler_hold_constant(struct wnw__compiling *w)
{
    w->checks.constant = w->o.gate == WNW_COMPILER_POOLED
                             ? mean_learned(w)
                             : constant_for(w, held_mean(w, WNW_HELD_TAU_KEPT + WNW_HELD_TAU_LEARNED));
    for (int32_t i = w->o.items; i < wnw__compiler_n_items(w); i++) {
        const struct wnw__compiler_unit unit = {w, i, "held-out constant", 1, run_held_constant};
        WNW_TRY(wnw__compiler_do(&unit, "nll", WNW_HELD_CONSTANT, &w->items[i].constant_held, NULL));
    }
    return WNW_OK;
}

/* ---- All held-out prompts ---- */

int wnw__compiler_hold_heads(struct wnw__compiling *w)
{
    for (int32_t i = w->o.items; i < wnw__compiler_n_items(w); i++) {
        const struct wnw__compiler_unit unit = {w, i, "held-out heads", WNW_HELD_HEADS, run_held_heads};
        WNW_TRY(wnw__compiler_do(&unit, "nll", WNW_HELD_HEADS, &w->items[i].head_held, NULL));
    }
    return WNW_OK;
}

int wnw__compiler_hold_thresholds(struct wnw__compiling *w)
{
    for (int32_t i = w->o.items; i < wnw__compiler_n_items(w); i++) {
        const struct wnw__compiler_unit unit = {w, i, "held-out thresholds", WNW_HELD_TAU_KEPT,
                                                run_held_thresholds};
        WNW_TRY(wnw__compiler_do(&unit, "nll", WNW_HELD_TAU, &w->items[i].tau_held, NULL));
    }
    return WNW_OK;
}
