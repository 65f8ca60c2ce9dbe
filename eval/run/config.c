/* SPDX-License-Identifier: MIT */
/* What is compared: the product of the lists of policies, sizes, types and modes. */
#include "eval/run/config.h"

#include "app/automatic.h"
#include "app/console.h"
#include "app/job.h"
#include "app/models.h"
#include "base/random.h"
#include "eval/base/grow.h"
#include "eval/base/info.h"
#include "eval/base/recipe.h"
#include "eval/run/items.h"
#include "eval/run/lists.h"
#include "eval/run/plans.h"
#include "winnow_method.h"

#include <stdlib.h>
#include <string.h>

static const char *const mode_names[EVAL_N_MODES + 1] = {"agnostic", "task", "aware", "aware_full", NULL};

const char *eval_mode_name(enum eval_mode mode)
{
    return mode < EVAL_N_MODES ? mode_names[mode] : "?";
}

/* ---- Contrasts ---- */

bool eval_replaces_study(const struct eval_args *args)
{
    return args->policies || args->ratios || args->budgets || args->kv_bytes || args->modes;
}

int eval_contrasts_open(json_t **out, const struct eval_args *args, const struct eval_suite *suite)
{
    const bool own = eval_replaces_study(args);
    *out = NULL;
    if (args->contrasts)
        return eval_contrasts_file(out, args->contrasts);
    return suite && suite->contrasts.len > 0 && !own
               ? eval_contrasts_lines(out, suite->contrasts.s, "contrasts of the study")
               : APP_OK;
}

static bool is_plain(const struct eval_config *config)
{
    return config->phase == WNW_PHASE_END && config->every == 0 && !config->mask;
}

/* Whether all compressed configs have one rule of eviction, under which contrasts are meant then (results/primary.c). */
static bool have_one_rule(const struct eval_configs *c)
{
    const struct eval_config *first = NULL;
    for (int32_t i = 0; i < c->n; i++) {
        const struct eval_config *config = &c->items[i];
        if (config->full)
            continue;
        first = first ? first : config;
        if (config->phase != first->phase || config->chunk != first->chunk || config->every != first->every ||
            config->target != first->target || config->mask)
            return false;
    }
    return true;
}

/* Whether a contrast means results of this config, if they are of one of its policies; one_rule: have_one_rule of them all. */
static bool is_meant(const struct eval_config *config, const struct eval_contrast *x, bool one_rule)
{
    return (config->full || strcmp(config->size_text, x->size) == 0) &&
           strcmp(eval_mode_name(config->mode), x->mode) == 0 && strcmp(config->kv_text, x->kv_type) == 0 &&
           (is_plain(config) || (!config->full && one_rule));
}

/* The policy with every value written out, or `plan:DIR`. */
static const char *name_of(const struct eval_config *config)
{
    return config->plans ? config->recipe : wnw_policy_string(config->policy);
}

/* Whether a policy is among the configs that a contrast means; x = NULL: among all. */
static bool has_side(const struct eval_configs *c, const char *recipe, const struct eval_contrast *x)
{
    char *canonical = eval_recipe_canonical(recipe, c->registry);
    const bool one_rule = x && have_one_rule(c);
    bool found = false;
    for (int32_t i = 0; canonical && !found && i < c->n; i++)
        found = strcmp(name_of(&c->items[i]), canonical) == 0 && (!x || is_meant(&c->items[i], x, one_rule));
    free(canonical);
    return found;
}

bool eval_configs_have(const struct eval_configs *c, const char *recipe)
{
    return has_side(c, recipe, NULL);
}

bool eval_contrast_is_compared(const struct eval_configs *c, const struct eval_contrast *x)
{
    return has_side(c, x->a, x) && has_side(c, x->b, x);
}

/* ---- Lists ---- */

/* A part of what is compared, as numbers: configs are the product. */
struct lists {
    const struct eval_args *args;
    struct eval_configs *c; /* the other fields are indices into its lists */
    const char *evict;
    wnw_size sizes[EVAL_MAX_SIZES];
    int32_t n_sizes;
    bool separate_readings; /* each config reads by itself, or compresses again and keeps its rules */
    bool types[EVAL_MAX_TYPES], masks[EVAL_MAX_MASKS], modes[EVAL_N_MODES];
    int32_t *recipes, n_recipes; /* owned */
    bool automatic;              /* `auto` is among them, and is this recipe in a mode and size: */
    int32_t chosen[EVAL_N_MODES][EVAL_MAX_SIZES];
    wnw_mask_phase phase; /* of the masks that are read */
    wnw_mask_form form;
    wnw_run rules;
};
enum { MAX_PARTS = 16 };

