/* SPDX-License-Identifier: MIT */
/* What is compared: the product of the lists of policies, sizes, types and modes. */
#include "eval/config.h"

#include "app/console.h"
#include "app/job.h"
#include "app/names.h"
#include "app/values.h"
#include "eval/random.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>

static const char *const mode_names[EVAL_N_MODES + 1] = {"agnostic", "task", "aware", "aware_full", NULL};

const char *eval_mode_name(enum eval_mode mode)
{
    return mode < EVAL_N_MODES ? mode_names[mode] : "?";
}

/* ---- Lists ---- */

/* What the options ask for; configs are the product. */
struct lists {
    const struct eval_args *args;
    wnw_size sizes[EVAL_MAX_SIZES];
    int32_t n_sizes;
    struct app_kv types[EVAL_MAX_TYPES];
    int32_t n_types;
    bool modes[EVAL_N_MODES];
    wnw_run rules;
};

static int out_of_memory(void)
{
    return app_fail(APP_FAILED, "out of memory for the configurations");
}

static int add_recipe(struct eval_configs *c, const char *recipe)
{
    char *text = NULL;
    struct eval_recipe *grown = realloc(c->recipes, ((size_t)c->n_recipes + 1) * sizeof *grown);
    if (!grown)
        return out_of_memory();
    c->recipes = grown;
    struct eval_recipe *r = &c->recipes[c->n_recipes];
    *r = (struct eval_recipe){0};
    int status = wnw_policy_parse(&r->policy, recipe, NULL);
    for (int32_t i = 0; status == WNW_OK && i < c->n_recipes; i++)
        if (strcmp(wnw_policy_string(c->recipes[i].policy), wnw_policy_string(r->policy)) == 0) {
            wnw_policy_free(r->policy); /* the list names it twice */
            return APP_OK;
        }
    if (status == WNW_OK)
        status = wnw_policy_short(r->policy, &text);
    if (status == WNW_OK) {
        r->text = strdup(text);
        wnw_free(text);
        c->n_recipes++;
        return r->text ? APP_OK : out_of_memory();
    }
    wnw_policy_free(r->policy);
    return app_fail_status(status);
}

/* The full cache's recipe comes first, whether the list names it or not. */
static int read_recipes(struct eval_configs *c, const char *list)
{
    char **words = eval_list_words(list, true);
    int rc = words ? add_recipe(c, "full") : out_of_memory();
    for (char **w = words; rc == APP_OK && *w; w++)
        rc = add_recipe(c, *w);
    free(words);
    return rc;
}

static int read_types(struct lists *l)
{
    char **words = eval_list_words(l->args->kv_types, false);
    int rc = words ? APP_OK : out_of_memory();
    for (char **w = words; rc == APP_OK && *w; w++) {
        struct app_kv kv;
        bool known = false;
        rc = app_kv_parse(&kv, *w);
        for (int32_t i = 0; rc == APP_OK && i < l->n_types; i++)
            known = known || app_kv_equal(&l->types[i], &kv);
        if (rc != APP_OK || known)
            continue;
        if (l->n_types == EVAL_MAX_TYPES)
            rc = app_fail(APP_BAD_INPUT, "--kv-types has more than %d types", (int)EVAL_MAX_TYPES);
        else
            l->types[l->n_types++] = kv;
        if (rc == APP_OK && kv.type == WNW_KV_F16) { /* what others are compared with, where it is there */
            l->types[l->n_types - 1] = l->types[0];
            l->types[0] = kv;
        }
    }
    free(words);
    return rc == APP_OK && l->n_types == 0 ? app_fail(APP_BAD_INPUT, "--kv-types is empty") : rc;
}

static int read_modes(struct lists *l, const char *list)
{
    char **words = eval_list_words(list, false);
    int rc = words ? APP_OK : out_of_memory();
    bool any = false;
    for (char **w = words; rc == APP_OK && *w; w++) {
        bool known = false;
        for (int m = 0; m < EVAL_N_MODES; m++)
            if (strcmp(mode_names[m], *w) == 0)
                known = any = l->modes[m] = true;
        if (!known)
            rc = app_fail(APP_BAD_INPUT, "--modes: '%s' is unknown; use agnostic, task, aware or aware_full",
                          *w);
    }
    free(words);
    return rc == APP_OK && !any ? app_fail(APP_BAD_INPUT, "--modes is empty") : rc;
}

