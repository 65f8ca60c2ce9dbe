/* SPDX-License-Identifier: MIT */
#include "base/json.h"
#include "base/system.h"
#include "calibrate/compiler_impl.h"

#include <math.h>
#include <stdlib.h>

/* ---- Prompts ---- */

static bool on_read(int32_t done, int32_t total, void *user)
{
    struct wnw__compiling *w = user;
    const double share = total > 0 ? (double)done / total : 0;
    /* Reading comes first in a unit; w->c->cost is the whole unit's. */
    return wnw__calibrate_progress(w->c, share * total / (double)w->c->cost) == WNW_OK;
}

static int read_prompt(struct wnw__compiling *w, int32_t i, struct wnw__trial_prompt *p)
{
    const struct wnw__trial_text text = wnw__compiler_text(w, &w->items[i]);
    const wnw_session_params params = {WNW_INIT(wnw_session_params), .n_ctx = text.n_prompt + text.n_next,
                                       .kv_type = w->c->params.kv_type, .progress = on_read,
                                       .progress_user = w};
    return wnw__trial_read(p, w->engine, &params, &text, w->o.window);
}

int wnw__compiler_try(struct wnw__compiling *w, const struct wnw__trial_prompt *p, const wnw_plan *plan,
                      int32_t done, int32_t total, double *nll)
{
    char what[96];
    const double start = wnw__now_ms(), read = p->text.n_prompt;
    const char *unit = w->c->what;
    WNW_TRY(wnw__trial_run(nll, p, plan));
    if (!isfinite(*nll))
        return wnw__fail(WNW_E_NOT_FINITE, "the likelihood of a continuation is no number");
    w->trial_ms += wnw__now_ms() - start;
    w->n_trial++;
    snprintf(what, sizeof what, "%.50s (%.0f trials a minute)", unit,
             (double)w->n_trial * 6e4 / fmax(w->trial_ms, 1));
    w->c->what = what;
    const int rc = wnw__calibrate_progress(w->c, (read + (double)(done + 1) * p->text.n_next) /
                                                     (read + (double)total * p->text.n_next));
    w->c->what = unit;
    return rc;
}

/* ---- Units ---- */

static int run_unit(wnw_calibration *c, void *user, json_t **result)
{
    const struct wnw__compiler_unit *unit = user;
    struct wnw__trial_prompt p = {0};
    (void)c;
    int rc = read_prompt(unit->w, unit->item, &p);
    if (rc == WNW_OK)
        rc = unit->run(unit, &p, result);
    wnw__trial_free(&p);
    return rc;
}

static int64_t unit_cost(const struct wnw__compiling *w, int32_t item, int32_t n_trial)
{
    return w->items[item].n_prompt + (int64_t)n_trial * w->o.next;
}

static int ask(const struct wnw__compiler_unit *unit, json_t **result)
{
    char name[64];
    struct wnw__compiler_unit user = *unit;
    const struct wnw__compiling *w = unit->w;
    if (w->budget > 0)
        snprintf(name, sizeof name, "b%d %s %d", (int)w->budget, unit->what, (int)unit->item);
    else
        snprintf(name, sizeof name, "%s %d", unit->what, (int)unit->item);
    return wnw__calibrate_unit(
        w->c,
        &(struct wnw__calibrate_unit){
            .name = name, .cost = unit_cost(w, unit->item, unit->n_trial), .run = run_unit, .user = &user},
        result);
}

static int take(const struct wnw__compiler_unit *unit, const json_t *result, const char *key, int32_t n,
                double **out)
{
    free(*out);
    *out = malloc((size_t)n * sizeof **out);
    if (!*out)
        return wnw__fail(WNW_E_NOMEM, "no memory for the results of a prompt");
    bool good = wnw__json_get_f64s(result, key, *out, n);
    for (int32_t k = 0; good && k < n; k++)
        good = isfinite((*out)[k]);
    return good ? WNW_OK : wnw__calibrate_damaged(unit->w->c, unit->what);
}

int wnw__compiler_do(const struct wnw__compiler_unit *unit, const char *key, int32_t n, double **out,
                     json_t **result)
{
    json_t *own;
    int rc = ask(unit, &own);
    if (rc == WNW_OK)
        rc = take(unit, own, key, n, out);
    if (result)
        *result = own;
    else
        json_decref(own);
    return rc;
}

/* ---- Costs ---- */

int64_t wnw__compiler_cost(const struct wnw__compiling *w)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < wnw__compiler_n_items(w); i++) {
        int64_t of_budget = unit_cost(w, i, w->o.head_trials) + unit_cost(w, i, w->o.tau_trials);
        if (i >= w->o.items)
            of_budget =
                unit_cost(w, i, WNW_HELD_HEADS) + unit_cost(w, i, WNW_HELD_TAU_KEPT) + unit_cost(w, i, 1);
        sum += unit_cost(w, i, 1) + of_budget * w->c->params.n_budgets;
    }
    return sum;
}

/* ---- Drafts ---- */

int wnw__compiler_draft_new(struct wnw__compiler_draft *d, const struct wnw__compiling *w)
{
    const size_t n_layer = (size_t)w->c->info.n_layer, n = n_layer * (size_t)w->c->info.n_head_kv;
    d->action = calloc(n, sizeof *d->action);
    d->weight = calloc(n, sizeof *d->weight);
    d->tau = calloc(n_layer, sizeof *d->tau);
    for (size_t i = 0; d->weight && i < n; i++)
        d->weight[i] = 1;
    return d->action && d->weight && d->tau ? WNW_OK : wnw__fail(WNW_E_NOMEM, "no memory for a trial");
}

void wnw__compiler_draft_free(struct wnw__compiler_draft *d)
{
    free(d->action);
    free(d->weight);
    free(d->tau);
}
