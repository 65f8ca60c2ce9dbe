/* SPDX-License-Identifier: MIT */
/*
 * CompilerKV's offline compiler: head weights and risk thresholds from logged experience ("CompilerKV: Risk-Adaptive KV
 * Compression via Offline Experience Compilation", arXiv 2602.08686, eq. 2 to 4 and 14). The authors have published tables
 * drawn from curves and no compiler; docs/internals/design/calibration.md says what is decided here.
 *
 *   1. Every prompt is read once: entropy and perplexity of its last tokens, and how likely its continuation is with the
 *      full cache. The features' quantiles are the bins; crowded bins lose prompts.
 *   2. Head weights: each trial draws a weight for every layer and KV head, keeps `budget` entries of every head, and
 *      reads the continuation. Reward: what the loss of likelihood takes off, - (nll - nll_full).
 *   3. Conservative Q-learning chooses a weight for each head; one that does not beat 1 by a standard error becomes 1.
 *      All are 1 if two halves of the prompts disagree about them, or if held-out prompts gain nothing.
 *   4. Thresholds: each trial draws one for every layer. A layer also pays 0.1 nats x |entries above - free| / free. There is
 *      a cell per layer and pair of bins. One with few rewards borrows from larger parts of the table, and one with fewer
 *      prompts than `cell_prompts` takes the choice of its layer, or of all.
 *   5. Held-out prompts compare the thresholds with 1, with one threshold that keeps as much on average, and with none at
 *      as many entries. If they do not beat the one by a standard error, it is written into all cells.
 */
#include "base/json.h"
#include "calibrate/compiler_impl.h"
#include "winnow_method.h"

#include <stdlib.h>

/* ---- Options ---- */

static const char *const accepts[] = {"checked", "always", NULL};

#define INT(name, def, min, max, help) WNW_KIND_INT(struct wnw__compiler_opts, name, def, min, max, help)
#define REAL(name, def, max, help)     WNW_KIND_REAL(struct wnw__compiler_opts, name, def, 0, max, help)
#define ENUM(name, list, help)         WNW_KIND_ENUM(struct wnw__compiler_opts, name, list, help)
static const wnw_option options[] = {
    INT(items, 0, 0, 1 << 20, "prompts that are tried; 0: by effort"),
    INT(held_out, 0, 0, 1 << 20, "prompts that only check; 0: by effort, or a third of items"),
    INT(length, 0, 0, 1 << 24, "tokens of a prompt; 0: by effort, at least twice the budget"),
    INT(next, 0, 0, 4096, "tokens after a prompt that are read after it; 0: by effort"),
    INT(head_trials, 0, 0, 4096, "trials of head weights per prompt; 0: by effort"),
    INT(tau_trials, 0, 0, 4096, "trials of thresholds per prompt; 0: by effort"),
    INT(entropy_bins, 0, 0, 128, "bins of entropy; 0: by effort"),
    INT(ppl_bins, 0, 0, 128, "bins of perplexity; 0: by effort"),
    INT(window, 64, 1, 4096, "last prompt tokens that are observed, and that always stay"),
    REAL(floor, 0.25, 1,
         "part of the budget besides the window that every layer keeps at least, as the gate's"),
    INT(cell_prompts, 4, 1, 1 << 20,
        "prompts that a cell of the thresholds needs for a choice of its own; with fewer its layer's, "
        "or that of all"),
    ENUM(accept, accepts,
         "whether head weights that fail the checks become 1, and thresholds one (checked), or are kept "
         "(always)"),
    {0}};

/* ---- What the effort means ---- */

/* clang-format off */
#define FEW_WEIGHTS {3, 1, {0.85, 1, 1.15}}
#define FEW_TAUS {3, 1, {0.5, 1, 2}}
#define WEIGHTS {7, 3, {0.85, 0.90, 0.95, 1.00, 1.05, 1.10, 1.15}}
#define TAUS {7, 3, {0.25, 0.5, 0.75, 1, 1.5, 2, 3}}
#define SIZES(a, b, c, d, e, f, g) \
    {.items = a, .held_out = b, .next = c, .head_trials = d, .tau_trials = e, .entropy_bins = f, .ppl_bins = g}
/* clang-format on */

static const struct effort {
    struct wnw__compiler_opts o;
    int32_t lengths[4], n_lengths;
    struct wnw__compiler_actions heads, taus;
} efforts[] = {
    [WNW_EFFORT_QUICK] = {SIZES(24, 8, 48, 16, 12, 5, 2), {768}, 1, FEW_WEIGHTS, FEW_TAUS},
    [WNW_EFFORT_NORMAL] = {SIZES(40, 12, 64, 32, 20, 5, 2), {1024, 1280}, 2, FEW_WEIGHTS, FEW_TAUS},
    [WNW_EFFORT_PAPER] = {SIZES(512, 64, 64, 32, 24, 20, 4), {1024, 2048, 4096, 8192}, 4, WEIGHTS, TAUS},
};

