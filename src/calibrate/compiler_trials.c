/* SPDX-License-Identifier: MIT */
#include "base/json.h"
#include "base/random.h"
#include "base/system.h"
#include "calibrate/compiler_impl.h"

#include <math.h>
#include <stdlib.h>

struct unit;
/* A kind of work on a prompt; its trials, and how many numbers it notes. */
struct task {
    const char *name;
    int (*run)(struct unit *u);
    int32_t n_trial, n_noted;
};
/* A task on one prompt; out[] is what it notes. */
struct unit {
    struct wnw__compiling *w;
    enum wnw__compiler_task task;
    int32_t item;
    struct task of;
    struct wnw__trial_prompt p;
    double *out;
};

/* ---- One trial ---- */

/* Sets the cost of what the plan keeps (NULL: everything), and says how far the unit is after its trial k. */
static int follow(struct unit *u, const wnw_plan *plan, int32_t k, double *cost)
{
    struct wnw__compiling *w = u->w;
    char what[96];
    const double start = wnw__now_ms(), read = u->p.text.n_prompt, next = u->p.text.n_next;
    const char *unit = w->c->what;
    WNW_TRY(wnw__trial_run(cost, &u->p, plan));
    if (!isfinite(*cost))
        return wnw__fail(WNW_E_NOT_FINITE, "the likelihood of a continuation is no number");
    w->trial_ms += wnw__now_ms() - start;
    w->n_trial++;
    snprintf(what, sizeof what, "%.50s (%.0f trials a minute)", unit,
             w->n_trial * 6e4 / fmax(w->trial_ms, 1));
    w->c->what = what;
    const int rc = wnw__calibrate_progress(w->c, (read + (k + 1) * next) / (read + u->of.n_trial * next));
    w->c->what = unit;
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

/* Makes trial k of a choice: its cost and, where not NULL, the entries per head that it keeps and w->count above. */
static int try_choice(struct unit *u, const struct wnw__trial_choice *choice, int32_t k, double *cost,
                      double *kept)
{
    wnw_plan *plan;
    WNW_TRY(wnw__trial_plan(&plan, &u->p, choice, u->w->count));
    if (kept)
        *kept = kept_mean(u->w, plan);
    const int rc = follow(u, plan, k, cost);
    wnw_plan_free(plan);
    return rc;
}

/* ---- What is tried ---- */

void wnw__compiler_draw(const struct wnw__compiling *w, enum wnw__compiler_task task, int32_t item,
                        int32_t trial, int32_t n, uint8_t *action)
{
    const uint64_t n_action = (uint64_t)(task == WNW_TASK_HEADS ? w->heads.n : w->taus.n);
    const uint64_t stream =
        wnw__mix(wnw__stream((int32_t)w->c->params.seed, item, (int32_t)task) ^ (uint64_t)w->budget);
    for (int32_t i = 0; i < n; i++)
        action[i] = (uint8_t)((wnw__mix(stream ^ (uint64_t)((int64_t)trial * n + i)) >> 32) * n_action >> 32);
}

double wnw__compiler_step(int32_t i)
{
    return exp(log(16) * (2.0 * i / (WNW_COMPILER_STEPS - 1) - 1));
}

/* Sets try_tau to one threshold for all layers, or, where item is not NULL, to the learned ones of its cell. */
static void set_tau(struct wnw__compiling *w, double tau, const struct wnw__compiler_item *item)
{
    for (int32_t i = 0; i < w->n_il; i++)
        w->try_tau[w->il[i]] =
            item ? w->tau[wnw__risk_cell(&w->grid, i, item->entropy_bin, item->ppl_bin)] : tau;
}

/* The budget with the learned weights and the thresholds of try_tau. */
static struct wnw__trial_choice choice_of(const struct wnw__compiling *w)
{
    return (struct wnw__trial_choice){
        .budget = w->budget, .weight = w->weight, .tau = w->try_tau, .floor = w->o.floor};
}

/* ---- Tasks ---- */

static int read_risk(struct unit *u)
{
    u->out[0] = u->p.entropy;
    u->out[1] = u->p.ppl;
    return follow(u, NULL, 0, &u->out[2]);
}

static int try_heads(struct unit *u)
{
    struct wnw__compiling *w = u->w;
    const struct wnw__trial_choice choice = {.budget = w->budget, .weight = w->try_weight};
    const int32_t n_kv = w->c->info.n_head_kv;
    for (int32_t k = 0; k < u->of.n_trial; k++) {
        wnw__compiler_draw(w, u->task, u->item, k, w->n_il * n_kv, w->action);
        for (int32_t i = 0; i < w->n_il * n_kv; i++)
            w->try_weight[w->il[i / n_kv] * n_kv + i % n_kv] = (float)w->heads.value[w->action[i]];
        WNW_TRY(try_choice(u, &choice, k, &u->out[k], NULL));
    }
    return WNW_OK;
}

static int try_taus(struct unit *u)
{
    struct wnw__compiling *w = u->w;
    const struct wnw__trial_choice choice = choice_of(w);
    for (int32_t k = 0; k < u->of.n_trial; k++) {
        wnw__compiler_draw(w, u->task, u->item, k, w->n_il, w->action);
        for (int32_t i = 0; i < w->n_il; i++)
            w->try_tau[w->il[i]] = w->taus.value[w->action[i]];
        WNW_TRY(try_choice(u, &choice, k, &u->out[k], NULL));
        for (int32_t i = 0; i < w->n_il; i++)
            u->out[u->of.n_trial + k * w->n_il + i] = w->count[i];
    }
    return WNW_OK;
}

static int hold_heads(struct unit *u)
{
    struct wnw__compiling *w = u->w;
    struct wnw__trial_choice choice = {.budget = w->budget, .weight = w->try_weight};
    for (int32_t i = 0; i < w->c->info.n_layer * w->c->info.n_head_kv; i++)
        w->try_weight[i] = 1;
    WNW_TRY(try_choice(u, &choice, 0, &u->out[0], NULL));
    choice.weight = w->weight;
    return try_choice(u, &choice, 1, &u->out[1], NULL);
}

/* Counts what thresholds would keep, which takes no trial. */
static void count_thresholds(struct unit *u)
{
    struct wnw__compiling *w = u->w;
    const struct wnw__trial_choice choice = choice_of(w);
    const int32_t n_free = wnw__trial_n_free(u->p.text.n_prompt, w->o.window, w->budget);
    set_tau(w, 1, &w->items[u->item]);
    wnw__trial_count(&u->p, &choice, w->count);
    for (int32_t i = 0; i < w->n_il; i++)
        u->out[WNW_HELD_BOUND] += (double)(w->count[i] < n_free) / w->n_il;
    for (int32_t i = 0; i < WNW_COMPILER_STEPS; i++) {
        set_tau(w, wnw__compiler_step(i), NULL);
        u->out[WNW_HELD_CURVE + i] = wnw__trial_count(&u->p, &choice, w->count);
    }
}

static int hold_taus(struct unit *u)
{
    for (int32_t k = 0; k < WNW_HELD_KEPT; k++) {
        struct wnw__trial_choice choice = choice_of(u->w);
        set_tau(u->w, 1, k == WNW_HELD_LEARNED ? &u->w->items[u->item] : NULL);
        if (k == WNW_HELD_NONE) {
            choice.tau = NULL;
            choice.budget = (int32_t)nearbyint(u->out[WNW_HELD_KEPT + WNW_HELD_LEARNED]);
        }
        WNW_TRY(try_choice(u, &choice, k, &u->out[k], &u->out[WNW_HELD_KEPT + k]));
    }
    count_thresholds(u);
    return WNW_OK;
}

static int hold_constant(struct unit *u)
{
    const struct wnw__trial_choice choice = choice_of(u->w);
    set_tau(u->w, u->w->checks.constant, NULL);
    return try_choice(u, &choice, 0, &u->out[0], &u->out[1]);
}

static struct task task_of(const struct wnw__compiling *w, enum wnw__compiler_task task)
{
    const int32_t heads = w->o.head_trials, taus = w->o.tau_trials;
    const struct task all[WNW_N_TASK] = {
        [WNW_TASK_PROMPT] = {"prompt", read_risk, 1, 3},
        [WNW_TASK_HEADS] = {"head trials", try_heads, heads, heads},
        [WNW_TASK_TAUS] = {"threshold trials", try_taus, taus, taus * (1 + w->n_il)},
        [WNW_TASK_HELD_HEADS] = {"held-out heads", hold_heads, 2, 2},
        [WNW_TASK_HELD_TAUS] = {"held-out thresholds", hold_taus, WNW_HELD_KEPT,
                                WNW_HELD_CURVE + WNW_COMPILER_STEPS},
        [WNW_TASK_HELD_CONSTANT] = {"held-out constant", hold_constant, 1, 2},
    };
    return all[task];
}

/* ---- Units ---- */

static bool on_read(int32_t done, int32_t total, void *user)
{
    wnw_calibration *c = user;
    const double share = total > 0 ? (double)done / total : 0;
    /* Reading comes first in a unit; c->cost is the whole unit's. */
    return wnw__calibrate_progress(c, share * total / (double)c->cost) == WNW_OK;
}

static int run_unit(wnw_calibration *c, void *user, json_t **result)
{
    struct unit *u = user;
    struct wnw__compiling *w = u->w;
    const struct wnw__trial_text text = wnw__compiler_text(w, &w->items[u->item]);
    const wnw_session_params params = {WNW_INIT(wnw_session_params), .n_ctx = text.n_prompt + text.n_next,
                                       .kv_type = c->params.kv_type, .progress = on_read, .progress_user = c};
    int rc = wnw__trial_read(&u->p, w->engine, &params, &text, w->o.window);
    if (rc == WNW_OK)
        rc = u->of.run(u);
    if (rc == WNW_OK)
        *result = json_pack("{s:o}", "nll", wnw__json_f64s(u->out, u->of.n_noted));
    wnw__trial_free(&u->p);
    return rc;
}

static int64_t unit_cost(const struct wnw__compiling *w, enum wnw__compiler_task task, int32_t item)
{
    return w->items[item].n_prompt + (int64_t)task_of(w, task).n_trial * w->o.next;
}

/* Does the unit, or takes its numbers from the journal, to the item. */
static int do_unit(struct unit *u)
{
    struct wnw__compiling *w = u->w;
    double **noted = &w->items[u->item].noted[u->task];
    char budget[24] = "", name[64];
    json_t *result;
    free(*noted);
    u->out = *noted = calloc((size_t)u->of.n_noted, sizeof *u->out);
    if (!u->out)
        return wnw__fail(WNW_E_NOMEM, "no memory for the results of a prompt");
    if (w->budget > 0)
        snprintf(budget, sizeof budget, "b%d ", (int)w->budget);
    snprintf(name, sizeof name, "%s%s %d", budget, u->of.name, (int)u->item);
    WNW_TRY(wnw__calibrate_unit(
        w->c,
        &(struct wnw__calibrate_unit){
            .name = name, .cost = unit_cost(w, u->task, u->item), .run = run_unit, .user = u},
        &result));
    bool good = wnw__json_get_f64s(result, "nll", u->out, u->of.n_noted);
    for (int32_t k = 0; good && k < u->of.n_noted; k++)
        good = isfinite(u->out[k]);
    json_decref(result);
    return good ? WNW_OK : wnw__calibrate_damaged(w->c, u->of.name);
}

/* Whether the task is for this item, where every prompt is tried. */
static bool is_for(const struct wnw__compiling *w, enum wnw__compiler_task task, int32_t item)
{
    return task == WNW_TASK_PROMPT || (task >= WNW_TASK_HELD_HEADS) == (item >= w->o.items);
}

int wnw__compiler_do(struct wnw__compiling *w, enum wnw__compiler_task task)
{
    const bool tries = task == WNW_TASK_HEADS || task == WNW_TASK_TAUS;
    for (int32_t i = 0; i < wnw__compiler_n_items(w); i++)
        if (is_for(w, task, i) && (w->items[i].kept || !tries))
            WNW_TRY(do_unit(&(struct unit){w, task, i, task_of(w, task), {0}, NULL}));
    return WNW_OK;
}

int64_t wnw__compiler_cost(const struct wnw__compiling *w)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < wnw__compiler_n_items(w); i++)
        for (int k = 0; k < WNW_N_TASK; k++) {
            const enum wnw__compiler_task task = (enum wnw__compiler_task)k;
            if (is_for(w, task, i))
                sum += unit_cost(w, task, i) * (task == WNW_TASK_PROMPT ? 1 : w->c->params.n_budgets);
        }
    return sum;
}