static bool is_same(const struct eval_recipe *one, const struct eval_recipe *r, const char *asked)
{
    if (one->plans || eval_plans_folder(asked))
        return strcmp(one->asked, asked) == 0;
    return strcmp(wnw_policy_string(one->policy), wnw_policy_string(r->policy)) == 0;
}

/* *at becomes the recipe's index. */
static int find_recipe(struct eval_configs *c, const char *recipe, int32_t *at)
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
    for (int32_t i = 0; status == WNW_OK && i < c->n_recipes; i++)
        if (is_same(&c->recipes[i], r, recipe)) {
            wnw_policy_free(r->policy); /* it is named twice */
            *at = i;
            return APP_OK;
        }
    if (status == WNW_OK)
        status = wnw_policy_short(r->policy, &text);
    if (status == WNW_OK) {
        r->text = strdup(plans ? recipe : text);
        r->asked = strdup(recipe);
        r->plans = r->asked ? eval_plans_folder(r->asked) : NULL;
        wnw_free(text);
        c->n_recipes++;
        return r->text && r->asked ? APP_OK : eval_no_memory("the configurations");
    }
    wnw_policy_free(r->policy);
    return app_fail_status(status);
}

static int add_recipe(void *user, const char *word)
{
    struct lists *l = user;
    if (app_is_auto(word)) {
        l->automatic = true;
        return APP_OK;
    }
    if (!eval_grow(&l->recipes, (size_t)l->n_recipes, sizeof *l->recipes))
        return eval_no_memory("the configurations");
    return find_recipe(l->c, word, &l->recipes[l->n_recipes++]);
}

static int add_type(void *user, const char *word)
{
    struct lists *l = user;
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
    struct lists *l = user;
    for (int m = 0; m < EVAL_N_MODES; m++)
        if (strcmp(mode_names[m], word) == 0) {
            l->modes[m] = true;
            return APP_OK;
        }
    return app_fail(APP_BAD_INPUT, "--modes: '%s' is unknown; use agnostic, task, aware or aware_full", word);
}

static int add_mask(void *user, const char *word)
{
    struct lists *l = user;
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
static int find_facts(wnw_policy_facts *facts, const struct lists *l, const struct eval_suite *suite,
                      int32_t *longest)
{
    char *path = NULL;
    *facts = wnw_policy_facts_default();
    facts->phase = l->rules.phase;
    facts->decodes = l->rules.every > 0;
    facts->feeds_again = true;
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
static int choose_recipes(struct lists *l, const struct eval_suite *suite)
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
            WNW_TRY(find_recipe(l->c, choice.recipe, &l->chosen[m][i]));
        }
    return APP_OK;
}

/* The first of what the options say, what the part says, and what holds without either. */
static const char *first_of(const char *given, const char *of_part, const char *otherwise)
{
    return given ? given : of_part ? of_part : otherwise;
}

static int read_part(struct lists *l, struct eval_configs *c, const struct eval_args *args,
                     const struct eval_suite *suite, const struct eval_part *part)
{
    const char *policies = args->closed_book ? "full" : first_of(args->policies, part->policies, "");
    const char *phase = first_of(args->app.mask_phase, part->mask_phase, "all");
    *l = (struct lists){.args = args,
                        .c = c,
                        .evict = first_of(args->app.evict, part->evict, "end"),
                        .rules = wnw_run_default(),
                        .phase = strcmp(phase, "decode") == 0 ? WNW_MASK_DECODE : WNW_MASK_ALL,
                        .separate_readings = eval_reads_separately(args, suite) || eval_recompresses(args)};
    WNW_TRY(eval_list_sizes(l->sizes, &l->n_sizes, args, part));
    WNW_TRY(eval_each_word("kv-types", first_of(args->kv_types, part->kv_types, "f16"), ',', add_type, l));
    WNW_TRY(eval_each_word("modes", first_of(args->modes, part->modes, "agnostic"), ',', add_mode, l));
    if (l->phase == WNW_MASK_ALL && strcmp(phase, "all") != 0)
        return app_fail(APP_BAD_INPUT, "--mask-phase '%s' is unknown; use all or decode", phase);
    WNW_TRY(app_job_mask_form(&l->form, first_of(args->app.mask_form, part->mask_form, "zero")));
    WNW_TRY(
        eval_each_word("mask-heads", first_of(args->app.mask_heads, part->masks, "none"), '/', add_mask, l));
    WNW_TRY(app_job_rules(&l->rules, l->evict, args->app.evict_every));
    if (*policies)
        WNW_TRY(eval_each_word("policies", policies, EVAL_RECIPES, add_recipe, l));
    return l->automatic ? choose_recipes(l, suite) : APP_OK;
}

