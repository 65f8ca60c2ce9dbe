/* SPDX-License-Identifier: MIT */
#include "perturb/record.h"

#include "app/console.h"
#include "app/json.h"
#include "app/process.h"
#include "base/strings.h"
#include "base/vectors.h"
#include "eval/base/grow.h"
#include "eval/run/forced.h"
#include "winnow_method.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = 4 }; /* of a number in a record */
#define FIRST_STAGE "first_stage"

struct measured {
    const struct perturb_work *w;
    wnw_session *s;
    struct wnw__perturb_token *at_token;
    wnw_plan **plans;    /* [n_configs], owned */
    wnw_report *reports; /* [n_configs], owned */
    bool **
        stage; /* [n_configs], owned: entries of the policy's first stage, as wnw__perturb_stage_one has them; NULL = it has none */
    double *x; /* [PERTURB_N_LEVELS][units of heads], owned */
    double *mass; /* [heads] attention on a first stage, owned */
    struct wnw__perturb_bound *bounds;
    int32_t n_configs, n_tokens, token;
    double read_ms, plan_ms, token_ms, change_ms, drift_ms, bound_ms;
};

/* x[n] with DIGITS digits. */
static json_t *numbers(const double *x, int32_t n)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < n; i++) {
        char text[40];
        snprintf(text, sizeof text, "%.*g", DIGITS, x[i]);
        if (!app_json_append(&list, isfinite(x[i]) ? json_real(strtod(text, NULL)) : json_null()))
            break;
    }
    return list;
}

static int finish(json_t **record, json_t *o)
{
    *record = o;
    return o ? APP_OK : eval_no_memory("a record");
}

/* ---- Reading ---- */

/* The options of the policy's first stage, from its recipe written out. false: it has none. */
static bool first_stage(struct wnw__first_stage *out, const wnw_policy *policy)
{
    const char *stage = strstr(wnw_policy_string(policy), "+critical:"),
               *alpha = stage ? strstr(stage, "alpha=") : NULL,
               *sinks = stage ? strstr(stage, "sinks=") : NULL;
    char *end;
    if (!alpha || !sinks)
        return false;
    out->alpha = wnw__to_double(alpha + strlen("alpha="), &end);
    out->sinks = (int32_t)strtol(sinks + strlen("sinks="), NULL, 10);
    return true;
}

/* Marks the first stages of the policies that have one. Returns a status of the library. */
static int mark_stages(struct measured *p)
{
    const wnw_model_info *info = &p->w->runtime->info;
    const size_t n = (size_t)info->n_layer * (size_t)info->n_head_kv * (size_t)p->n_tokens;
    for (int32_t i = 0; i < p->n_configs; i++) {
        const struct eval_config *c = &p->w->config[i];
        struct wnw__first_stage first;
        if (!first_stage(&first, c->policy))
            continue;
        p->stage[i] = malloc(n * sizeof **p->stage);
        if (!p->stage[i])
            return WNW_E_NOMEM;
        WNW_TRY(wnw__perturb_stage_one(p->stage[i], p->s, c->policy, &c->size, &first));
    }
    return WNW_OK;
}

/* Has a session read ids[n], and plans with all configs: policies[n_configs], sizes[n_configs]. Returns a status of the library. */
static int read_and_plan(struct measured *p, const int32_t *ids, int32_t n, const wnw_policy **policies,
                         wnw_size *sizes)
{
    const struct eval_config *c = p->w->config;
    const wnw_session_params params = {WNW_INIT(wnw_session_params), .kv_type = c->kv.type,
                                       .kv_tail = c->kv.tail, .kv_unrotated = c->kv.unrotated,
                                       .n_ctx = n + 1};
    const wnw_run run = {
        WNW_INIT(wnw_run),
        .more = &(wnw_run_more){WNW_INIT(wnw_run_more), .policies = policies, .n_policies = p->n_configs}};
    for (int32_t i = 0; i < p->n_configs; i++) {
        policies[i] = c[i].policy;
        sizes[i] = c[i].size;
        p->reports[i] = wnw_report_default();
    }
    const double start = app_now_ms();
    WNW_TRY(wnw_session_new_on(&p->s, p->w->runtime->engine, &params));
    WNW_TRY(wnw_session_begin(p->s, &run));
    WNW_TRY(wnw_session_prefill(p->s, ids, n, NULL, NULL));
    const double read = app_now_ms();
    WNW_TRY(wnw_session_plan_many(p->s, policies, sizes, p->n_configs, p->plans, p->reports));
    WNW_TRY(mark_stages(p));
    WNW_TRY(wnw_session_begin(p->s, &(wnw_run){WNW_INIT(wnw_run)})); /* copies need no recorders */
    p->read_ms = read - start;
    p->plan_ms = app_now_ms() - read;
    return WNW_OK;
}

