/* SPDX-License-Identifier: MIT */
/* A prompt's risk and cell, and where CompilerKV's thresholds bind: the numbers of trials (calibrate/trial.h) without one. */
#include "calibrate/trial.h"
#include "method/compiler.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

#include <math.h>
#include <stdlib.h>

struct wnw_risk {
    struct wnw__trial_prompt prompt;
    int32_t *tokens; /* owned copy of the prompt's */
    wnw_engine *engine;
    const struct wnw__compiler_table *table; /* borrowed; NULL = none */
    double floor;
    float *weight; /* [n_layer][n_head_kv] */
    double *tau;   /* [n_layer] of the cell */
    wnw_risk_cell cell;
};

/* ---- The table ---- */

/* E_UNSUPPORTED where its scores are others than those of trials. */
static int check_table(const struct wnw__compiler_table *t)
{
    if (!t->tau || !t->weight)
        return wnw__fail(WNW_E_UNSUPPORTED, "the compiler profile has no %s",
                         t->tau ? "head weights" : "thresholds");
    if (t->foreign)
        return wnw__fail(WNW_E_MISMATCH,
                         "the compiler profile was made for another model; calibrate this one");
    if (t->alpha_scope > WNW_ALPHA_GLOBAL || t->score_norm > WNW_NORM_MEAN || t->pool > WNW_ALPHA_POOL_NONE ||
        t->utility > WNW_UTILITY_FULL || t->n_sink > 0)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "the compiler profile was made under other options than alpha_scope=global, score_norm=mean, "
            "pool=none, utility=full and n_sink=0, which are those of `winnow calibrate compiler`");
    return WNW_OK;
}

/* The weights of groups: with one attention for all heads the largest of a group decides. */
static void set_weights(wnw_risk *r)
{
    const struct wnw__trial_prompt *p = &r->prompt;
    const int32_t group = p->model.n_head / p->model.n_head_kv;
    for (int32_t i = 0; i < p->model.n_layer * p->model.n_head_kv; i++) {
        const int32_t il = i / p->model.n_head_kv, first = i % p->model.n_head_kv * group;
        r->weight[i] = r->table->weight[(int64_t)il * p->model.n_head + first];
        for (int32_t h = first + 1; h < first + group; h++)
            r->weight[i] = fmaxf(r->weight[i], r->table->weight[(int64_t)il * p->model.n_head + h]);
    }
}

static void find_cell(wnw_risk *r)
{
    const struct wnw__compiler_table *t = r->table;
    const struct wnw__trial_prompt *p = &r->prompt;
    bool odd = false; /* counts as the highest risk, as in the gate */
    r->cell.n_entropy = t->n_entropy;
    r->cell.n_ppl = t->n_ppl;
    if (t->entropy_norm > 0)
        r->cell.entropy /= log((double)r->cell.n_tokens);
    r->cell.entropy_bin = wnw__bin(t->entropy_edge, t->n_entropy, r->cell.entropy, &odd);
    r->cell.ppl_bin = wnw__bin(t->ppl_edge, t->n_ppl, r->cell.perplexity, &odd);
    for (int32_t i = 0; i < p->n_il; i++) {
        const double tau =
            wnw__table_tau(t, p->il[i], p->model.n_layer, r->cell.entropy_bin, r->cell.ppl_bin);
        r->tau[p->il[i]] = tau;
        r->cell.least_tau = i == 0 ? tau : fmin(r->cell.least_tau, tau);
        r->cell.most_tau = fmax(r->cell.most_tau, tau);
        r->cell.mean_tau += tau / p->n_il;
    }
}

/* ---- Reading ---- */

static int check(const wnw_model *m, const int32_t *tokens, int32_t n, const wnw_risk_params *params)
{
    wnw_model_info info = wnw_model_info_default();
    WNW_TRY(wnw_model_get_info(m, &info));
    if (n < 2 || n > info.n_ctx_train)
        return wnw__fail(WNW_E_RANGE, "a prompt of %d tokens; 2 to %d, the model's context, can be read",
                         (int)n, (int)info.n_ctx_train);
    if (params->window < 0 || !(params->floor >= 0 && params->floor <= 1))
        return wnw__fail(WNW_E_RANGE, "a window of %d and a floor of %g; give 0 or more, and 0 to 1",
                         (int)params->window, params->floor);
    for (int32_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= info.n_vocab)
            return wnw__fail(WNW_E_RANGE, "token %d of the prompt is %d; the model has %d", (int)i,
                             (int)tokens[i], (int)info.n_vocab);
    return WNW_OK;
}

