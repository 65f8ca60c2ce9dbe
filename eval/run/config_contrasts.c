/* SPDX-License-Identifier: MIT */
/* Contrasts of a run, and whether its configs are what they compare. */
#include "eval/run/config_impl.h"

#include "app/console.h"
#include "eval/base/recipe.h"

#include <stdlib.h>
#include <string.h>

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
            config->target != first->target || config->every_ratio != first->every_ratio ||
            config->every_ratio_read != first->every_ratio_read || config->mask)
            return false;
    }
    return true;
}

/* Whether the config has the rule of eviction that a contrast names for one side; NULL: it names none. */
static bool has_rule(const struct eval_config *config, const char *evict, bool one_rule)
{
    if (evict && !config->full)
        return strcmp(json_string_value(json_object_get(config->json, "evict")), evict) == 0;
    return is_plain(config) || (!config->full && one_rule);
}

/* Whether a contrast means results of this config by one of its sides, if they are of that side's policy; one_rule: have_one_rule of them
 * all. */
static bool is_meant(const struct eval_config *config, const struct eval_contrast *x, const char *evict,
                     bool one_rule)
{
    return (config->full || strcmp(config->size_text, x->size) == 0) &&
           strcmp(eval_mode_name(config->mode), x->mode) == 0 && strcmp(config->kv_text, x->kv_type) == 0 &&
           has_rule(config, evict, one_rule);
}

/* Whether a policy is among the configs that a contrast means by a side with this rule of eviction; x = NULL: among all. */
static bool has_side(const struct eval_configs *c, const char *recipe, const struct eval_contrast *x,
                     const char *evict)
{
    char *canonical = eval_recipe_canonical(recipe, c->registry);
    const bool one_rule = x && have_one_rule(c);
    bool found = false;
    for (int32_t i = 0; canonical && !found && i < c->n; i++)
        found = strcmp(eval_config_policy(&c->items[i]), canonical) == 0 && (!x || is_meant(&c->items[i], x, evict, one_rule));
    free(canonical);
    return found;
}

bool eval_configs_have(const struct eval_configs *c, const char *recipe)
{
    return has_side(c, recipe, NULL, NULL);
}

bool eval_contrast_is_compared(const struct eval_configs *c, const struct eval_contrast *x)
{
    return has_side(c, x->a, x, x->evict_a) && has_side(c, x->b, x, x->evict_b);
}
