/* SPDX-License-Identifier: MIT */
/* Lists of what is compared, between the options (config_lists.c) and the configs that are their product (config.c). */
#ifndef WNW_EVAL_CONFIG_IMPL_H
#define WNW_EVAL_CONFIG_IMPL_H

#include "eval/run/config.h"
#include "eval/run/lists.h"

/* A part of what is compared, as numbers: configs are the product. */
struct eval_lists {
    const struct eval_args *args;
    struct eval_configs *c; /* the other fields are indices into its lists */
    char *evict;            /* one rule of eviction, owned */
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
    double slack;
};

/* *at becomes the recipe's index. Those that can fail return exit codes. */
int eval_lists_recipe(struct eval_configs *c, const char *recipe, int32_t *at);
/* Reads a part: what the options say comes before what the part says, but for its rule of eviction. It has one rule here. */
int eval_lists_read(struct eval_lists *l, struct eval_configs *c, const struct eval_args *args,
                    const struct eval_suite *suite, const struct eval_part *part);
/* Types and masks of several parts come as they are named; what others are compared with comes first. */
void eval_lists_put_first(struct eval_configs *c, struct eval_lists *l, int32_t n);
/* The policy with every value written out, or `plan:DIR`. */
const char *eval_config_policy(const struct eval_config *config);

#endif