static int read_prompt(wnw_risk *r, const wnw_model *m, const wnw_risk_params *params)
{
    const wnw_engine_params engine = {WNW_INIT(wnw_engine_params), .n_threads = params->n_threads};
    const struct wnw__trial_text text = {.tokens = r->tokens, .n_prompt = r->cell.n_tokens};
    const wnw_session_params session = {WNW_INIT(wnw_session_params), .n_ctx = r->cell.n_tokens,
                                        .kv_type = params->kv_type, .progress = params->progress,
                                        .progress_user = params->progress_user};
    const int32_t of_table = r->table ? r->table->window : 0;
    r->cell.window = params->window > 0 ? params->window : of_table > 0 ? of_table : 64;
    WNW_TRY(wnw_engine_new(&r->engine, m, &engine));
    WNW_TRY(wnw__trial_read(&r->prompt, r->engine, &session, &text, r->cell.window));
    r->cell.entropy = r->prompt.entropy;
    r->cell.perplexity = r->prompt.ppl;
    const size_t n_layer = (size_t)r->prompt.model.n_layer;
    r->weight = calloc(n_layer * (size_t)r->prompt.model.n_head_kv, sizeof *r->weight);
    r->tau = calloc(n_layer, sizeof *r->tau);
    if (!r->weight || !r->tau)
        return wnw__fail(WNW_E_NOMEM, "no memory for a prompt's thresholds");
    if (r->table) {
        set_weights(r);
        find_cell(r);
    }
    return WNW_OK;
}

int wnw_risk_read(wnw_risk **out, const wnw_model *m, const int32_t *tokens, int32_t n,
                  const wnw_risk_params *params)
{
    wnw_risk_params own = wnw_risk_default_params();
    WNW_REQUIRE(out);
    *out = NULL;
    WNW_REQUIRE(m);
    WNW_REQUIRE(tokens);
    if (params)
        WNW_TRY(WNW_SIZED_TAKE(wnw_risk_params, &own, params));
    WNW_TRY(check(m, tokens, n, &own));
    const bool given = own.profile && own.profile->kinds >> WNW_PROFILE_COMPILER & 1u;
    if (given)
        WNW_TRY(check_table(&own.profile->compiler));
    wnw_risk *r = calloc(1, sizeof *r);
    if (!r)
        return wnw__fail(WNW_E_NOMEM, "no memory for a prompt");
    r->table = given ? &own.profile->compiler : NULL;
    r->floor = own.floor;
    r->cell = (wnw_risk_cell){WNW_INIT(wnw_risk_cell), .n_tokens = n};
    r->tokens = malloc((size_t)n * sizeof *r->tokens);
    for (int32_t i = 0; r->tokens && i < n; i++)
        r->tokens[i] = tokens[i];
    const int rc = r->tokens ? read_prompt(r, m, &own) : wnw__fail(WNW_E_NOMEM, "no memory for a prompt");
    if (rc == WNW_OK)
        *out = r;
    else
        wnw_risk_free(r);
    return rc;
}

void wnw_risk_free(wnw_risk *r)
{
    if (!r)
        return;
    wnw__trial_free(&r->prompt);
    wnw_engine_free(r->engine);
    free(r->tokens);
    free(r->weight);
    free(r->tau);
    free(r);
}

/* ---- Results ---- */

int wnw_risk_get_cell(const wnw_risk *risk, wnw_risk_cell *out)
{
    WNW_REQUIRE(risk);
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_risk_cell, out));
    wnw__sized_give(out, &risk->cell);
    return WNW_OK;
}

/* Fills the result from what each layer has above its threshold and keeps, [n_il] both. */
static int count(wnw_risk *r, wnw_risk_size *own, int32_t *above, int32_t *kept)
{
    const struct wnw__trial_choice choice = {.budget = own->budget,
                                             .weight = r->weight,
                                             .tau = r->tau,
                                             .pooled = r->table->gate == WNW_GATE_POOLED,
                                             .floor = r->floor};
    const int32_t n = r->cell.n_tokens;
    if (own->budget >= n) {
        own->room = n > r->cell.window ? n - r->cell.window : 0;
        own->clear = own->room;
        own->kept = n;
        return WNW_OK;
    }
    WNW_TRY(wnw__trial_count(&own->kept, &r->prompt, &choice, above, kept));
    own->room = wnw__trial_n_free(n, r->cell.window, own->budget);
    for (int32_t i = 0; i < own->n_layer; i++) {
        own->clear += (double)above[i] / own->n_layer;
        own->n_bound += kept[i] != own->room;
    }
    return WNW_OK;
}

int wnw_risk_get_size(wnw_risk *risk, int32_t budget, wnw_risk_size *out)
{
    WNW_REQUIRE(risk);
    WNW_REQUIRE(out);
    WNW_TRY(WNW_SIZED_CHECK(wnw_risk_size, out));
    if (!risk->table)
        return wnw__fail(WNW_E_UNSUPPORTED, "no compiler profile was given, and thresholds come from one");
    budget = budget == 0 ? risk->table->budget : budget;
    if (budget < 2)
        return wnw__fail(WNW_E_RANGE, "a budget of %d; give 2 or more", (int)budget);
    const int32_t n_il = risk->prompt.n_il;
    wnw_risk_size own = {WNW_INIT(wnw_risk_size), .budget = budget, .n_layer = n_il};
    int32_t *above = calloc(2 * (size_t)n_il, sizeof *above);
    const int rc = above ? count(risk, &own, above, above + n_il)
                         : wnw__fail(WNW_E_NOMEM, "no memory for the counts of a prompt");
    free(above);
    if (rc == WNW_OK)
        wnw__sized_give(out, &own);
    return rc;
}
