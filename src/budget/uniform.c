/* SPDX-License-Identifier: MIT */
/* Every layer gets the same count. */
#include "policy/part.h"

static int allocate(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    (void)opts;
    (void)warning;
    for (int32_t i = 0; i < p->n_layer; i++)
        n_keep[i] = p->budget;
    return WNW_OK;
}

static const wnw_option options[] = {WNW_OPTION_ROUNDING, {0}};

const wnw_layer_budget wnw__layer_budget_uniform = {
    .part = {WNW_LAYER_BUDGET_INIT, .name = "uniform", .about = "The same count for every layer.",
             .details = "`B_l = B`. The option `rounding` says how every count of the policy becomes whole: "
                        "`exact` is floor(x + 1e-6), `trunc` the bare truncation of kvpress, which makes 99 "
                        "of 1000 (1 - 0.9).",
             .options = options, .options_size = sizeof(struct wnw__layer_opts)},
    .allocate = allocate,
};
