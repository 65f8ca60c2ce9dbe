/* SPDX-License-Identifier: MIT */
/* The lists of the options and of a suite's parts: policies, sizes, types, modes and masks. */
#include "eval/run/config_impl.h"

#include "app/automatic.h"
#include "app/console.h"
#include "app/job.h"
#include "app/models.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"
#include "eval/base/recipe.h"
#include "eval/run/items.h"
#include "eval/run/plans.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>

static const char *const mode_names[EVAL_N_MODES + 1] = {"agnostic", "task", "aware", "aware_full", NULL};

const char *eval_mode_name(enum eval_mode mode)
{
    return mode < EVAL_N_MODES ? mode_names[mode] : "?";
}

static bool is_same(const struct eval_recipe *one, const struct eval_recipe *r, const char *asked)
{
    if (one->plans || eval_plans_folder(asked))
        return strcmp(one->asked, asked) == 0;
    return strcmp(wnw_policy_string(one->policy), wnw_policy_string(r->policy)) == 0;
}

int eval_lists_recipe(struct eval_configs *c, const char *recipe, int32_t *at)
{
    char *text = NULL;
    *at = c->n_recipes;
    if (!eval_grow(&c->recipes, (size_t)c->n_recipes, sizeof *c->recipes))
        return eval_no_memory("the configurations");
    struct eval_recipe *r = &c->recipes[c->n_recipes];
    *r = (struct eval_recipe){0};
    const char *plans = eval_plans_folder(recipe);
    if (plans)
        WNW_TRY(eval_plans_hash(&r->plans_hash, plans));
    int status = wnw_policy_parse(&r->policy, plans ? "full" : recipe, c->registry);
    if (status != WNW_OK)
        return app_fail_status(status);
    for (int32_t i = 0; i < c->n_recipes; i++)
        if (is_same(&c->recipes[i], r, recipe)) {
            wnw_policy_free(r->policy); /* it is named twice */
            *at = i;
            return APP_OK;
        }
    status = wnw_policy_short(r->policy, &text);
    if (status != WNW_OK) {
        wnw_policy_free(r->policy);
        return app_fail_status(status);
    }
    r->text = strdup(plans ? recipe : text);
    r->asked = strdup(recipe);
    r->plans = r->asked ? eval_plans_folder(r->asked) : NULL;
    wnw_free(text);
    c->n_recipes++;
    return r->text && r->asked ? APP_OK : eval_no_memory("the configurations");
}

static int add_recipe(void *user, const char *word)
{
    struct eval_lists *l = user;
    if (app_is_auto(word)) {
        l->automatic = true;
        return APP_OK;
    }
    if (!eval_grow(&l->recipes, (size_t)l->n_recipes, sizeof *l->recipes))
        return eval_no_memory("the configurations");
    return eval_lists_recipe(l->c, word, &l->recipes[l->n_recipes++]);
}

static int add_type(void *user, const char *word)
{
    struct eval_lists *l = user;
    struct eval_configs *c = l->c;
    struct app_kv kv;
    int32_t i = 0;
    WNW_TRY(app_kv_parse(&kv, word));
    while (i < c->n_types && !app_kv_equal(&c->types[i], &kv))
        i++;
    if (i == EVAL_MAX_TYPES)
        return app_fail(APP_BAD_INPUT, "--kv-types has more than %d types", (int)EVAL_MAX_TYPES);
    c->types[i] = kv;
    c->n_types += i == c->n_types;
    l->types[i] = true;
    return APP_OK;
}

static int add_mode(void *user, const char *word)
{
    struct eval_lists *l = user;
    for (int m = 0; m < EVAL_N_MODES; m++)
        if (strcmp(mode_names[m], word) == 0) {
            l->modes[m] = true;
            return APP_OK;
        }
    return app_fail(APP_BAD_INPUT, "--modes: '%s' is unknown; use agnostic, task, aware or aware_full", word);
}

static int add_mask(void *user, const char *word)
{
    struct eval_lists *l = user;
    struct eval_configs *c = l->c;
    int32_t i = 0; /* mask 0 is "none" */
    if (strcmp(word, "none") != 0)
        for (i = 1; i < c->n_masks; i++)
            if (strcmp(c->masks[i].text, word) == 0 && c->masks[i].phase == l->phase &&
                c->masks[i].form == l->form)
                break;
    if (i == EVAL_MAX_MASKS)
        return app_fail(APP_BAD_INPUT, "--mask-heads has more than %d lists", (int)EVAL_MAX_MASKS - 1);
    if (i == c->n_masks) {
        c->masks[i] = (struct eval_mask){.text = strdup(word), .phase = l->phase, .form = l->form};
        if (!c->masks[i].text)
            return eval_no_memory("the configurations");
        c->n_masks++;
    }
    l->masks[i] = true;
    return APP_OK;
}

