/* SPDX-License-Identifier: MIT */
/* Recipes as texts of records and options. */
#ifndef WNW_EVAL_RECIPE_H
#define WNW_EVAL_RECIPE_H

#include "winnow_method.h"

/* A recipe with every value written out, so that two that mean the same are equal; one that the library and the registry (NULL = none) do not know stays as it is.
 * The caller frees it; NULL if memory runs out. */
char *eval_recipe_canonical(const char *recipe, const wnw_registry *registry);

#endif
