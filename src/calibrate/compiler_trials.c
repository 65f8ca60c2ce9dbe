/* SPDX-License-Identifier: MIT */
#include "base/json.h"
#include "base/random.h"
#include "calibrate/compiler_impl.h"

#include <math.h>
#include <stdlib.h>

/* ---- Features ---- */

static int run_features(const struct wnw__compiler_unit *unit, struct wnw__trial_prompt *p, json_t **result)
{
    double out[3] = {p->entropy, p->ppl};
    WNW_TRY(wnw__compiler_try(unit->w, p, NULL, 0, 1, &out[2]));
    *result = json_pack("{s:o}", "risk", wnw__json_f64s(out, 3));
    return WNW_OK;
}

int wnw__compiler_features(struct wnw__compiling *w)
{
    double *risk = NULL;
    int rc = WNW_OK;
    w->budget = 0;
    for (int32_t i = 0; rc == WNW_OK && i < wnw__compiler_n_items(w); i++) {
        const struct wnw__compiler_unit unit = {w, i, "prompt", 1, run_features};
        rc = wnw__compiler_do(&unit, "risk", 3, &risk, NULL);
        if (rc == WNW_OK) {
            w->items[i].entropy = risk[0];
            w->items[i].ppl = risk[1];
            w->items[i].nll_full = risk[2];
        }
    }
    free(risk);
    return rc;
}

/* ---- Drawing ---- */

void wnw__compiler_draw(const struct wnw__compiling *w, enum wnw__compiler_pass pass, int32_t item,
                        int32_t trial, int32_t n, uint8_t *action)
{
    const uint64_t n_action = (uint64_t)(pass == WNW_PASS_HEADS ? w->heads.n : w->taus.n);
    const uint64_t stream =
        wnw__mix(wnw__stream((int32_t)w->c->params.seed, item, (int32_t)pass) ^ (uint64_t)w->budget);
    for (int32_t i = 0; i < n; i++)
        action[i] = (uint8_t)((wnw__mix(stream ^ (uint64_t)((int64_t)trial * n + i)) >> 32) * n_action >> 32);
}

/* ---- Head weights ---- */

static int try_heads(struct wnw__compiling *w, struct wnw__trial_prompt *p, int32_t item,
                     struct wnw__compiler_draft *d, double *nll)
{
    const int32_t n_kv = w->c->info.n_head_kv;
    for (int32_t k = 0; k < w->o.head_trials; k++) {
        const struct wnw__trial_choice choice = {.budget = w->budget, .weight = d->weight};
        wnw_plan *plan;
        wnw__compiler_draw(w, WNW_PASS_HEADS, item, k, w->n_il * n_kv, d->action);
        for (int32_t i = 0; i < w->n_il * n_kv; i++)
            d->weight[w->il[i / n_kv] * n_kv + i % n_kv] = (float)w->heads.value[d->action[i]];
        WNW_TRY(wnw__trial_plan(&plan, p, &choice, NULL));
        const int rc = wnw__compiler_try(w, p, plan, k, w->o.head_trials, &nll[k]);
        wnw_plan_free(plan);
        WNW_TRY(rc);
    }
    return WNW_OK;
}

static int run_heads(const struct wnw__compiler_unit *unit, struct wnw__trial_prompt *p, json_t **result)
{
    struct wnw__compiler_draft d = {0};
    double *nll = calloc((size_t)unit->w->o.head_trials, sizeof *nll);
    int rc = nll ? wnw__compiler_draft_new(&d, unit->w) : wnw__fail(WNW_E_NOMEM, "no memory for a trial");
    if (rc == WNW_OK)
        rc = try_heads(unit->w, p, unit->item, &d, nll);
    if (rc == WNW_OK)
        *result = json_pack("{s:o}", "nll", wnw__json_f64s(nll, unit->w->o.head_trials));
    wnw__compiler_draft_free(&d);
    free(nll);
    return rc;
}

int wnw__compiler_try_heads(struct wnw__compiling *w)
{
    for (int32_t i = 0; i < w->o.items; i++) {
        const struct wnw__compiler_unit unit = {w, i, "head trials", w->o.head_trials, run_heads};
        if (w->items[i].kept)
            WNW_TRY(wnw__compiler_do(&unit, "nll", w->o.head_trials, &w->items[i].head_nll, NULL));
    }
    return WNW_OK;
}

