/* SPDX-License-Identifier: MIT */
/*
 * Head budgets from a second reading during calibration: a head keeps as many entries as it had among the best of the
 * model under KVzip (arXiv 2505.23416), on average over texts. KVzip reads a prompt twice to learn which entries are
 * needed. How they spread over the heads hardly depends on the prompt, so it is measured once per model
 * (calibrate/shares.c). So any scorer that orders the entries of one head gets most of what the second reading gives.
 * From no paper that we know.
 *
 * The profile has, for sizes f_1 > f_2 > ... of the model's entries, the share s_r(f_i) of head r's entries that are
 * among the best. Between sizes s_r is linear in log f, with s_r(1) = 1; below the smallest it is proportional to f.
 * Of N tokens read, p_r of whose entries are protected:
 *
 *     c_r = clamp(p_r + s_r(f) (N - p_r), p_r, n_r)
 *
 * for the f at which all counts add up to the size; whole numbers are by largest fraction, lower layer and head
 * first. n_r is what the head has: a cache that was compressed before is compressed as if it were whole, so that
 * compressing again changes nothing. Sizes below the smallest measured one are refused where they are asked for,
 * not where decoding gets there. No score is read. Cost O(R) for R heads, for any n.
 */
#include "budget/shares.h"

#include "method/count.h"
#include "policy/part.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

#include <math.h>

void wnw__shares_needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_PROFILE;
    out->profiles = 1u << WNW_PROFILE_SHARES;
}

struct problem {
    const wnw_layer_problem *p;
    const float *other; /* as in budget/shares.h */
};

/* s_r(f). */
static double share_of(const wnw_layer_problem *p, int32_t r, double f)
{
    const wnw_profile *of = p->profile;
    const int64_t n_row = (int64_t)of->model.n_layer * of->model.n_head_kv;
    const float *share = of->best_share + wnw__row_of_model(p, r);
    const int32_t n = of->n_best;
    int32_t i = 0;
    while (i < n && of->best_size[i] > f)
        i++;
    if (i == n)
        return (double)share[(n - 1) * n_row] * f / of->best_size[n - 1];
    const double above = i > 0 ? of->best_size[i - 1] : 1, a = i > 0 ? (double)share[(i - 1) * n_row] : 1;
    const double b = (double)share[i * n_row];
    return a + (b - a) * log(f / above) / log(of->best_size[i] / above);
}

static double count_of(const void *user, int32_t r, double removed)
{
    const struct problem *x = user;
    return wnw__look_count(x->p, r, share_of(x->p, x->other ? (int32_t)x->other[r] : r, 1 - removed));
}

/* Refuses a size below the smallest that was measured, if nothing of the prompt was dropped yet. */
static int check_size(const wnw_layer_problem *p, int64_t n_all, int64_t total)
{
    const double smallest = p->profile->best_size[p->profile->n_best - 1];
    if (n_all < (int64_t)p->n_layer * p->n_head_kv * p->n_past)
        return WNW_OK;
    if ((double)total >= smallest * (double)n_all * (1 - 1e-6) - 1)
        return WNW_OK;
    return wnw__fail(
        WNW_E_RANGE,
        "shares: the profile's head budgets were measured down to %.4g %% of the entries, and the "
        "size leaves %.4g %%: allow more, or take another head budget",
        100 * smallest, 100 * (double)total / (double)n_all);
}

int wnw__shares_allocate(const wnw_layer_problem *p, const float *other, int32_t *n_keep, float *scratch)
{
    const struct problem x = {p, other};
    const wnw_profile *of = p->profile;
    const int32_t n_row = p->n_layer * p->n_head_kv;
    int64_t n_all = 0;
    const struct wnw__count_rule rule = {
        .count = count_of, .user = &x, .n_entry = p->n_entry, .n_row = n_row};
    if (!of || !of->best_share || of->model.n_layer != p->n_layer_model ||
        of->model.n_head_kv != p->n_head_kv)
        return wnw__fail(WNW_E_MISMATCH, "shares needs a calibration profile of kind shares for this model");
    for (int32_t r = 0; r < n_row; r++)
        n_all += p->n_entry[r];
    const int32_t total = wnw__count_together(p, p->n_entry, n_row);
    WNW_TRY(check_size(p, n_all, total));
    wnw__count_rule_round(&rule, wnw__count_rule_find(&rule, total), 0, n_row, total, scratch, n_keep);
    return WNW_OK;
}

static int allocate_model(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, float *scratch,
                          char *warning)
{
    (void)opts;
    (void)warning;
    return wnw__shares_allocate(p, NULL, n_keep, scratch);
}

static const wnw_option options[] = {
    WNW_OPTION_LOOK_HEADER, WNW_OPTION_LOOK_SINKS, WNW_OPTION_LOOK_LAST, WNW_OPTION_LOOK_ROOM, {0}};

const wnw_head_budget wnw__head_budget_shares = {
    .part =
        {WNW_HEAD_BUDGET_INIT, .name = "shares",
         .about = "Heads keep as many entries as KVzip would leave them, which calibration has measured.",
         .paper = "after KVzip, arXiv 2505.23416",
         .details =
             "For some sizes `f` a profile of kind `shares` has the share `s_r(f)` of head r's entries that "
             "are among the best of the whole model under KVzip's scores, on average over texts (`winnow "
             "calibrate shares`; `--target kvcompose` measures KVCompose's). It is linear in `log f` between "
             "measured sizes. Of `N` tokens read, of which `p_r` are protected, head r keeps `p_r + s_r(f) "
             "(N "
             "- "
             "p_r)`, with the `f` at which all heads together come to the size. The scorer orders the "
             "entries "
             "of one head and has no part in this, so any does.\n\n"
             "With `last=32,room=0.3` what was asked at the end of a prompt stays, as far as it fits; `auto` "
             "does so "
             "where the question is known, with `room=0.5` where less than a quarter stays.\n\n"
             "The chat header stays in every head, as in KVzip. Sizes below the smallest measured one are "
             "refused; a cache that comes there while it decodes keeps the proportions of the smallest.\n\n"
             "From no paper that we know; docs/research/auto.md has what it does to answers.\n\n"
             "Cost: O(R) for R heads, for any n.",
         .options = options, .options_size = sizeof(struct wnw__look_opts),
         .flags = WNW_FLAG_RAGGED | WNW_FLAG_BLIND | WNW_FLAG_COMPETES, .needs = wnw__shares_needs,
         .keep = wnw__look_keep},
    .allocate_model = allocate_model,
};
