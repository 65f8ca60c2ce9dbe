/* SPDX-License-Identifier: MIT */
#include "base/json.h"
#include "calibrate/compiler_impl.h"
#include "profile/profile.h"

#include <math.h>
#include <stdlib.h>

/* ---- Tables ---- */

/* Head weights of all query heads [n_layer][n_head]: those of a group are alike. */
static json_t *weights(const struct wnw__compiling *w)
{
    const wnw_model_info *m = &w->c->info;
    const int32_t group = m->n_head / m->n_head_kv;
    float *all = malloc((size_t)m->n_layer * (size_t)m->n_head * sizeof *all);
    for (int32_t i = 0; all && i < m->n_layer * m->n_head; i++)
        all[i] = w->weight[i / m->n_head * m->n_head_kv + i % m->n_head / group];
    json_t *v = all ? wnw__json_f32_rows(all, m->n_layer, m->n_head) : NULL;
    free(all);
    return v;
}

/* What the tables of thresholds say. */
enum table { LEARNED, CONSTANT, SOURCE };

/* What a table says of cell k of a layer: i is its number among those that take part, -1 where it does not. */
static json_t *cell(const struct wnw__compiling *w, enum table what, int32_t i, int32_t k)
{
    const int32_t c = i < 0 ? 0 : wnw__risk_cell(&w->grid, i, 0, k);
    if (what == SOURCE)
        return json_string(i < 0 ? "none" : wnw__risk_from[w->tau_from[c]]);
    if (i < 0)
        return wnw__json_f32(1);
    return wnw__json_f32((float)(what == LEARNED ? w->tau[c] : w->checks.constant));
}

/* [n_layer of the model][entropy bins][perplexity bins]; NULL without memory. */
static json_t *table(const struct wnw__compiling *w, enum table what)
{
    json_t *layers = json_array();
    bool good = layers;
    for (int32_t il = 0, i = 0; good && il < w->c->info.n_layer; il++) {
        const bool part = i < w->n_il && w->il[i] == il;
        json_t *rows = json_array();
        for (int32_t k = 0; good && k < w->grid.n_entropy * w->grid.n_ppl; k++) {
            if (k % w->grid.n_ppl == 0)
                good = json_array_append_new(rows, json_array()) == 0;
            json_t *row = json_array_get(rows, (size_t)(k / w->grid.n_ppl));
            good = good && json_array_append_new(row, cell(w, what, part ? i : -1, k)) == 0;
        }
        good = json_array_append_new(layers, rows) == 0 && good;
        i += part;
    }
    if (good)
        return layers;
    json_decref(layers);
    return NULL;
}

/* Rewards per cell of a log that had n_trial of each prompt. */
static json_t *counts(const struct wnw__bandit *b, int32_t n_trial)
{
    json_t *v = json_array();
    bool good = v;
    for (int32_t c = 0; good && c < b->n_cell; c++)
        good = json_array_append_new(v, json_integer(b->n_prompt[c] * n_trial)) == 0;
    if (good)
        return v;
    json_decref(v);
    return NULL;
}

/* Share of a log's cells that have a reward; the others got their values from their neighbours. */
static double visited(const struct wnw__bandit *b)
{
    int32_t n = 0;
    for (int32_t c = 0; c < b->n_cell; c++)
        n += b->n_prompt[c] > 0;
    return (double)n / b->n_cell;
}

/* ---- Profile ---- */

/* The settings that a table is valid for, and where it comes from. */
static json_t *settings(const struct wnw__compiling *w)
{
    double nll = 0;
    for (int32_t i = 0; i < w->o.items; i++)
        nll += w->items[i].noted[WNW_TASK_PROMPT][2] / w->o.items;
    return json_pack("{s:i, s:i, s:s, s:s, s:s, s:s, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:s}", "budget",
                     (int)w->budget, "n_sink", 0, "alpha_scope", wnw__alpha_scopes[WNW_ALPHA_GLOBAL], "pool",
                     wnw__alpha_pools[WNW_ALPHA_POOL_NONE], "score_norm", wnw__score_norms[WNW_NORM_MEAN],
                     "utility", wnw__utilities[WNW_UTILITY_FULL], "entropy_norm", 0, "design", "factorial",
                     "head_actions", wnw__json_f64s(w->heads.value, w->heads.n), "tau_actions",
                     wnw__json_f64s(w->taus.value, w->taus.n), "head_sigma",
                     json_real(wnw__bandit_sigma(&w->log[WNW_LOG_HEADS])), "tau_sigma",
                     json_real(wnw__bandit_sigma(&w->log[WNW_LOG_TAUS])), "nll_full", json_real(nll),
                     "head_origin", wnw__compiler_has_weights(w) ? "learned" : "default", "tau_origin",
                     wnw__compiler_is_constant(w) ? "constant" : "learned");
}