/* Reads a rule of --evict-every; NULL = nothing is compressed while answers are generated. */
static int read_rule(struct eval_lists *l, const char *every)
{
    wnw_run *rules = &l->rules[l->n_rules];
    *rules = wnw_run_default();
    WNW_TRY(app_keep_rules(rules, l->evict, every));
    l->every[l->n_rules++] = every;
    return APP_OK;
}

static int add_rule(void *user, const char *word)
{
    struct eval_lists *l = user;
    struct eval_configs *c = l->c;
    int32_t i = 0;
    while (i < c->n_every && strcmp(c->every[i], word) != 0)
        i++;
    if (i == EVAL_MAX_RULES)
        return app_fail(APP_BAD_INPUT, "--evict-every has more than %d rules", (int)EVAL_MAX_RULES);
    if (i == c->n_every) {
        c->every[i] = strdup(word);
        if (!c->every[i])
            return eval_no_memory("the configurations");
        c->n_every++;
    }
    for (int32_t k = 0; k < l->n_rules; k++)
        if (l->every[k] == c->every[i])
            return APP_OK; /* it is named twice */
    return read_rule(l, c->every[i]);
}

/* The shortest and the longest prompts that are made, in tokens with their answers; 0 where a file's have lengths of their own. */
static int find_lengths(int32_t *shortest, int32_t *longest, const struct eval_args *args,
                        const struct eval_suite *suite)
{
    struct eval_items items;
    const int rc = eval_items_open(&items, args, suite);
    *shortest = rc == APP_OK && items.n > 0 ? INT32_MAX : 0;
    *longest = 0;
    for (int32_t i = 0; rc == APP_OK && i < items.n; i++) {
        const int32_t n = items.items[i].n_target;
        *shortest = n < *shortest ? n : *shortest;
        *longest = n > *longest ? n : *longest;
    }
    eval_items_close(&items);
    *longest = *shortest > 0 ? *longest : 0;
    return rc;
}

/* What is known of the run's prompts, but for modes and sizes. */
static int find_facts(wnw_policy_facts *facts, const struct eval_lists *l, const struct eval_suite *suite,
                      int32_t *longest)
{
    char *path = NULL;
    *facts = wnw_policy_facts_default();
    facts->phase = l->rules[0].phase;
    facts->decodes = l->rules[0].every > 0;
    facts->feeds_again = !l->args->app.devices;
    WNW_TRY(find_lengths(&facts->n_tokens, longest, l->args, suite));
    WNW_TRY(app_model_path(&path, l->args->app.model));
    const int rc = app_auto_find_profiles(facts, &(struct app_profile_want){.given = l->args->app.profile,
                                                                            .model = l->args->app.model,
                                                                            .model_path = path});
    free(path);
    return rc;
}

/* The share of prompts of n tokens that is kept. If lengths are unknown, a size in entries counts as a small share, below all that
 * profiles are measured at. A size in bytes always does. */
static double share_kept(const wnw_size *size, int32_t n)
{
    const double little = 1e-9;
    if (size->kind == WNW_SIZE_RATIO)
        return 1 - size->ratio;
    if (size->kind == WNW_SIZE_BUDGET && n > 0)
        return (double)size->budget < n ? (double)size->budget / n : 1;
    return size->kind == WNW_SIZE_NONE ? 0 : little;
}

/* Finds the recipe that `auto` chooses in a mode and at a size. It must be the same for all lengths. */
static int choose_recipe(wnw_policy_choice *choice, const wnw_policy_facts *known, int32_t longest, int mode,
                         const wnw_size *size)
{
    wnw_policy_facts facts = *known;
    wnw_policy_choice other = wnw_policy_choice_default();
    *choice = wnw_policy_choice_default();
    facts.question_known = mode == EVAL_AWARE || mode == EVAL_AWARE_FULL;
    facts.kept = share_kept(size, facts.n_tokens);
    int status = wnw_policy_choose(choice, &facts);
    facts.n_tokens = longest;
    facts.kept = share_kept(size, longest);
    if (status == WNW_OK)
        status = wnw_policy_choose(&other, &facts);
    if (status != WNW_OK)
        return app_fail_status(status);
    if (strcmp(choice->recipe, other.recipe) != 0)
        return app_fail(APP_BAD_INPUT,
                        "auto is %s for %d tokens and %s for %d: give one of the lengths, or name policies",
                        choice->recipe, (int)known->n_tokens, other.recipe, (int)longest);
    return APP_OK;
}