static int read_lists(struct lists *l, struct eval_configs *c, const struct eval_args *args,
                      const struct eval_suite *suite)
{
    const char *policies = args->closed_book ? "full"
                           : args->policies  ? args->policies
                           : suite           ? suite->policies
                                             : "full,snapkv,lagkv";
    const char *modes = args->modes ? args->modes : suite ? suite->modes : "agnostic";
    *l = (struct lists){.args = args, .rules = wnw_run_default()};
    int rc = eval_list_sizes(l->sizes, &l->n_sizes, args, suite ? suite->ratios : "0.5");
    if (rc == APP_OK)
        rc = read_types(l);
    if (rc == APP_OK)
        rc = read_modes(l, modes);
    if (rc == APP_OK)
        rc = app_job_rules(&l->rules, args->app.evict, args->app.evict_every);
    return rc == APP_OK ? read_recipes(c, policies) : rc;
}

/* ---- Groups ---- */

/* Whether one session can observe for both policies. */
static bool agree(const wnw_policy *a, const wnw_policy *b)
{
    const wnw_needs x = wnw_policy_needs(a), y = wnw_policy_needs(b);
    const uint32_t both = x.flags & y.flags;
    if ((x.flags ^ y.flags) & WNW_NEED_QUERIES && !wnw_policy_is_full(a) && !wnw_policy_is_full(b))
        return false; /* a session that holds every query is expensive to copy */
    return !((both & WNW_NEED_SECOND_PASS) && x.second_pass != y.second_pass) &&
           !((both & WNW_NEED_QUERY_STATS) && x.skip != y.skip);
}

static void make_groups(struct eval_configs *c)
{
    for (int32_t i = 0; i < c->n_recipes; i++) {
        bool fits = false;
        for (int32_t g = 0; g <= c->n_groups && !fits; g++) {
            fits = true;
            for (int32_t k = 0; k < i && fits; k++)
                fits = c->recipes[k].group != g || agree(c->recipes[i].policy, c->recipes[k].policy);
            c->recipes[i].group = g;
        }
        if (c->recipes[i].group >= c->n_groups)
            c->n_groups = c->recipes[i].group + 1;
    }
}

/* ---- Configs ---- */

/* Names the config by the hash of what it is. */
static int name_config(struct eval_config *c, const struct lists *l)
{
    c->json = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "policy", wnw_policy_string(c->policy), "size",
                        c->size_text, "kv_type", c->kv_text, "mode", eval_mode_name(c->mode), "evict",
                        c->full ? "end" : l->args->app.evict, "evict_every",
                        c->full || !l->args->app.evict_every ? "" : l->args->app.evict_every);
    char *text = c->json ? json_dumps(c->json, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    if (!text)
        return out_of_memory();
    snprintf(c->id, sizeof c->id, "%016llx", (unsigned long long)eval_fnv(text, strlen(text)));
    free(text);
    return APP_OK;
}

static int add_config(struct eval_configs *c, const struct lists *l, struct eval_config config)
{
    struct eval_config *grown = realloc(c->at, ((size_t)c->n + 1) * sizeof *grown);
    if (!grown)
        return out_of_memory();
    c->at = grown;
    config.full = wnw_policy_is_full(config.policy);
    config.phase = config.full ? WNW_PHASE_END : l->rules.phase;
    config.chunk = config.full ? 0 : l->rules.chunk;
    config.every = config.full ? 0 : l->rules.every;
    config.target = config.full ? 0 : l->rules.target;
    config.own_read = config.phase != WNW_PHASE_END || config.every > 0;
    if (config.full) {
        config.size = (wnw_size){.kind = WNW_SIZE_NONE};
        snprintf(config.size_text, sizeof config.size_text, "full");
    } else {
        eval_size_text(config.size_text, sizeof config.size_text, &config.size);
    }
    app_kv_word(config.kv_text, &config.kv);
    c->at[c->n++] = config;
    return name_config(&c->at[c->n - 1], l);
}