/* ---- Thresholds ---- */

static int try_thresholds(struct wnw__compiling *w, struct wnw__trial_prompt *p, int32_t item,
                          struct wnw__compiler_draft *d, double *nll, int32_t *above)
{
    for (int32_t k = 0; k < w->o.tau_trials; k++) {
        const struct wnw__trial_choice choice = {.budget = w->budget,
                                                 .weight = w->weight,
                                                 .tau = d->tau,
                                                 .pooled = w->o.gate == WNW_COMPILER_POOLED,
                                                 .floor = w->o.floor};
        wnw_plan *plan;
        wnw__compiler_draw(w, WNW_PASS_THRESHOLDS, item, k, w->n_il, d->action);
        for (int32_t i = 0; i < w->n_il; i++)
            d->tau[w->il[i]] = w->taus.value[d->action[i]];
        WNW_TRY(wnw__trial_plan(&plan, p, &choice, above + (int64_t)k * w->n_il));
        const int rc = wnw__compiler_try(w, p, plan, k, w->o.tau_trials, &nll[k]);
        wnw_plan_free(plan);
        WNW_TRY(rc);
    }
    return WNW_OK;
}

static int run_thresholds(const struct wnw__compiler_unit *unit, struct wnw__trial_prompt *p, json_t **result)
{
    const struct wnw__compiling *w = unit->w;
    struct wnw__compiler_draft d = {0};
    double *nll = calloc((size_t)w->o.tau_trials, sizeof *nll);
    int32_t *above = calloc((size_t)w->o.tau_trials * (size_t)w->n_il, sizeof *above);
    int rc = nll && above ? wnw__compiler_draft_new(&d, w) : wnw__fail(WNW_E_NOMEM, "no memory for a trial");
    if (rc == WNW_OK)
        rc = try_thresholds(unit->w, p, unit->item, &d, nll, above);
    if (rc == WNW_OK)
        *result = json_pack("{s:o, s:o}", "nll", wnw__json_f64s(nll, w->o.tau_trials), "above",
                            wnw__json_i32s(above, w->o.tau_trials * w->n_il));
    wnw__compiler_draft_free(&d);
    free(nll);
    free(above);
    return rc;
}

/* Takes the entries above the thresholds over, n of them. */
static int take_above(const struct wnw__compiler_unit *unit, const json_t *result, int32_t n)
{
    struct wnw__compiler_item *item = &unit->w->items[unit->item];
    free(item->above);
    item->above = malloc((size_t)n * sizeof *item->above);
    if (!item->above)
        return wnw__fail(WNW_E_NOMEM, "no memory for the results of a prompt");
    return wnw__json_get_i32s(result, "above", item->above, n)
               ? WNW_OK
               : wnw__calibrate_damaged(unit->w->c, unit->what);
}

int wnw__compiler_try_thresholds(struct wnw__compiling *w)
{
    const int32_t n = w->o.tau_trials;
    for (int32_t i = 0; i < w->o.items; i++) {
        const struct wnw__compiler_unit unit = {w, i, "threshold trials", n, run_thresholds};
        json_t *result;
        if (!w->items[i].kept)
            continue;
        int rc = wnw__compiler_do(&unit, "nll", n, &w->items[i].tau_nll, &result);
        if (rc == WNW_OK)
            rc = take_above(&unit, result, n * w->n_il);
        json_decref(result);
        WNW_TRY(rc);
    }
    return WNW_OK;
}

void wnw__compiler_penalty(const struct wnw__compiling *w, const struct wnw__compiler_item *item,
                           int32_t trial, double *penalty)
{
    const int32_t n_free = wnw__trial_n_free(item->n_prompt, w->o.window, w->budget);
    for (int32_t i = 0; i < w->n_il; i++) {
        const double off = fabs((double)item->above[trial * w->n_il + i] - n_free) / fmax(n_free, 1);
        penalty[i] = w->o.gate == WNW_COMPILER_POOLED ? 0 : w->o.penalty * fmin(off, 3);
    }
}
