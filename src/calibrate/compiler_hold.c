/* SPDX-License-Identifier: MIT */
#include "base/json.h"
#include "base/random.h"
#include "calibrate/compiler_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Writes the learned weights to out[n_layer][n_head_kv], those of each layer in another order. */
static void shuffle(const struct wnw__compiling *w, int32_t round, float *out)
{
    const int32_t n_kv = w->c->info.n_head_kv;
    memcpy(out, w->weight, (size_t)w->c->info.n_layer * (size_t)n_kv * sizeof *out);
    for (int32_t il = 0; il < w->c->info.n_layer; il++) {
        float *row = out + il * n_kv;
        const uint64_t stream = wnw__stream((int32_t)w->c->params.seed, il, round);
        for (int32_t i = n_kv - 1; i > 0; i--) {
            const int32_t j = (int32_t)(wnw__mix(stream ^ (uint64_t)i) % (uint64_t)(i + 1));
            const float other = row[j];
            row[j] = row[i];
            row[i] = other;
        }
    }
}

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
        if (k >= WNW_HELD_SHUFFLED)
            shuffle(w, k, d.weight);
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

/* Compares thresholds; out[WNW_HELD_TAU]. */
static int hold_thresholds(struct wnw__compiling *w, struct wnw__trial_prompt *p,
                           const struct wnw__compiler_item *item, double *tau, double *out)
{
    for (int32_t k = 0; k < WNW_HELD_TAU_KEPT; k++) {
        struct wnw__trial_choice choice = {.budget = w->budget,
                                           .weight = w->weight,
                                           .tau = k == WNW_HELD_TAU_NONE ? NULL : tau,
                                           .pooled = w->o.gate == WNW_COMPILER_POOLED};
        wnw_plan *plan;
        for (int32_t i = 0; i < w->n_il; i++)
            tau[w->il[i]] = k == WNW_HELD_TAU_LEARNED
                                ? w->tau[wnw__risk_cell(&w->grid, i, item->entropy_bin, item->ppl_bin)]
                                : 1;
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

static int run_held_thresholds(const struct wnw__compiler_unit *unit, struct wnw__trial_prompt *p,
                               json_t **result)
{
    double out[WNW_HELD_TAU] = {0};
    double *tau = calloc((size_t)unit->w->c->info.n_layer, sizeof *tau);
    int rc = tau ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for thresholds");
    if (rc == WNW_OK)
        rc = hold_thresholds(unit->w, p, &unit->w->items[unit->item], tau, out);
    if (rc == WNW_OK)
        *result = json_pack("{s:o}", "nll", wnw__json_f64s(out, WNW_HELD_TAU));
    free(tau);
    return rc;
}

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
