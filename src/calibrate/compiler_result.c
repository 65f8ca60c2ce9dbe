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

/* Thresholds of one layer of the model [entropy bins][perplexity bins]; 1 where the layer takes no part. They are the learned
 * ones, or the one threshold for all prompts. */
static json_t *some_thresholds(const struct wnw__compiling *w, int32_t il, bool learned)
{
    const int32_t n = w->grid.n_entropy * w->grid.n_ppl;
    float *row = malloc((size_t)n * sizeof *row);
    for (int32_t i = 0; row && i < n; i++)
        row[i] = 1;
    for (int32_t i = 0; row && i < w->n_il; i++)
        for (int32_t k = 0; w->il[i] == il && k < n; k++)
            row[k] = (float)(learned ? w->tau[i * n + k] : w->checks.constant);
    json_t *v = row ? wnw__json_f32_rows(row, w->grid.n_entropy, w->grid.n_ppl) : NULL;
    free(row);
    return v;
}

/* Those that methods read. */
static json_t *thresholds_of(const struct wnw__compiling *w, int32_t il)
{
    return some_thresholds(w, il, !wnw__compiler_is_constant(w));
}

static json_t *learned_of(const struct wnw__compiling *w, int32_t il)
{
    return some_thresholds(w, il, true);
}

/* An array of what `of` says of each layer of the model; NULL without memory. */
static json_t *by_layer(const struct wnw__compiling *w,
                        json_t *(*of)(const struct wnw__compiling *w, int32_t il))
{
    json_t *v = json_array();
    for (int32_t il = 0; v && il < w->c->info.n_layer; il++)
        if (json_array_append_new(v, of(w, il)) != 0) {
            json_decref(v);
            v = NULL;
        }
    return v;
}

/* Whose prompts chose the learned thresholds of one layer of the model; "none" where it takes no part. NULL without memory. */
static json_t *sources_of(const struct wnw__compiling *w, int32_t il)
{
    const struct wnw__risk_grid *g = &w->grid;
    json_t *rows = json_array();
    bool good = rows;
    int32_t at = -1;
    for (int32_t i = 0; i < w->n_il; i++)
        at = w->il[i] == il ? i : at;
    for (int32_t e = 0; e < g->n_entropy; e++) {
        json_t *row = json_array();
        for (int32_t p = 0; row && p < g->n_ppl; p++)
            json_array_append_new(
                row, json_string(at < 0 ? "none" : wnw__risk_from[w->tau_from[wnw__risk_cell(g, at, e, p)]]));
        if (!row || json_array_size(row) < (size_t)g->n_ppl || json_array_append(rows, row) != 0)
            good = false;
        json_decref(row);
    }
    if (good)
        return rows;
    json_decref(rows);
    return NULL;
}

/* Share of the thresholds whose choice comes from there. */
static double share_from(const struct wnw__compiling *w, enum wnw__risk_from from)
{
    int32_t n = 0;
    for (int32_t c = 0; c < w->tau_log.n_cell; c++)
        n += w->tau_from[c] == from;
    return (double)n / w->tau_log.n_cell;
}

/* Rewards of cell c of a log. */
static int64_t count(const struct wnw__bandit *b, int32_t c)
{
    int64_t n = 0;
    for (int32_t a = 0; a < b->n_action; a++)
        n += b->n[(int64_t)c * b->n_action + a];
    return n;
}

/* Rewards per cell of a log, in its order. */
static json_t *counts(const struct wnw__bandit *b)
{
    json_t *v = json_array();
    for (int32_t c = 0; v && c < b->n_cell; c++)
        if (json_array_append_new(v, json_integer(count(b, c))) != 0) {
            json_decref(v);
            v = NULL;
        }
    return v;
}

/* Share of a log's cells that have a reward; the others got their values from their neighbours. */
static double visited(const struct wnw__bandit *b)
{
    int32_t n = 0;
    for (int32_t c = 0; c < b->n_cell; c++)
        n += count(b, c) > 0;
    return (double)n / b->n_cell;
}

/* ---- Profile ---- */

static double mean_nll(const struct wnw__compiling *w)
{
    double sum = 0;
    for (int32_t i = 0; i < w->o.items; i++)
        sum += w->items[i].nll_full / w->o.items;
    return sum;
}

/* The settings that a table is valid for, and where it comes from. */
static json_t *settings(const struct wnw__compiling *w)
{
    const bool learned = wnw__compiler_has_weights(w);
    return json_pack(
        "{s:i, s:i, s:s, s:s, s:s, s:s, s:b, s:s, s:o, s:o, s:o, s:o, s:o, s:s, s:s}", "budget",
        (int)w->budget, "n_sink", 0, "alpha_scope", wnw__alpha_scopes[WNW_ALPHA_GLOBAL], "pool",
        wnw__alpha_pools[WNW_ALPHA_POOL_NONE], "score_norm", wnw__score_norms[WNW_NORM_MEAN], "utility",
        wnw__utilities[WNW_UTILITY_FULL], "entropy_norm", 0, "design", "factorial", "head_actions",
        wnw__json_f64s(w->heads.value, w->heads.n), "tau_actions", wnw__json_f64s(w->taus.value, w->taus.n),
        "head_sigma", json_real(wnw__bandit_sigma(&w->head_log)), "tau_sigma",
        json_real(wnw__bandit_sigma(&w->tau_log)), "nll_full", json_real(mean_nll(w)), "head_origin",
        learned ? "learned" : "default", "tau_origin", wnw__compiler_is_constant(w) ? "constant" : "learned");
}