static int read_text(struct measured *p, const int32_t *ids, int32_t n)
{
    const wnw_policy **policies = calloc((size_t)p->n_configs, sizeof *policies);
    wnw_size *sizes = calloc((size_t)p->n_configs, sizeof *sizes);
    const int status = policies && sizes ? read_and_plan(p, ids, n, policies, sizes) : WNW_E_NOMEM;
    free(policies);
    free(sizes);
    return app_status_code(status); /* unlike elsewhere in eval, logits that are not numbers are a failure */
}

/* ---- Numbers ---- */

static int changes_of(json_t **out, struct measured *p, int32_t i)
{
    const wnw_model_info *info = &p->w->runtime->info;
    const int32_t n_heads = info->n_layer * info->n_head, n_groups = info->n_layer * info->n_head_kv;
    double *heads = p->x, *groups = p->x + n_heads, *layers = groups + n_groups,
           *states = layers + info->n_layer;
    const double start = app_now_ms();
    WNW_TRY(app_status_code(wnw__perturb_token_change(p->at_token, p->plans[i], heads, groups, layers)));
    const double changed = app_now_ms();
    WNW_TRY(app_status_code(wnw__perturb_token_drift(p->at_token, p->plans[i], states)));
    p->change_ms += changed - start;
    p->drift_ms += app_now_ms() - changed;
    if (p->stage[i])
        WNW_TRY(app_status_code(wnw__perturb_token_mass(p->at_token, p->stage[i], p->mass)));
    return finish(out, json_pack("{s:s, s:f, s:o, s:o, s:o, s:o, s:o*}", "config", p->w->config[i].id, "kept",
                                 p->reports[i].kept_mean / p->n_tokens, perturb_level_name(PERTURB_HEADS),
                                 numbers(heads, n_heads), perturb_level_name(PERTURB_GROUPS),
                                 numbers(groups, n_groups), perturb_level_name(PERTURB_LAYERS),
                                 numbers(layers, info->n_layer), perturb_level_name(PERTURB_STATES),
                                 numbers(states, info->n_layer), FIRST_STAGE,
                                 p->stage[i] ? numbers(p->mass, n_heads) : NULL));
}

static double bound_of(const struct wnw__perturb_bound *b, enum perturb_bound which)
{
    switch (which) {
    case PERTURB_B_SIGMA:
        return b->sigma_first;
    case PERTURB_B_CHANGE:
        return b->change;
    case PERTURB_B_THETA_HAT:
        return b->theta_hat;
    case PERTURB_B_THETA_HAT_ATTENTION:
        return b->theta_hat_attention;
    default:
        return b->theta_relax;
    }
}

/* The bounds at the size of config i. */
static int bounds_of(json_t **out, struct measured *p, int32_t i)
{
    const wnw_model_info *info = &p->w->runtime->info;
    const int32_t n_heads = info->n_layer * info->n_head;
    const long mean = lround(p->reports[i].kept_mean);
    int32_t keep = 2;
    if (mean >= keep)
        keep = mean > p->n_tokens ? p->n_tokens : (int32_t)mean;
    const double start = app_now_ms();
    const int status = wnw__perturb_token_bounds(p->at_token, keep, p->bounds);
    p->bound_ms += app_now_ms() - start;
    WNW_TRY(app_status_code(status));
    json_t *o = json_pack("{s:s, s:i}", "size", p->w->config[i].size_text, "keep", (int)keep);
    for (int k = 0; k < PERTURB_N_BOUNDS; k++) {
        for (int32_t h = 0; h < n_heads; h++)
            p->x[h] = bound_of(&p->bounds[h], (enum perturb_bound)k);
        app_json_set(&o, perturb_bound_name((enum perturb_bound)k), numbers(p->x, n_heads));
    }
    return finish(out, o);
}

/* Appends what each config changes and what each size bounds. */
static int measure_all(json_t **changes, json_t **bounds, struct measured *p)
{
    json_t *o;
    const double start = app_now_ms();
    p->token = wnw__argmax(wnw_session_logits(p->s), p->w->runtime->info.n_vocab);
    WNW_TRY(app_status_code(wnw__perturb_token_new(&p->at_token, p->s, p->token)));
    p->token_ms = app_now_ms() - start;
    for (int32_t i = 0; i < p->n_configs; i++) {
        WNW_TRY(changes_of(&o, p, i));
        app_json_append(changes, o);
    }
    for (int32_t i = 0; i < p->w->n_sizes; i++) {
        WNW_TRY(bounds_of(&o, p, i));
        app_json_append(bounds, o);
    }
    return APP_OK;
}