/* Types and masks of several parts come as they are named; what others are compared with comes first. */
static void put_first(struct eval_configs *c, struct lists *l, int32_t n)
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

/* ---- Groups ---- */

/* Whether one session can observe for both policies. */
static bool agree(const wnw_policy *a, const wnw_policy *b)
{
    const wnw_needs x = wnw_policy_needs(a), y = wnw_policy_needs(b);
    const uint32_t both = x.flags & y.flags;
    if ((x.flags ^ y.flags) & WNW_NEED_QUERIES && !wnw_policy_is_full(a) && !wnw_policy_is_full(b))
        return false; /* a session that holds every query is expensive to copy */
    return !((both & WNW_NEED_SECOND_PASS) && !wnw_second_passes_agree(&x, &y)) &&
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

static bool masks_reading(const struct eval_mask *mask)
{
    return mask && mask->phase == WNW_MASK_ALL;
}

bool eval_configs_share_reading(const struct eval_config *a, const struct eval_config *b)
{
    const struct eval_mask *x = masks_reading(a->mask) ? a->mask : NULL;
    const struct eval_mask *y = masks_reading(b->mask) ? b->mask : NULL;
    return app_kv_equal(&a->kv, &b->kv) && x == y;
}

bool eval_config_is_uncompressed(const struct eval_config *c)
{
    return c->full && (!c->mask || masks_reading(c->mask));
}

/* Names the config by the hash of what it is. */
static int name_config(struct eval_config *c, const struct lists *l)
{
    char hash[17];
    eval_hash_text(hash, c->plans_hash);
    c->json = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s*, s:s*, s:s*, s:s*}", "policy", name_of(c), "size", c->size_text,
        "kv_type", c->kv_text, "mode", eval_mode_name(c->mode), "evict", c->full ? "end" : l->evict,
        "evict_every", c->full || !l->args->app.evict_every ? "" : l->args->app.evict_every, "mask",
        c->mask ? c->mask->text : NULL, "mask_phase", c->mask && !masks_reading(c->mask) ? "decode" : NULL,
        "mask_form", c->mask && c->mask->form == WNW_MASK_MEAN ? "mean" : NULL, "plans",
        c->plans ? hash : NULL);
    char *text = c->json ? json_dumps(c->json, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    if (!text)
        return eval_no_memory("the configurations");
    eval_hash_text(c->id, wnw__hash_of(text, strlen(text)));
    free(text);
    return APP_OK;
}

/* Drops the last config if another part has named it already. */
static int drop_twice(struct eval_configs *c)
{
    struct eval_config *last = &c->items[c->n - 1];
    for (int32_t i = 0; i + 1 < c->n; i++) {
        if (strcmp(c->items[i].id, last->id) != 0)
            continue;
        if (!json_equal(c->items[i].json, last->json))
            return app_fail(APP_FAILED, "%s and %s have the same id", c->items[i].recipe, last->recipe);
        json_decref(last->json);
        c->n--;
        return APP_OK;
    }
    return APP_OK;
}

static int add_config(struct eval_configs *c, const struct lists *l, struct eval_config config)
{
    if (!eval_grow(&c->items, (size_t)c->n, sizeof *c->items))
        return eval_no_memory("the configurations");
    config.full = wnw_policy_is_full(config.policy) && !config.plans;
    config.phase = config.full ? WNW_PHASE_END : l->rules.phase;
    config.chunk = config.full ? 0 : l->rules.chunk;
    config.every = config.full ? 0 : l->rules.every;
    config.target = config.full ? 0 : l->rules.target;
    if (config.plans && (config.phase != WNW_PHASE_END || config.every > 0 || eval_recompresses(l->args)))
        return app_fail(
            APP_BAD_INPUT,
            "%s compresses once, at the end of the prompt; leave out --evict, --evict-every and --recompress",
            config.recipe);
    config.own_read = config.phase != WNW_PHASE_END || config.every > 0 ||
                      (l->separate_readings && !config.full && !config.plans);
    if (config.full) {
        config.size = (wnw_size){.kind = WNW_SIZE_NONE};
        snprintf(config.size_text, sizeof config.size_text, "full");
    } else {
        eval_size_text(config.size_text, sizeof config.size_text, &config.size);
    }
    app_kv_word(config.kv_text, &config.kv);
    c->items[c->n++] = config;
    WNW_TRY(name_config(&c->items[c->n - 1], l));
    return drop_twice(c);
}

