/* SPDX-License-Identifier: MIT */
#include "eval/base/recipe.h"

#include "winnow.h"

#include <string.h>

char *eval_recipe_canonical(const char *recipe, const wnw_registry *registry)
{
    wnw_policy *policy = NULL;
    const int status = wnw_policy_parse(&policy, recipe, registry);
    if (status == WNW_E_NOMEM)
        return NULL;
    char *text = strdup(status == WNW_OK ? wnw_policy_string(policy) : recipe);
    wnw_policy_free(policy);
    return text;
}
