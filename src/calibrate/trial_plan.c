/* SPDX-License-Identifier: MIT */
/* From head weights and thresholds to the entries that stay. */
#include "base/topk.h"
#include "calibrate/trial.h"
#include "method/compiler.h"
#include "method/count.h"
#include "plan/plan.h"
#include "profile/profile.h"

#include <stdlib.h>

/* Whether any head of the layer takes part: otherwise, as in the scorer, all have weight 1. */
static bool any_takes_part(const float *of_layer, int32_t n)
{
    bool any = false;
    for (int32_t ih = 0; ih < n; ih++)
        any = any || of_layer[ih] > 0;
    return any;
}

/* Scores of layer il[i] (eq. 8 to 10), in the order of operations of the scorer. */
static void score_layer(const struct wnw__trial_prompt *p, const float *weight, int32_t i)
{
    const int32_t n = p->text.n_prompt;
    const float *of_layer = weight + (int64_t)p->il[i] * p->model.n_head_kv;
    const bool weighs = any_takes_part(of_layer, p->model.n_head_kv);
    for (int32_t t = 0; t < n; t++)
        p->score[t] = 0;
    for (int32_t ih = 0; ih < p->model.n_head_kv; ih++) {
        const float *rho = p->rho + ((int64_t)i * p->model.n_head_kv + ih) * n, w = weighs ? of_layer[ih] : 1;
        for (int32_t t = 0; t < n; t++) {
            const float u = w * p->alpha[t] * rho[t];
            p->score[t] = u > p->score[t] ? u : p->score[t];
        }
    }
}

/* Adds a layer that keeps the best `count` of the first n_judged entries, and all others, in every head. */
static int add_layer(wnw_plan *plan, const struct wnw__trial_prompt *p, int32_t n_judged, int32_t count)
{
    const int32_t n_last = p->text.n_prompt - n_judged;
    for (int32_t ih = 0; ih < p->model.n_head_kv; ih++) {
        int32_t *pos = wnw__plan_add_head(plan, count + n_last);
        if (!pos)
            return wnw__fail(WNW_E_NOMEM, "no memory for a plan");
        wnw__topk_late(p->score, n_judged, count, 0, pos);
        for (int32_t t = 0; t < n_last; t++)
            pos[count + t] = n_judged + t;
    }
    return WNW_OK;
}

/* From counts of entries above each threshold to counts of entries that stay. */
static void bound_counts(const struct wnw__trial_choice *choice, int32_t n_il, int32_t n_judged,
                         int32_t n_free, int32_t *count)
{
    for (int32_t i = 0; i < n_il; i++)
        if (choice->tau)
            count[i] = wnw__gate_elastic(count[i], n_judged, n_free, choice->floor);
        else
            count[i] = n_judged < n_free ? n_judged : n_free;
}

/* Adds every layer of the model; one with a sliding window is left alone by plans. */
static int add_layers(wnw_plan *plan, const struct wnw__trial_prompt *p,
                      const struct wnw__trial_choice *choice, int32_t n_judged, const int32_t *count)
{
    for (int32_t il = 0, i = 0; il < plan->n_layer; il++) {
        if (i < p->n_il && p->il[i] == il) {
            score_layer(p, choice->weight, i);
            WNW_TRY(add_layer(plan, p, n_judged, count[i]));
            i++;
            continue;
        }
        for (int32_t ih = 0; ih < p->model.n_head_kv; ih++)
            if (!wnw__plan_add_head(plan, 0))
                return wnw__fail(WNW_E_NOMEM, "no memory for a plan");
    }
    return WNW_OK;
}

/* The last entries that always stay. */
static int32_t protected_last(int32_t n_prompt, int32_t window, int32_t budget)
{
    const wnw_protected p = wnw__protected_clamp((wnw_protected){.n_last = window}, n_prompt);
    return wnw__protected_shrink(p, budget).n_last;
}

int32_t wnw__trial_n_free(int32_t n_prompt, int32_t window, int32_t budget)
{
    return budget - protected_last(n_prompt, window, budget);
}

/* Fills count[n_il] with what stays of the first n_judged entries. */
static void count_layers(const struct wnw__trial_prompt *p, const struct wnw__trial_choice *choice,
                         int32_t n_judged, int32_t *count, int32_t *above)
{
    for (int32_t i = 0; choice->tau && i < p->n_il; i++) {
        score_layer(p, choice->weight, i);
        count[i] = wnw__gate_above(p->score, n_judged, WNW_NORM_MEAN, choice->tau[p->il[i]]);
        if (above)
            above[i] = count[i];
    }
    bound_counts(choice, p->n_il, n_judged, wnw__trial_n_free(p->text.n_prompt, p->window, choice->budget),
                 count);
}

int wnw__trial_plan(wnw_plan **out, const struct wnw__trial_prompt *p, const struct wnw__trial_choice *choice,
                    int32_t *above)
{
    const int32_t n = p->text.n_prompt, n_judged = n - protected_last(n, p->window, choice->budget);
    int32_t *count = calloc((size_t)p->n_il, sizeof *count);
    *out = NULL;
    int rc = count ? wnw__plan_begin(out, p->model.n_layer, p->model.n_head_kv, n)
                   : wnw__fail(WNW_E_NOMEM, "no memory for a plan");
    if (rc == WNW_OK) {
        count_layers(p, choice, n_judged, count, above);
        rc = add_layers(*out, p, choice, n_judged, count);
    }
    free(count);
    if (rc != WNW_OK) {
        wnw_plan_free(*out);
        *out = NULL;
    }
    return rc;
}

double wnw__trial_count(const struct wnw__trial_prompt *p, const struct wnw__trial_choice *choice,
                        int32_t *count)
{
    const int32_t n_last = protected_last(p->text.n_prompt, p->window, choice->budget);
    double kept = n_last;
    count_layers(p, choice, p->text.n_prompt - n_last, count, NULL);
    for (int32_t i = 0; i < p->n_il; i++)
        kept += (double)count[i] / p->n_il;
    return kept;
}