static bool asks_tasks(const wnw_policy *policy)
{
    const wnw_needs needs = wnw_policy_needs(policy);
    return needs.flags & WNW_NEED_SECOND_PASS &&
           (needs.second_pass == WNW_PASS_TASK || needs.second_pass == WNW_PASS_BOTH);
}

/* Whether a policy has a place in a mode: one that is told the question is not agnostic, and in mode "task"
 * the others would do the same as in mode "agnostic". */
static bool fits_mode(struct eval_configs *c, const struct eval_recipe *r, enum eval_mode mode)
{
    const bool tasks = asks_tasks(r->policy);
    if (wnw_policy_is_full(r->policy) || !(tasks ? mode == EVAL_AGNOSTIC : mode == EVAL_TASK))
        return true;
    char line[256];
    const int len = snprintf(line, sizeof line, "%s%.120s is left out of mode %s: %s",
                             c->notes.len > 0 ? "\n" : "", r->text, eval_mode_name(mode),
                             tasks ? "it is told the question" : "it does not ask for one");
    app_text_add(&c->notes, line, len < (int)sizeof line ? (size_t)len : sizeof line - 1);
    return false;
}

/* All sizes of one policy. */
static int add_sizes(struct eval_configs *c, const struct lists *l, const struct eval_recipe *r,
                     struct eval_config config)
{
    int rc = app_job_allowed(r->policy, &l->rules, l->args->app.evict);
    config.policy = r->policy;
    config.recipe = r->text;
    config.has_tasks = asks_tasks(r->policy);
    config.group = r->group;
    for (int32_t i = 0; rc == APP_OK && i < (wnw_policy_is_full(r->policy) ? 1 : l->n_sizes); i++) {
        config.size = l->sizes[i];
        if (config.size.kind == WNW_SIZE_NONE && !wnw_policy_is_full(r->policy) &&
            !wnw_policy_has_own_size(r->policy))
            return app_fail(APP_BAD_INPUT, "%s has no size of its own; give it one", r->text);
        rc = add_config(c, l, config);
    }
    return rc;
}

static int make_product(struct eval_configs *c, const struct lists *l)
{
    int32_t reference[EVAL_N_MODES] = {0};
    int rc = APP_OK;
    for (int32_t t = 0; t < l->n_types; t++)
        for (int m = 0; m < EVAL_N_MODES; m++) {
            if (!l->modes[m])
                continue;
            if (t == 0)
                reference[m] = c->n;
            for (int32_t p = 0; rc == APP_OK && p < c->n_recipes; p++)
                if (fits_mode(c, &c->recipes[p], (enum eval_mode)m))
                    rc = add_sizes(c, l, &c->recipes[p],
                                   (struct eval_config){.kv = l->types[t],
                                                        .mode = (enum eval_mode)m,
                                                        .reference = reference[m]});
        }
    return rc;
}

int eval_configs_open(struct eval_configs *c, const struct eval_args *args, const struct eval_suite *suite)
{
    struct lists l;
    *c = (struct eval_configs){0};
    int rc = read_lists(&l, c, args, suite);
    if (rc == APP_OK) {
        make_groups(c);
        rc = make_product(c, &l);
    }
    for (int32_t i = 0; rc == APP_OK && i < c->n; i++)
        for (int32_t k = 0; k < i; k++)
            if (strcmp(c->at[i].id, c->at[k].id) == 0)
                return app_fail(APP_FAILED, "%s and %s have the same id", c->at[i].recipe, c->at[k].recipe);
    return rc;
}

void eval_configs_close(struct eval_configs *c)
{
    for (int32_t i = 0; i < c->n; i++) {
        json_decref(c->at[i].json);
        if (c->at[i].owns_profile)
            wnw_profile_free(c->at[i].profile);
    }
    for (int32_t i = 0; i < c->n_recipes; i++) {
        wnw_policy_free(c->recipes[i].policy);
        free(c->recipes[i].text);
    }
    free(c->at);
    free(c->recipes);
    free(c->notes.s);
    *c = (struct eval_configs){0};
}
