/* SPDX-License-Identifier: MIT */
/*
 * LU-KV: heads whose scores tell well what will be needed can do with few entries, others keep more, as
 * calibrated. Paper: "Predicting Future Utility: Global Combinatorial Optimization for Task-Agnostic KV Cache
 * Eviction" (arXiv 2602.08585). A calibration with the same scorer has found, for shares rho of the model's
 * entries that are removed, which share keep_r(rho) of its entries head r keeps (calibrate/curves.c); between
 * the shares that were measured it is linear, with keep_r(0) = 1 and keep_r(1) = 0.
 *
 *     c_r = clamp(n_r keep_r(rho), least_r, n_r)          least_r = its protected entries, at least 1
 *
 * form=exact finds the rho at which the c_r add up to the size; form=nearest takes the measured rho nearest to
 * the ratio, as kvpress does, and rounds the sum of each layer. Whole numbers are by largest fraction, lower
 * layer and head first. Cost O(R^2) for R heads, for any n.
 */
#include "method/count.h"
#include "policy/part.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

#include <math.h>
#include <string.h>

enum form { FORM_EXACT, FORM_NEAREST };

struct opts {
    int32_t sinks, last;
    int32_t form;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_PROFILE;
    out->profiles = 1u << WNW_PROFILE_CURVES;
}

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct opts *o = opts;
    (void)p;
    out->n_first = o->sinks > out->n_first ? o->sinks : out->n_first;
    out->n_last = o->last > out->n_last ? o->last : out->n_last;
}

/* What row r keeps at measured ratio i, with the ends before the first and after the last. */
static double measured(const wnw_layer_problem *p, int32_t r, int32_t i)
{
    const wnw_profile *of = p->profile;
    if (i < 0)
        return 1;
    if (i >= of->n_curve)
        return 0;
    return (double)
        of->curve_keep[(int64_t)i * of->model.n_layer * of->model.n_head_kv + wnw__row_of_model(p, r)];
}

/* The share of its entries that row r keeps. */
static double share_of(const wnw_layer_problem *p, int32_t r, double rho)
{
    const double *ratio = p->profile->curve_ratio;
    const int32_t n = p->profile->n_curve;
    int32_t i = 0;
    while (i < n && ratio[i] < rho)
        i++;
    const double from = i > 0 ? ratio[i - 1] : 0, to = i < n ? ratio[i] : 1;
    const double a = measured(p, r, i - 1), b = measured(p, r, i);
    return a + (b - a) * (rho - from) / (to - from);
}

static int32_t least_of(const wnw_layer_problem *p, int32_t r)
{
    const int32_t n = wnw__row_protected(p, r);
    return n > 0 || p->n_entry[r] == 0 ? n : 1;
}

static double count_of(const void *user, int32_t r, double rho)
{
    const wnw_layer_problem *p = user;
    const double c = share_of(p, r, rho) * p->n_entry[r], least = least_of(p, r);
    if (c < least)
        return least;
    if (c > p->n_entry[r])
        return p->n_entry[r];
    return c;
}

static int check(const wnw_layer_problem *p)
{
    const wnw_profile *of = p->profile;
    if (of && of->curve_keep && of->model.n_layer == p->n_layer_model && of->model.n_head_kv == p->n_head_kv)
        return WNW_OK;
    return wnw__fail(WNW_E_MISMATCH, "lukv needs a calibration profile of kind curves for this model");
}

static int allocate_model(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, float *scratch,
                          char *warning)
{
    const struct opts *o = opts;
    const int32_t n_row = p->n_layer * p->n_head_kv, total = wnw__count_together(p, p->n_entry, n_row);
    const struct wnw__count_rule rule = {.count = count_of, .user = p, .n_entry = p->n_entry, .n_row = n_row};
    int64_t n_all = 0;
    WNW_TRY(check(p));
    if (*p->profile->curve_scorer && p->scorer && strcmp(p->profile->curve_scorer, p->scorer) != 0)
        wnw__warn(warning, "the profile's budget curves are for scores of %.40s, not %.40s",
                  p->profile->curve_scorer, p->scorer);
    for (int32_t r = 0; r < n_row; r++)
        n_all += p->n_entry[r];
    if (o->form == FORM_EXACT) {
        wnw__count_rule_round(&rule, wnw__count_rule_find(&rule, total), 0, n_row, total, scratch, n_keep);
        return WNW_OK;
    }
    const double asked = n_all > 0 ? 1 - (double)total / (double)n_all : 0, *ratio = p->profile->curve_ratio;
    int32_t near = 0;
    for (int32_t i = 1; i < p->profile->n_curve; i++)
        near = fabs(ratio[i] - asked) < fabs(ratio[near] - asked) ? i : near;
    for (int32_t first = 0; first < n_row; first += p->n_head_kv) {
        double sum = 0;
        for (int32_t ih = 0; ih < p->n_head_kv; ih++)
            sum += share_of(p, first + ih, ratio[near]) * p->n_entry[first + ih];
        wnw__count_rule_round(&rule, ratio[near], first, p->n_head_kv, (int64_t)nearbyint(sum), scratch,
                              n_keep);
    }
    return WNW_OK;
}

static const char *const forms[] = {"exact", "nearest", NULL};

static const wnw_option options[] = {
    {.name = "sinks",
     .help = "first entries that stay, besides the scorer's own",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, sinks),
     .def = 0,
     .min = 0,
     .max = 65536},
    {.name = "last",
     .help = "last entries that stay, besides the scorer's own",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, last),
     .def = 1,
     .min = 0,
     .max = 65536},
    {.name = "form",
     .help =
         "exact: the size is kept to the entry; nearest: the measured ratio nearest to it, as kvpress does",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, form),
     .def = FORM_EXACT,
     .choices = forms},
    {0}};

const wnw_head_budget wnw__head_budget_lukv = {
    .part =
        {WNW_HEAD_BUDGET_INIT, .name = "lukv",
         .about = "Heads keep what calibrated curves say for the size: more where scores foretell badly what "
                  "is needed.",
         .paper = "LU-KV, arXiv 2602.08585",
         .details =
             "Head r of n entries keeps `clamp(n keep_r(rho), least, n)`, where `keep_r(rho)` is its curve "
             "from the profile (`winnow calibrate curves` with the same scorer), linear between measured "
             "shares rho. `form=exact` takes the rho at which all heads together come to the size; `least` "
             "is the number of protected entries, at least 1. Curves of another scorer than the policy's are "
             "used with "
             "a warning.\n\n"
             "Deviations: kvpress takes the nearest percent and rounds each layer by itself, so that the "
             "total is off by up to half an entry per layer (`form=nearest`).\n\n"
             "Cost: O(R^2) for R heads, for any n.",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES | WNW_FLAG_BLIND, .needs = needs, .keep = keep},
    .allocate_model = allocate_model,
};
