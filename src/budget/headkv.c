/* SPDX-License-Identifier: MIT */
/*
 * HeadKV: heads that were found important for retrieval and reasoning get more entries, regardless of the prompt.
 * Paper: "Not All Heads Matter: A Head-Level KV Cache Compression Method with Integrated Retrieval and
 * Reasoning" (arXiv 2410.19258). The scores of query heads come from a profile. With B entries per head on
 * average, W of them protected, over R = L H_kv heads:
 *
 *     s = x^temp of the query heads of a KV head (contiguous ones), summed, over the sum of all;
 *     b = B - W,  pool = floor(b / beta),  least = b - pool;
 *     chosen entries of a head = least + s R pool, in addition to its W
 *
 * beta near 1 puts nearly all entries into the pool, a large beta is uniform. The authors' code rounds every head by
 * itself and loses the entries that a short prompt cannot use. Here a full head leaves the rest to the others in
 * proportion to s. The largest fractions are rounded up until the total is exact. Cost O(R^2).
 */
#include "method/count.h"
#include "policy/part.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

#include <math.h>

struct opts {
    double beta;
    double temp;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_PROFILE;
    out->profiles = 1u << WNW_PROFILE_HEADS;
}

/* Importance of every row (layer r / n_head_kv that takes part, KV head r % n_head_kv), scaled so that the largest query head has 1. False if all are 0. */
static bool head_weights(const struct opts *o, const wnw_layer_problem *p, float *weight)
{
    const int32_t group = p->n_head / p->n_head_kv;
    double most = 0;
    for (int32_t h = 0; h < p->n_layer * p->n_head; h++) {
        const double x = p->profile->head_score[p->il[h / p->n_head] * p->n_head + h % p->n_head];
        most = x > most ? x : most;
    }
    for (int32_t r = 0; r < p->n_layer * p->n_head_kv; r++) {
        const int32_t first = p->il[r / p->n_head_kv] * p->n_head + r % p->n_head_kv * group;
        double sum = 0;
        for (int32_t g = 0; g < group && most > 0; g++)
            sum += pow(p->profile->head_score[first + g] / most, o->temp);
        weight[r] = most > 0 ? (float)sum : 1;
    }
    return most > 0;
}

/* Rows that are not full share the entries that are left: each gets least + slope x weight. */
struct share {
    double least, slope;
};

static struct share share_of(int32_t n_row, double chosen, double least, const float *weight,
                             const int32_t *full)
{
    double sum = 0;
    int32_t n_open = 0;
    for (int32_t r = 0; r < n_row; r++) {
        chosen -= full[r] < 0 ? 0 : full[r];
        sum += full[r] < 0 ? (double)weight[r] : 0;
        n_open += full[r] < 0;
    }
    if (sum > 0)
        return (struct share){.least = least, .slope = (chosen - least * n_open) / sum};
    return (struct share){.least = n_open > 0 ? chosen / n_open : 0};
}

static int allocate_model(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, float *scratch,
                          char *warning)
{
    const struct opts *o = opts;
    const int32_t n_row = p->n_layer * p->n_head_kv;
    if (!p->profile || !p->profile->head_score)
        return wnw__fail(WNW_E_MISMATCH,
                         "headkv needs one score per query head; the profile of kind heads has "
                         "none");
    if (!head_weights(o, p, scratch))
        wnw__warn(warning, "the profile gives every head score 0: headkv treats all alike");
    int64_t chosen = wnw__count_together(p, p->n_entry, n_row), missing = chosen;
    for (int32_t r = 0; r < n_row; r++) {
        chosen -= wnw__row_protected(p, r);
        n_keep[r] = -1; /* not full */
    }
    chosen = chosen > 0 ? chosen : 0;
    const double each = (double)chosen / n_row;
    const double least = each - wnw__round_count(each / o->beta, p->rounding);
    struct share share;
    for (bool again = true; again;) {
        again = false;
        share = share_of(n_row, (double)chosen, least, scratch, n_keep);
        for (int32_t r = 0; r < n_row; r++) {
            const int32_t room = p->n_entry[r] - wnw__row_protected(p, r);
            if (n_keep[r] < 0 && share.least + share.slope * (double)scratch[r] >= room) {
                n_keep[r] = room;
                again = true;
            }
        }
    }
    for (int32_t r = 0; r < n_row; r++) {
        const double want = share.least + share.slope * (double)scratch[r];
        const int32_t whole = n_keep[r] < 0 ? wnw__round_count(want, WNW_ROUND_EXACT) : n_keep[r];
        scratch[r] = n_keep[r] < 0 ? (float)(want - whole) : 0;
        n_keep[r] = whole + wnw__row_protected(p, r);
        missing -= n_keep[r];
    }
    wnw__hand_out(p->n_entry, n_row, missing, scratch, n_keep);
    return WNW_OK;
}

static const wnw_option options[] = {
    {.name = "beta",
     .help = "near 1 importance decides about nearly all entries, large values share them out evenly",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, beta),
     .def = 1.01,
     .min = 1,
     .max = 1e6},
    {.name = "temp",
     .help = "exponent of the heads' scores",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, temp),
     .def = 1,
     .min = 0.01,
     .max = 100},
    {0}};

const wnw_head_budget wnw__head_budget_headkv = {
    .part =
        {WNW_HEAD_BUDGET_INIT, .name = "headkv",
         .about =
             "Heads that a profile finds important for retrieval get more entries, regardless of the prompt.",
         .paper = "HeadKV, arXiv 2410.19258",
         .details =
             "With `b` entries per head besides the protected ones and `s` a KV head's share of all "
             "scores: "
             "`least + s R pool` entries, `pool = floor(b / beta)`, `least = b - pool`, `R` heads in the "
             "model."
             "\n\n"
             "Deviations: the total is exact, and what a full head cannot use goes to the others in "
             "proportion to `s`; the authors' code rounds each head by itself and caps it. Scores of "
             "query "
             "heads are summed over their KV head.\n\n"
             "Cost: O(R^2), for any n.",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES | WNW_FLAG_BLIND, .needs = needs},
    .allocate_model = allocate_model,
};
