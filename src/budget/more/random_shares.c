/* SPDX-License-Identifier: MIT */
/*
 * A control for budget/shares.c: the same shares of entries, each given to another head by chance. What shares gain over it is due to which
 * heads get many entries. What it gains over equal heads is due to heads being unequal at all.
 */
#include "base/random.h"
#include "budget/shares.h"
#include "method/count.h"
#include "policy/part.h"

struct opts {
    struct wnw__look_opts look;
    int32_t seed;
};

/* The numbers 0 .. n - 1 in an order of chance (Fisher and Yates). float holds them exactly: a model has fewer than 2^24 heads. */
static void shuffle(float *order, int32_t n, int32_t seed)
{
    uint64_t state = wnw__stream(seed, 0, 0);
    for (int32_t i = 0; i < n; i++)
        order[i] = (float)i;
    for (int32_t i = n - 1; i > 0; i--) {
        const int32_t k = (int32_t)(wnw__mix_next(&state) % ((uint64_t)i + 1));
        const float was = order[i];
        order[i] = order[k];
        order[k] = was;
    }
}

/* scratch has n numbers for each head, n being the entries of the longest. With n = 1 no order can be noted, and none matters. */
static int allocate_model(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, float *scratch,
                          char *warning)
{
    const struct opts *o = opts;
    const int32_t n_row = p->n_layer * p->n_head_kv;
    float *order = p->n > 1 ? scratch + n_row : NULL;
    (void)warning;
    if (order)
        shuffle(order, n_row, o->seed);
    return wnw__shares_allocate(p, order, n_keep, scratch);
}

static const wnw_option options[] = {WNW_OPTION_LOOK_HEADER,
                                     WNW_OPTION_LOOK_SINKS,
                                     WNW_OPTION_LOOK_LAST,
                                     WNW_OPTION_LOOK_ROOM,
                                     {.name = "seed",
                                      .help = "of the order of heads",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, seed),
                                      .def = 42,
                                      .min = 0,
                                      .max = INT32_MAX},
                                     {0}};

const wnw_head_budget wnw__head_budget_random_shares = {
    .part = {WNW_HEAD_BUDGET_INIT, .name = "random_shares",
             .about = "The budgets of `shares`, given to heads by chance: a control.",
             .details = "Every head of the model takes the shares of another one, in an order that follows "
                        "from `seed`. So budgets are as unequal as those of "
                        "`shares`, and say nothing of the heads. What `shares` gains over it is due to which "
                        "heads get many entries.\n\n"
                        "Cost: O(R) for R heads, for any n.",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_RAGGED | WNW_FLAG_BLIND | WNW_FLAG_COMPETES, .needs = wnw__shares_needs,
             .keep = wnw__look_keep},
    .allocate_model = allocate_model,
};
