/* SPDX-License-Identifier: MIT */
#include "eval/base/recipe.h"

#include "winnow.h"

#include <string.h>

char *eval_recipe_canonical(const char *recipe, const wnw_registry *registry)
{
    wnw_policy *policy = NULL;
    const bool ours = wnw_policy_parse(&policy, recipe, registry) == WNW_OK;
    char *text = strdup(ours ? wnw_policy_string(policy) : recipe);
    wnw_policy_free(policy);
    return text;
}
