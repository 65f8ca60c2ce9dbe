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

/* Whether the config has the rules that a contrast names for a side. */
static bool has_rules(const struct eval_config *config, const struct eval_contrast_side *side)
{
    const char *evict = json_string_value(json_object_get(config->json, "evict"));
    return strcmp(evict, side->evict ? side->evict : "end") == 0 && !config->mask &&
           (!side->every || (config->every_text && strcmp(config->every_text, side->every) == 0));
}

/* Whether a contrast means results of this config by a side, if they are of its policy; one_rule: have_one_rule of them all. */
static bool is_meant(const struct eval_config *config, const char *mode,
                     const struct eval_contrast_side *side, bool one_rule)
{
    if ((!config->full && strcmp(config->size_text, side->size) != 0) ||
        strcmp(eval_mode_name(config->mode), mode) != 0 || strcmp(config->kv_text, side->kv_type) != 0)
        return false;
    if ((side->evict || side->every) && !config->full)
        return has_rules(config, side);
    return is_plain(config) || (!config->full && one_rule);
}

/* Whether a policy is among the configs; side: among those that a contrast means by it, NULL = among all. */
static bool have_policy(const struct eval_configs *c, const char *recipe, const char *mode,
                        const struct eval_contrast_side *side)
{
    char *canonical = eval_recipe_canonical(recipe, c->registry);
    const bool one_rule = side && have_one_rule(c);
    bool found = false;
    for (int32_t i = 0; canonical && !found && i < c->n; i++)
        found = strcmp(eval_config_policy(&c->items[i]), canonical) == 0 &&
                (!side || is_meant(&c->items[i], mode, side, one_rule));
    free(canonical);
    return found;
}

bool eval_configs_have(const struct eval_configs *c, const char *recipe)
{
    return have_policy(c, recipe, NULL, NULL);
}

bool eval_contrast_is_compared(const struct eval_configs *c, const struct eval_contrast *x)
{
    return have_policy(c, x->a.policy, x->mode, &x->a) && have_policy(c, x->b.policy, x->mode, &x->b);
}