/* Sets a number, or null where it is infinite. */
static bool set(json_t *o, const char *key, const char *suffix, double x)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", key, suffix);
    return json_object_set_new(o, name, isfinite(x) ? json_real(x) : json_null()) == 0;
}

static json_t *checks(const struct wnw__compiling *w)
{
    static const char *const gains[WNW_N_OVER] = {"head_gain", "tau_gain_over_one", "tau_gain_over_none",
                                                  "tau_gain_over_constant"};
    const struct wnw__compiler_checks *k = &w->checks;
    json_t *v = json_object();
    bool good = v && set(v, "split_half", "", k->split) &&
                json_object_set_new(v, "changed", json_integer(k->n_changed)) == 0 &&
                json_object_set_new(v, "no_signal", json_boolean(k->no_signal)) == 0 &&
                json_object_set_new(v, "rejected", json_boolean(k->rejected)) == 0 &&
                set(v, "weight_visited", "", visited(&w->log[WNW_LOG_HEADS])) &&
                set(v, "tau_visited", "", visited(&w->log[WNW_LOG_TAUS]));
    for (int i = k->compared ? 0 : WNW_OVER_ONE; good && i < WNW_N_OVER; i++)
        good = set(v, gains[i], "", k->gain[i].mean) && set(v, gains[i], "_error", k->gain[i].error);
    if (good && set(v, "kept_at_constant", "", k->kept_constant) &&
        set(v, "bound_layers", "", k->bound_layers) && set(v, "bound_prompts", "", k->bound_prompts) &&
        set(v, "kept", "", k->kept_learned) && set(v, "kept_at_one", "", k->kept_one))
        return v;
    json_decref(v);
    return NULL;
}

static json_t *results(const struct wnw__compiling *w)
{
    const bool constant = wnw__compiler_is_constant(w);
    return json_pack("{s:o, s:o, s:i, s:o, s:o, s:o*, s:o, s:f, s:o, s:o, s:o}", "entropy_edges",
                     wnw__json_f64s(w->entropy_edge, w->grid.n_entropy - 1), "ppl_edges",
                     wnw__json_f64s(w->ppl_edge, w->grid.n_ppl - 1), "default_ppl_bin",
                     (int)w->default_ppl_bin, "weight", weights(w), "tau",
                     table(w, constant ? CONSTANT : LEARNED), "tau_learned",
                     constant ? table(w, LEARNED) : NULL, "tau_from", table(w, SOURCE), "tau_constant",
                     w->checks.constant, "weight_count", counts(&w->log[WNW_LOG_HEADS], w->o.head_trials),
                     "tau_count", counts(&w->log[WNW_LOG_TAUS], w->o.tau_trials), "checks", checks(w));
}

/* ---- Report ---- */

static void report_heads(const struct wnw__compiling *w, struct wnw__calibrate_text *out)
{
    const struct wnw__compiler_checks *k = &w->checks;
    wnw__calibrate_print(out,
                         "head weights: %d of %d differ from 1; their slopes on two halves of the prompts "
                         "have rank correlation %.2f (0.3 is asked for)\n",
                         (int)k->n_changed, (int)w->log[WNW_LOG_HEADS].n_cell, k->split);
    if (k->compared)
        wnw__calibrate_print(out,
                             "held-out prompts: learned weights gain %.4f +- %.4f nats per token over ones\n",
                             k->gain[0].mean, k->gain[0].error);
    if (k->no_signal || k->rejected)
        wnw__calibrate_print(out, "%s: %s\n", k->no_signal ? "no signal" : "no gain on held-out prompts",
                             w->o.accept == WNW_ACCEPT_CHECKED
                                 ? "all weights are written as 1"
                                 : "written all the same, as accept=always says");
}