static bool asks_tasks(const wnw_policy *policy)
{
    const wnw_needs needs = wnw_policy_needs(policy);
    return needs.flags & WNW_NEED_SECOND_PASS &&
           (needs.second_pass == WNW_PASS_TASK || needs.second_pass == WNW_PASS_BOTH);
}

/* Whether a policy is run in a mode. One that uses the question is not agnostic. In mode "task" the others would do the same
 * as in mode "agnostic". */
static bool fits_mode(struct eval_configs *c, const struct eval_recipe *r, enum eval_mode mode)
{
    const bool tasks = asks_tasks(r->policy);
    if (wnw_policy_is_full(r->policy) || !(tasks ? mode == EVAL_AGNOSTIC : mode == EVAL_TASK))
        return true;
    char line[256];
    snprintf(line, sizeof line, "%.120s is left out of mode %s: %s", r->text, eval_mode_name(mode),
             tasks ? "it is told the question" : "it does not ask for one");
    if (!c->notes.s || !strstr(c->notes.s, line)) /* once for all types and masks */
        app_text_put(&c->notes, "%s%s", c->notes.len > 0 ? "\n" : "", line);
    return false;
}

/* Size i of one policy. */
static int add_size(struct eval_configs *c, const struct lists *l, const struct eval_recipe *r,
                    struct eval_config config, int32_t i)
{
    WNW_TRY(app_job_allowed(r->policy, &l->rules, l->evict));
    config.policy = r->policy;
    config.recipe = r->text;
    config.asked = r->asked;
    config.plans = r->plans;
    config.plans_hash = r->plans_hash;
    config.has_tasks = asks_tasks(r->policy);
    config.group = r->group;
    config.size = r->plans ? (wnw_size){.kind = WNW_SIZE_NONE} : l->sizes[i];
    if (config.size.kind == WNW_SIZE_NONE && !wnw_policy_is_full(r->policy) &&
        !wnw_policy_has_own_size(r->policy))
        return app_fail(APP_BAD_INPUT, "%s has no size of its own; give it one", r->text);
    return add_config(c, l, config);
}

/* All sizes of one policy. */
static int add_sizes(struct eval_configs *c, const struct lists *l, const struct eval_recipe *r,
                     struct eval_config config)
{
    for (int32_t i = 0; i < (wnw_policy_is_full(r->policy) ? 1 : l->n_sizes); i++)
        WNW_TRY(add_size(c, l, r, config, i));
    return APP_OK;
}

/* The mask while reading that goes with a mask: itself, or none where it acts while answers are generated only. */
static int32_t reading_of(const struct eval_configs *c, int32_t mask)
{
    return masks_reading(&c->masks[mask]) ? mask : 0;
}

/* What a part compares under one mask; a mask is also tried with the full cache, which shows what it does alone. */
static int add_masked(struct eval_configs *c, const struct lists *l, int32_t mask, struct eval_config config)
{
    config.mask = mask > 0 ? &c->masks[mask] : NULL;
    for (int32_t i = 0; i < l->n_recipes; i++) {
        const struct eval_recipe *r = &c->recipes[l->recipes[i]];
        if (fits_mode(c, r, config.mode))
            WNW_TRY(add_sizes(c, l, r, config));
    }
    for (int32_t i = 0; l->automatic && i < l->n_sizes; i++)
        WNW_TRY(add_size(c, l, &c->recipes[l->chosen[config.mode][i]], config, i));
    return mask > 0 ? add_sizes(c, l, &c->recipes[0], config) : APP_OK;
}

/* One reading's worth of configs: a type, and the mask of the reading (0 = none), in one mode. The full cache is the
 * first; that of the first reading is what all are compared with, and is there in any case. */
static int make_mode(struct eval_configs *c, const struct lists *l, int32_t n_parts, int32_t type,
                     int32_t of_reading, struct eval_config config)
{
    config.mask = of_reading > 0 ? &c->masks[of_reading] : NULL;
    if (type == 0 && of_reading == 0)
        WNW_TRY(add_sizes(c, &l[0], &c->recipes[0], config));
    for (int32_t i = 0; i < n_parts; i++)
        if (l[i].types[type] && l[i].modes[config.mode] && (of_reading == 0 || l[i].masks[of_reading]))
            WNW_TRY(add_sizes(c, &l[i], &c->recipes[0], config));
    for (int32_t i = 0; i < n_parts; i++)
        for (int32_t m = 0; l[i].types[type] && l[i].modes[config.mode] && m < c->n_masks; m++)
            if (l[i].masks[m] && reading_of(c, m) == of_reading)
                WNW_TRY(add_masked(c, &l[i], m, config));
    return APP_OK;
}