/* Finds the recipes that `auto` chooses, and records them. */
static int choose_recipes(struct eval_lists *l, const struct eval_suite *suite)
{
    wnw_policy_facts facts;
    int32_t longest;
    WNW_TRY(find_facts(&facts, l, suite, &longest));
    for (int m = 0; m < EVAL_N_MODES; m++)
        for (int32_t i = 0; l->modes[m] && i < l->n_sizes; i++) {
            wnw_policy_choice choice;
            char size[40];
            WNW_TRY(choose_recipe(&choice, &facts, longest, m, &l->sizes[i]));
            eval_size_text(size, sizeof size, &l->sizes[i]);
            app_text_put(&l->c->notes, "%sauto is %s in mode %s with %s, because %s",
                         l->c->notes.len > 0 ? "\n" : "", choice.recipe, mode_names[m], size, choice.reason);
            WNW_TRY(eval_lists_recipe(l->c, choice.recipe, &l->chosen[m][i]));
        }
    return APP_OK;
}

/* The first of what the options say, what the part says, and what holds without either. */
static const char *first_of(const char *given, const char *of_part, const char *otherwise)
{
    if (given)
        return given;
    if (of_part)
        return of_part;
    return otherwise;
}

int eval_lists_read(struct eval_lists *l, struct eval_configs *c, const struct eval_args *args,
                    const struct eval_suite *suite, const struct eval_part *part)
{
    const char *policies = args->closed_book ? "full" : first_of(args->policies, part->policies, "");
    const char *phase = first_of(args->app.mask_phase, part->mask_phase, "all");
    *l = (struct eval_lists){.args = args,
                             .c = c,
                             .evict = strdup(part->evict),
                             .phase = strcmp(phase, "decode") == 0 ? WNW_MASK_DECODE : WNW_MASK_ALL,
                             .separate_readings =
                                 eval_reads_separately(args, suite) || eval_recompresses(args)};
    if (!l->evict)
        return eval_no_memory("the configurations");
    WNW_TRY(eval_list_sizes(l->sizes, &l->n_sizes, args, part));
    WNW_TRY(eval_each_word("kv-types", first_of(args->kv_types, part->kv_types, "f16"), ',', add_type, l));
    WNW_TRY(eval_each_word("modes", first_of(args->modes, part->modes, "agnostic"), ',', add_mode, l));
    if (l->phase == WNW_MASK_ALL && strcmp(phase, "all") != 0)
        return app_fail(APP_BAD_INPUT, "--mask-phase '%s' is unknown; use all or decode", phase);
    WNW_TRY(app_job_mask_form(&l->form, first_of(args->app.mask_form, part->mask_form, "zero")));
    WNW_TRY(
        eval_each_word("mask-heads", first_of(args->app.mask_heads, part->masks, "none"), '/', add_mask, l));
    WNW_TRY(args->app.evict_every ? eval_each_word("evict-every", args->app.evict_every, '/', add_rule, l)
                                  : read_rule(l, NULL));
    l->slack = l->rules[0].phase == WNW_PHASE_CHUNK && args->app.chunk_slack > 1 ? args->app.chunk_slack : 0;
    if (*policies)
        WNW_TRY(eval_each_word("policies", policies, EVAL_RECIPES, add_recipe, l));
    return l->automatic ? choose_recipes(l, suite) : APP_OK;
}

void eval_lists_put_first(struct eval_configs *c, struct eval_lists *l, int32_t n)
{
    int32_t f16 = 0;
    for (int32_t i = 0; i < c->n_types; i++)
        f16 = c->types[i].type == WNW_KV_F16 && c->types[f16].type != WNW_KV_F16 ? i : f16;
    const struct app_kv kv = c->types[0];
    c->types[0] = c->types[f16];
    c->types[f16] = kv;
    for (int32_t i = 0; i < n; i++) {
        const bool had = l[i].types[0];
        l[i].types[0] = l[i].types[f16];
        l[i].types[f16] = had;
    }
}

const char *eval_config_policy(const struct eval_config *config)
{
    return config->plans ? config->recipe : wnw_policy_string(config->policy);
}