/* Sets what is as the effort says, and tells the profile and the journal so. */
static int resolve(struct wnw__compiling *w, const struct effort *e)
{
    struct wnw__compiler_opts *o = &w->o;
    const struct {
        const char *name;
        int32_t *value, of_effort;
    } rows[] = {{"items", &o->items, e->o.items},
                {"held_out", &o->held_out, o->items > 0 ? (o->items + 2) / 3 : e->o.held_out},
                {"next", &o->next, e->o.next},
                {"head_trials", &o->head_trials, e->o.head_trials},
                {"tau_trials", &o->tau_trials, e->o.tau_trials},
                {"entropy_bins", &o->entropy_bins, e->o.entropy_bins},
                {"ppl_bins", &o->ppl_bins, e->o.ppl_bins}};
    w->heads = e->heads;
    w->taus = e->taus;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        *rows[i].value = *rows[i].value > 0 ? *rows[i].value : rows[i].of_effort;
        WNW_TRY(wnw__calibrate_set(w->c, rows[i].name, json_integer(*rows[i].value)));
    }
    return WNW_OK;
}

/* Names settings that have one value, at their places among the options. So the file of a calibration has the settings, and
 * the bytes, of the tables that ship. */
static int set_fixed(struct wnw__compiling *w)
{
    static const char *const rows[][2] = {
        {"gate", "\"elastic\""}, {"floor", NULL},         {"head_low", "0.85"},       {"head_high", "1.15"},
        {"head_step", "0.0"},    {"tau_low", "0.25"},     {"tau_high", "1.0"},        {"tau_step", "0.0"},
        {"cell_prompts", NULL},  {"conservatism", "0.5"}, {"logging", "\"uniform\""}, {"penalty", "0.1"},
        {"guard", "1.0"},        {"accept", NULL},        {"smooth", "false"},        {"monotone", "false"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *v = rows[i][1] ? json_loads(rows[i][1], JSON_DECODE_ANY, NULL)
                               : json_incref(json_object_get(w->c->settings, rows[i][0]));
        json_object_del(w->c->settings, rows[i][0]);
        WNW_TRY(wnw__calibrate_set(w->c, rows[i][0], v));
    }
    return WNW_OK;
}

/* The lengths that leave something to drop and fit the context, to out[4]. E_RANGE: there is none. */
static int find_lengths(const struct wnw__compiling *w, const struct effort *e, int32_t *out, int32_t *n)
{
    const int32_t most = w->c->info.n_ctx_train - w->o.next;
    int32_t least = 0;
    for (int32_t i = 0; i < w->c->params.n_budgets; i++)
        least = w->c->params.budgets[i] > least / 2 ? 2 * w->c->params.budgets[i] : least;
    *n = 0;
    for (int32_t i = 0; w->o.length == 0 && i < e->n_lengths; i++)
        if (e->lengths[i] >= least && e->lengths[i] <= most)
            out[(*n)++] = e->lengths[i];
    if (*n == 0)
        out[(*n)++] = w->o.length > 0 ? w->o.length : least;
    if (out[0] > most)
        return wnw__fail(WNW_E_RANGE,
                         "prompts of %d tokens and the %d after them do not fit the model's context of %d; "
                         "set length, next or a smaller budget",
                         (int)out[0], (int)w->o.next, (int)w->c->info.n_ctx_train);
    if (out[0] < least)
        return wnw__fail(WNW_E_RANGE,
                         "prompts of %d tokens are too short for a budget of %d; set length to at least %d",
                         (int)out[0], (int)(least / 2), (int)least);
    return WNW_OK;
}

static int check(const struct wnw__compiling *w)
{
    const wnw_calibration *c = w->c;
    if (c->params.n_budgets == 0)
        return wnw__fail(WNW_E_ARG, "CompilerKV's tables belong to a budget, and none is given");
    for (int32_t i = 0; i < c->params.n_budgets; i++)
        if (c->params.budgets[i] < 2 || c->params.budgets[i] > c->info.n_ctx_train / 2)
            return wnw__fail(WNW_E_RANGE, "a budget of %d; give 2 to %d, half of the model's context",
                             (int)c->params.budgets[i], (int)(c->info.n_ctx_train / 2));
    if (w->o.items < 4 || w->o.held_out < 2)
        return wnw__fail(WNW_E_RANGE, "%d prompts and %d held-out ones are too few; give at least 4 and 2",
                         (int)w->o.items, (int)w->o.held_out);
    return WNW_OK;
}

/* ---- The work ---- */

static int allocate(struct wnw__compiling *w)
{
    const wnw_engine_params params = {WNW_INIT(wnw_engine_params), .n_threads = w->c->params.n_threads};
    const struct wnw__risk_grid *g = &w->grid;
    const size_t n_layer = (size_t)w->c->info.n_layer, n_heads = n_layer * (size_t)w->c->info.n_head_kv,
                 n_cell = (size_t)g->n_layer * (size_t)g->n_entropy * (size_t)g->n_ppl,
                 n_trial = (size_t)w->o.head_trials + (size_t)w->o.tau_trials;
    w->items = wnw__compiler_own(w, (size_t)wnw__compiler_n_items(w), sizeof *w->items);
    w->action = wnw__compiler_own(w, n_heads, sizeof *w->action);
    w->try_weight = wnw__compiler_own(w, n_heads, sizeof *w->try_weight);
    w->try_tau = wnw__compiler_own(w, n_layer, sizeof *w->try_tau);
    w->count = wnw__compiler_own(w, n_layer, sizeof *w->count);
    w->weight = wnw__compiler_own(w, n_heads, sizeof *w->weight);
    w->tau = wnw__compiler_own(w, n_cell, sizeof *w->tau);
    w->tau_from = wnw__compiler_own(w, n_cell, sizeof *w->tau_from);
    w->entropy_edge = wnw__compiler_own(w, (size_t)g->n_entropy, sizeof *w->entropy_edge);
    w->ppl_edge = wnw__compiler_own(w, (size_t)g->n_ppl, sizeof *w->ppl_edge);
    w->choice = wnw__compiler_own(w, n_cell, sizeof *w->choice);
    w->mean = wnw__compiler_own(w, n_cell, sizeof(double[WNW_CQL_ACTIONS]));
    w->slope = wnw__compiler_own(w, 2 * n_heads, sizeof *w->slope);
    w->trials.cell = wnw__compiler_own(w, n_heads, sizeof *w->trials.cell);
    w->trials.action = wnw__compiler_own(w, n_trial, n_heads);
    w->trials.reward = wnw__compiler_own(w, n_trial, sizeof *w->trials.reward);
    w->trials.penalty = wnw__compiler_own(w, n_trial * n_layer, sizeof *w->trials.penalty);
    return w->short_of_memory ? wnw__fail(WNW_E_NOMEM, "no memory for a calibration")
                              : wnw_engine_new(&w->engine, w->c->m, &params);
}

static int compile_budget(struct wnw__compiling *w, int32_t budget)
{
    w->budget = budget;
    w->checks = (struct wnw__compiler_checks){0};
    WNW_TRY(wnw__compiler_learn_heads(w));
    WNW_TRY(wnw__compiler_learn_thresholds(w));
    return wnw__compiler_write(w);
}

static int compile(struct wnw__compiling *w)
{
    const struct effort *e = &efforts[w->c->params.effort];
    int32_t lengths[4], n_lengths;
    WNW_TRY(resolve(w, e));
    WNW_TRY(set_fixed(w));
    WNW_TRY(check(w));
    w->il = wnw__compiler_own(w, (size_t)w->c->info.n_layer, sizeof *w->il);
    if (w->il)
        WNW_TRY(wnw__trial_layers(w->il, &w->n_il, &w->c->shape));
    w->grid = (struct wnw__risk_grid){w->n_il, w->o.entropy_bins, w->o.ppl_bins};
    WNW_TRY(find_lengths(w, e, lengths, &n_lengths));
    WNW_TRY(wnw__calibrate_set(w->c, "length", wnw__json_i32s(lengths, n_lengths)));
    WNW_TRY(allocate(w));
    WNW_TRY(wnw__compiler_lay_out(w, lengths, n_lengths));
    WNW_TRY(wnw__calibrate_begin(w->c, wnw__compiler_cost(w)));
    WNW_TRY(wnw__compiler_do(w, WNW_TASK_PROMPT));
    WNW_TRY(wnw__compiler_bins(w));
    for (int32_t i = 0; i < w->c->params.n_budgets; i++)
        WNW_TRY(compile_budget(w, w->c->params.budgets[i]));
    return WNW_OK;
}

static void release(struct wnw__compiling *w)
{
    for (int32_t i = 0; w->items && i < wnw__compiler_n_items(w); i++)
        for (int task = 0; task < WNW_N_TASK; task++)
            free(w->items[i].noted[task]);
    for (int i = 0; i < WNW_N_LOG; i++)
        wnw__bandit_free(&w->log[i]);
    for (int i = 0; i < w->n_owned; i++)
        free(w->owned[i]);
    wnw_engine_free(w->engine);
    wnw_free(w->tokens);
}

static int run(wnw_calibration *c, const void *opts)
{
    struct wnw__compiling w = {.c = c, .o = *(const struct wnw__compiler_opts *)opts, .bos = -1};
    const int rc = compile(&w);
    release(&w);
    return rc;
}

const struct wnw__calibrate_type wnw__calibrate_compiler = {
    .name = "compiler",
    .about = "CompilerKV's head weights and risk thresholds for a budget, learned from trials.",
    .options = options,
    .options_size = sizeof(struct wnw__compiler_opts),
    .reads_text = true,
    .run = run,
};