static int measure(json_t **record, struct measured *p)
{
    json_t *changes = json_array(), *bounds = json_array();
    const int rc = measure_all(&changes, &bounds, p);
    if (rc == APP_OK)
        return finish(record, json_pack("{s:i, s:o, s:o, s:{s:f, s:f, s:f, s:f, s:f, s:f}}", "token",
                                        (int)p->token, "changes", changes, "bounds", bounds, "ms", "read",
                                        p->read_ms, "plan", p->plan_ms, "probe", p->token_ms, "changes",
                                        p->change_ms, "states", p->drift_ms, "bounds", p->bound_ms));
    json_decref(changes);
    json_decref(bounds);
    return rc;
}

int perturb_record(json_t **record, const struct perturb_work *w, const int32_t *ids, int32_t n)
{
    const wnw_model_info *info = &w->runtime->info;
    const size_t n_all = (size_t)info->n_layer * ((size_t)info->n_head + (size_t)info->n_head_kv + 2);
    struct measured p = {.w = w, .n_configs = w->n_policies * w->n_sizes, .n_tokens = n};
    *record = NULL;
    p.plans = calloc((size_t)p.n_configs, sizeof *p.plans);
    p.reports = calloc((size_t)p.n_configs, sizeof *p.reports);
    p.x = calloc(n_all, sizeof *p.x);
    p.stage = calloc((size_t)p.n_configs, sizeof *p.stage);
    p.mass = calloc(n_all, sizeof *p.mass);
    p.bounds = calloc((size_t)info->n_layer * (size_t)info->n_head, sizeof *p.bounds);
    int rc = p.plans && p.reports && p.x && p.bounds && p.stage && p.mass ? read_text(&p, ids, n)
                                                                          : eval_no_memory("plans");
    if (rc == APP_OK)
        rc = measure(record, &p);
    wnw__perturb_token_free(p.at_token);
    for (int32_t i = 0; p.plans && i < p.n_configs; i++)
        wnw_plan_free(p.plans[i]);
    for (int32_t i = 0; p.stage && i < p.n_configs; i++)
        free(p.stage[i]);
    free(p.stage);
    free(p.mass);
    wnw_session_free(p.s);
    free(p.plans);
    free(p.reports);
    free(p.x);
    free(p.bounds);
    return rc;
}

/* ---- Reading records ---- */

/* Reads list[n]; false if it is not such a list. */
static bool read_numbers(double *out, const json_t *list, int32_t n)
{
    if (json_array_size(list) != (size_t)n)
        return false;
    for (int32_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(list, (size_t)i);
        if (!json_is_number(x))
            return false;
        out[i] = json_number_value(x);
    }
    return true;
}

/* Reads the attention on a policy's first stage; NaN where it has none. */
static bool read_first(double *out, const json_t *o, int32_t n)
{
    const json_t *list = json_object_get(o, FIRST_STAGE);
    for (int32_t i = 0; i < n; i++)
        out[i] = NAN;
    return !list || read_numbers(out, list, n);
}

bool perturb_record_add(struct perturb_numbers *p, const json_t *record)
{
    const json_t *changes = json_object_get(record, "changes"), *tight = json_object_get(record, "bounds");
    const int32_t n_each = p->n_sizes * p->n_policies;
    bool good = p->n_texts < p->cap_texts && json_array_size(changes) == (size_t)n_each &&
                json_array_size(tight) == (size_t)p->n_sizes;
    for (int32_t i = 0; good && i < n_each; i++) { /* sizes of the first policy, then of the next */
        const json_t *o = json_array_get(changes, (size_t)i), *kept = json_object_get(o, "kept");
        const int32_t policy = i / p->n_sizes, size = i % p->n_sizes;
        good = json_is_number(kept);
        for (int k = 0; good && k < PERTURB_N_LEVELS; k++)
            good = read_numbers(perturb_changes(p, (enum perturb_level)k, size, policy, p->n_texts),
                                json_object_get(o, perturb_level_name((enum perturb_level)k)),
                                perturb_level_units(p, (enum perturb_level)k));
        good = good && read_first(perturb_first(p, size, policy, p->n_texts), o,
                                  perturb_level_units(p, PERTURB_HEADS));
    }
    for (int32_t i = 0; good && i < p->n_sizes; i++)
        for (int k = 0; good && k < PERTURB_N_BOUNDS; k++)
            good = read_numbers(
                perturb_bounds(p, (enum perturb_bound)k, i, p->n_texts),
                json_object_get(json_array_get(tight, (size_t)i), perturb_bound_name((enum perturb_bound)k)),
                perturb_level_units(p, PERTURB_HEADS));
    for (int32_t i = 0; good && i < n_each; i++)
        p->kept[i % p->n_sizes * p->n_policies + i / p->n_sizes] +=
            json_number_value(json_object_get(json_array_get(changes, (size_t)i), "kept"));
    p->n_texts += good;
    return good;
}