static bool has_mode(const struct lists *l, int32_t n_parts, int mode)
{
    bool any = false;
    for (int32_t i = 0; i < n_parts; i++)
        any = any || l[i].modes[mode];
    return any;
}

static int make_product(struct eval_configs *c, const struct lists *l, int32_t n_parts)
{
    int32_t reference[EVAL_N_MODES] = {0};
    for (int32_t t = 0; t < c->n_types; t++)
        for (int32_t r = 0; r < c->n_masks; r++)
            for (int m = 0; reading_of(c, r) == r && m < EVAL_N_MODES; m++) {
                if (!has_mode(l, n_parts, m))
                    continue;
                if (t == 0 && r == 0)
                    reference[m] = c->n;
                WNW_TRY(make_mode(c, l, n_parts, t, r,
                                  (struct eval_config){.kv = c->types[t],
                                                       .mode = (enum eval_mode)m,
                                                       .reference = reference[m]}));
            }
    return APP_OK;
}

int eval_configs_open(struct eval_configs *c, const struct eval_args *args, const struct eval_suite *suite)
{
    static const struct eval_part plain = {.policies = "full,snapkv,lagkv"};
    const struct eval_part *parts = suite ? suite->parts : &plain;
    const int32_t n_parts = suite ? suite->n_parts : 1;
    struct lists l[MAX_PARTS] = {0};
    int32_t full, n = 0;
    *c = (struct eval_configs){.n_masks = 1, .registry = args->app.registry};
    int rc = find_recipe(c, "full", &full);
    if (rc == APP_OK && args->app.mask_phase && !args->app.mask_heads && !suite)
        rc = app_fail(APP_BAD_INPUT, "--mask-phase says when heads are masked; name them with --mask-heads");
    if (rc == APP_OK && args->app.mask_form && !args->app.mask_heads && !suite)
        rc = app_fail(APP_BAD_INPUT, "--mask-form says what masked heads give; name them with --mask-heads");
    if (rc == APP_OK && n_parts > MAX_PARTS)
        rc = app_fail(APP_FAILED, "%s has more than %d parts", suite->name, (int)MAX_PARTS);
    while (rc == APP_OK && n < n_parts) {
        rc = read_part(&l[n], c, args, suite, &parts[n]);
        n++;
    }
    if (rc == APP_OK) {
        put_first(c, l, n);
        make_groups(c);
        rc = make_product(c, l, n);
    }
    for (int32_t i = 0; i < n; i++)
        free(l[i].recipes);
    return rc;
}

bool eval_profile_hash(uint64_t *out, const wnw_profile *p)
{
    wnw_profile_table t = wnw_profile_table_default();
    *out = WNW_HASH_START;
    for (int32_t i = 0; wnw_profile_get_table(p, i, &t); i++) {
        int64_t n = 1;
        for (int32_t k = 0; k < t.n_dim; k++)
            n *= t.shape[k];
        double *value = calloc((size_t)n + 1, sizeof *value);
        const bool good = value && wnw_profile_get_values(value, n, p, t.name) == WNW_OK;
        if (good) {
            *out = wnw__hash_join(*out, t.name, strlen(t.name));
            *out = wnw__hash_join(*out, t.shape, (size_t)t.n_dim * sizeof *t.shape);
            *out = wnw__hash_join(*out, value, (size_t)n * sizeof *value);
        }
        free(value);
        if (!good)
            return false;
    }
    return true;
}

int eval_masks_open(struct eval_configs *c, const wnw_model *m, const wnw_profile *p)
{
    c->masks_profiled = p != NULL;
    if (p && !eval_profile_hash(&c->mask_profile, p))
        return eval_no_memory("the scores of heads");
    int status = WNW_OK;
    for (int32_t i = 1; status == WNW_OK && i < c->n_masks; i++)
        status = wnw_heads_parse(&c->masks[i].heads, &c->masks[i].n, c->masks[i].text, m, p);
    return eval_status_code(status);
}

void eval_configs_close(struct eval_configs *c)
{
    for (int32_t i = 0; i < c->n; i++) {
        json_decref(c->items[i].json);
        if (c->items[i].owns_profile)
            wnw_profile_free(c->items[i].profile);
    }
    for (int32_t i = 0; i < c->n_recipes; i++) {
        wnw_policy_free(c->recipes[i].policy);
        free(c->recipes[i].text);
        free(c->recipes[i].asked);
    }
    for (int32_t i = 0; i < c->n_masks; i++) {
        free(c->masks[i].text);
        wnw_free(c->masks[i].heads);
    }
    free(c->items);
    free(c->recipes);
    free(c->notes.s);
    *c = (struct eval_configs){0};
}