/* The mean threshold of every bin of one feature, over layers and the other feature. */
static void report_bins(const struct wnw__compiling *w, struct wnw__calibrate_text *out, bool ppl)
{
    const struct wnw__risk_grid *g = &w->grid;
    const int32_t n = ppl ? g->n_ppl : g->n_entropy, n_other = ppl ? g->n_entropy : g->n_ppl;
    wnw__calibrate_print(out, "mean threshold by bin of %s:", ppl ? "perplexity" : "entropy");
    for (int32_t b = 0; b < n; b++) {
        double sum = 0;
        for (int32_t c = 0; c < w->log[WNW_LOG_TAUS].n_cell; c++)
            if ((ppl ? c : c / g->n_ppl) % n == b)
                sum += w->tau[c];
        wnw__calibrate_print(out, " %.2f", sum / ((double)g->n_layer * n_other));
    }
    wnw__calibrate_print(out, "\n");
}

static void report_thresholds(const struct wnw__compiling *w, struct wnw__calibrate_text *out)
{
    const struct wnw__compiler_checks *k = &w->checks;
    const struct wnw__compiler_gain *g = k->gain;
    const int32_t n = w->log[WNW_LOG_TAUS].n_cell;
    double from[WNW_N_FROM] = {0}; /* cells by where their choice comes from */
    for (int32_t c = 0; c < n; c++)
        from[w->tau_from[c]]++;
    wnw__calibrate_print(out, "thresholds: %.0f %% of the cells were visited (50 %% are asked for)\n",
                         100 * visited(&w->log[WNW_LOG_TAUS]));
    wnw__calibrate_print(
        out,
        "choices: %.0f %% of the cells have %d prompts or more and chose for themselves, %.0f %% took "
        "their layer's choice, %.0f %% that of all\n",
        100 * (from[WNW_FROM_CELL] / n), (int)w->o.cell_prompts, 100 * (from[WNW_FROM_LAYER] / n),
        100 * (from[WNW_FROM_ALL] / n));
    report_bins(w, out, false);
    report_bins(w, out, true);
    wnw__calibrate_print(
        out,
        "held-out prompts: learned thresholds keep %.1f entries per head and gain %.4f +- "
        "%.4f nats per token over thresholds of 1, which keep %.1f\n"
        "the check of risk: %.4f +- %.4f over one threshold for all prompts, %.3f, which keeps %.1f on "
        "average; %.4f +- %.4f over no threshold at as many entries on each prompt\n"
        "the thresholds bind in %.0f %% of the layers, and in some layer of %.0f %% of the prompts\n",
        k->kept_learned, g[WNW_OVER_ONE].mean, g[WNW_OVER_ONE].error, k->kept_one, g[WNW_OVER_CONSTANT].mean,
        g[WNW_OVER_CONSTANT].error, k->constant, k->kept_constant, g[WNW_OVER_NONE].mean,
        g[WNW_OVER_NONE].error, 100 * k->bound_layers, 100 * k->bound_prompts);
    if (k->tau_rejected)
        wnw__calibrate_print(out, "no gain over one threshold: %s\n",
                             wnw__compiler_is_constant(w)
                                 ? "it is written into all cells, and the learned ones as tau_learned"
                                 : "the learned ones are written all the same, as accept=always says");
}

int wnw__compiler_write(struct wnw__compiling *w)
{
    char file[40];
    struct wnw__calibrate_text *out;
    snprintf(file, sizeof file, "compiler-b%d.json", (int)w->budget);
    WNW_TRY(wnw__calibrate_profile(w->c, file, "compiler", settings(w), results(w)));
    WNW_TRY(wnw__calibrate_output(w->c, "report", &out));
    wnw__calibrate_print(out, "CompilerKV's tables for a budget of %d, from %d prompts\n", (int)w->budget,
                         (int)w->o.items);
    report_heads(w, out);
    report_thresholds(w, out);
    if (w->n_trial > 0)
        wnw__calibrate_print(out, "%.0f trials, %.0f a minute\n", w->n_trial,
                             w->n_trial * 6e4 / fmax(w->trial_ms, 1));
    return WNW_OK;
}