/* A number, or null where it is infinite. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *checks(const struct wnw__compiling *w)
{
    const struct wnw__compiler_checks *k = &w->checks;
    json_t *v = json_pack("{s:o, s:i, s:b, s:b}", "split_half", number(k->split), "changed",
                          (int)k->n_changed, "no_signal", (int)k->no_signal, "rejected", (int)k->rejected);
    bool good = v && json_object_set_new(v, "weight_visited", number(visited(&w->head_log))) == 0 &&
                json_object_set_new(v, "tau_visited", number(visited(&w->tau_log))) == 0;
    if (good && k->compared)
        good = json_object_set_new(v, "head_gain", number(k->gain)) == 0 &&
               json_object_set_new(v, "head_gain_error", number(k->gain_error)) == 0;
    good = good && json_object_set_new(v, "tau_gain_over_one", number(k->tau_gain_one)) == 0 &&
           json_object_set_new(v, "tau_gain_over_one_error", number(k->tau_error_one)) == 0 &&
           json_object_set_new(v, "tau_gain_over_none", number(k->tau_gain_none)) == 0 &&
           json_object_set_new(v, "tau_gain_over_none_error", number(k->tau_error_none)) == 0 &&
           json_object_set_new(v, "tau_gain_over_constant", number(k->tau_gain_constant)) == 0 &&
           json_object_set_new(v, "tau_gain_over_constant_error", number(k->tau_error_constant)) == 0 &&
           json_object_set_new(v, "kept_at_constant", number(k->kept_constant)) == 0 &&
           json_object_set_new(v, "bound_layers", number(k->bound_layers)) == 0 &&
           json_object_set_new(v, "bound_prompts", number(k->bound_prompts)) == 0 &&
           json_object_set_new(v, "kept", number(k->kept_learned)) == 0 &&
           json_object_set_new(v, "kept_at_one", number(k->kept_one)) == 0;
    if (good)
        return v;
    json_decref(v);
    return NULL;
}

static json_t *results(const struct wnw__compiling *w)
{
    return json_pack("{s:o, s:o, s:i, s:o, s:o, s:o*, s:o, s:f, s:o, s:o, s:o}", "entropy_edges",
                     wnw__json_f64s(w->entropy_edge, w->grid.n_entropy - 1), "ppl_edges",
                     wnw__json_f64s(w->ppl_edge, w->grid.n_ppl - 1), "default_ppl_bin",
                     (int)w->default_ppl_bin, "weight", weights(w), "tau", by_layer(w, thresholds_of),
                     "tau_learned", wnw__compiler_is_constant(w) ? by_layer(w, learned_of) : NULL, "tau_from",
                     by_layer(w, sources_of), "tau_constant", w->checks.constant, "weight_count",
                     counts(&w->head_log), "tau_count", counts(&w->tau_log), "checks", checks(w));
}

/* ---- Report ---- */

static void report_heads(const struct wnw__compiling *w, struct wnw__calibrate_text *out)
{
    const struct wnw__compiler_checks *k = &w->checks;
    wnw__calibrate_print(out,
                         "head weights: %d of %d differ from 1; their slopes on two halves of the prompts "
                         "have rank correlation %.2f (0.3 is asked for)\n",
                         (int)k->n_changed, (int)w->head_log.n_cell, k->split);
    if (k->compared)
        wnw__calibrate_print(out,
                             "held-out prompts: learned weights gain %.4f +- %.4f nats per token over ones\n",
                             k->gain, k->gain_error);
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
        for (int32_t il = 0; il < g->n_layer; il++)
            for (int32_t o = 0; o < n_other; o++)
                sum += w->tau[wnw__risk_cell(g, il, ppl ? o : b, ppl ? b : o)];
        wnw__calibrate_print(out, " %.2f", sum / ((double)g->n_layer * n_other));
    }
    wnw__calibrate_print(out, "\n");
}

static void report_thresholds(const struct wnw__compiling *w, struct wnw__calibrate_text *out)
{
    const struct wnw__compiler_checks *k = &w->checks;
    wnw__calibrate_print(out, "thresholds: %.0f %% of the cells were visited (50 %% are asked for)\n",
                         100 * visited(&w->tau_log));
    wnw__calibrate_print(
        out,
        "choices: %.0f %% of the cells have %d prompts or more and chose for themselves, %.0f %% took "
        "their layer's choice, %.0f %% that of all\n",
        100 * share_from(w, WNW_FROM_CELL), (int)w->o.cell_prompts, 100 * share_from(w, WNW_FROM_LAYER),
        100 * share_from(w, WNW_FROM_ALL));
    report_bins(w, out, false);
    report_bins(w, out, true);
    wnw__calibrate_print(
        out,
        "held-out prompts: learned thresholds keep %.1f entries per head and gain %.4f +- "
        "%.4f nats per token over thresholds of 1, which keep %.1f\n"
        "the check of risk: %.4f +- %.4f over one threshold for all prompts, %.3f, which keeps %.1f on "
        "average; %.4f +- %.4f over no threshold at as many entries on each prompt\n"
        "the thresholds bind in %.0f %% of the layers, and in some layer of %.0f %% of the prompts\n",
        k->kept_learned, k->tau_gain_one, k->tau_error_one, k->kept_one, k->tau_gain_constant,
        k->tau_error_constant, k->constant, k->kept_constant, k->tau_gain_none, k->tau_error_none,
        100 * k->bound_layers, 100 * k->bound_prompts);
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
        wnw__calibrate_print(out, "%lld trials, %.0f a minute\n", (long long)w->n_trial,
                             (double)w->n_trial * 6e4 / fmax(w->trial_ms, 1));
    return WNW_OK;
}
