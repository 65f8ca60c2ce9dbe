/* SPDX-License-Identifier: MIT */
/*
 * CompressKV's layer budgets: layers whose output suffers more from eviction keep more. Paper: "CompressKV:
 * Semantic Retrieval Heads Know What Tokens are Not Important Before Generation" (arXiv 2508.02401). A
 * calibration gives every layer its share e_l of the error, sum 1. With average B, L layers, total = B L:
 *
 *     b_l = clamp(m + round(e_l (total - L m)), m, M)            halves to even
 *     sum b_l < total: one more entry for every layer below M, largest e first, pass after pass
 *     sum b_l > total: one entry less for every layer above m, smallest e first, pass after pass
 * so that the total is exact. m = 32 and M = 3 B are the released code's; the paper's text has lost them. M
 * is at most n, the length of the cache: the code lets a layer have more entries than n, and loses them.
 * Equal shares are ordered by layer number, where the code leaves the order open. Where B < m, m becomes
 * max(w + 1, B / 2) with a warning; the code exceeds the total there. Sliding-window layers take no part; the
 * others' shares are scaled. What a layer is too short for, because it was compressed before, goes to the others.
 */
#include "policy/part.h"
#include "profile/profile.h"
#include "winnow_calibrate.h"

#include <math.h>

struct opts {
    struct wnw__layer_opts common;
    int32_t min;
    double max_factor;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_PROFILE;
    out->profiles = 1u << WNW_PROFILE_LAYERS;
}

static double share_of(const wnw_layer_problem *p, int32_t i)
{
    return p->profile->layer_share[p->il[i]];
}

/* The layer that follows `last` (-1: the first) in the order of shares, among those whose count differs from
 * `bound`; -1 at the end. Equal shares: lower layer first. */
static int32_t next_layer(const wnw_layer_problem *p, const int32_t *b, int32_t bound, bool descending,
                          int32_t last)
{
    int32_t best = -1;
    for (int32_t i = 0; i < p->n_layer; i++) {
        if (b[i] == bound)
            continue;
        const double e = descending ? -share_of(p, i) : share_of(p, i);
        if (last >= 0) {
            const double before = descending ? -share_of(p, last) : share_of(p, last);
            if (e < before || (e == before && i <= last))
                continue;
        }
        if (best < 0 || e < (descending ? -share_of(p, best) : share_of(p, best)))
            best = i;
    }
    return best;
}

/* Hands out diff entries (takes them back where it is negative), one per layer and pass, until every layer
 * is at `bound`. */
static int64_t place_rest(const wnw_layer_problem *p, int32_t *b, int64_t diff, int32_t bound)
{
    const int32_t step = diff > 0 ? 1 : -1;
    int64_t left = diff > 0 ? diff : -diff;
    while (left > 0) {
        int32_t n_open = 0, room = INT32_MAX;
        for (int32_t i = 0; i < p->n_layer; i++)
            if (b[i] != bound) {
                const int32_t r = (bound - b[i]) * step;
                n_open++;
                room = r < room ? r : room;
            }
        if (n_open == 0)
            break;
        /* Several whole passes at once: as many as no layer exceeds the bound in. */
        const int64_t whole = left / n_open < room ? left / n_open : room;
        for (int32_t i = 0; i < p->n_layer; i++)
            if (b[i] != bound)
                b[i] += (int32_t)whole * step;
        left -= whole * n_open;
        if (whole > 0)
            continue;
        for (int32_t i = -1; left > 0 && (i = next_layer(p, b, bound, step > 0, i)) >= 0; left--)
            b[i] += step;
    }
    return left * step;
}

/* The fewest entries of a layer: as the option says, where the budget and the protected entries allow that. */
static int32_t least_of_layer(const struct opts *o, const wnw_layer_problem *p, char *warning)
{
    const int32_t protects = p->n_protected + 1;
    int32_t m = o->min;
    if (p->budget < m) {
        m = protects > p->budget / 2 ? protects : p->budget / 2;
        m = m < p->budget ? m : p->budget;
        wnw__warn(warning,
                  "a budget of %d is below the %d entries that error_aware gives every layer: it gives "
                  "at least %d",
                  p->budget, o->min, m);
    } else if (m <= p->n_protected) {
        m = protects < p->budget ? protects : p->budget;
    }
    return m;
}

static int allocate(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    const struct opts *o = opts;
    const int64_t total = (int64_t)p->budget * p->n_layer;
    double sum = 0;
    int64_t given = 0;
    if (!p->profile || !p->profile->layer_share || p->profile->model.n_layer != p->n_layer_model)
        return wnw__fail(WNW_E_MISMATCH, "error_aware needs a calibration profile of kind layers for this "
                                         "model; +uniform does without");
    const int32_t m = least_of_layer(o, p, warning);
    const double most = floor(o->max_factor * p->budget);
    const int32_t max = most < p->n ? (int32_t)most : p->n;
    for (int32_t i = 0; i < p->n_layer; i++)
        sum += share_of(p, i);
    for (int32_t i = 0; i < p->n_layer; i++) {
        const double e = sum > 0 ? share_of(p, i) / sum : 1.0 / p->n_layer;
        const double b = m + nearbyint(e * (double)(total - (int64_t)p->n_layer * m));
        n_keep[i] = b > max ? max : (int32_t)b;
        if (b < m)
            n_keep[i] = m;
        given += n_keep[i];
    }
    place_rest(p, n_keep, total - given, total > given ? max : m);
    return WNW_OK;
}

static const wnw_option options[] = {WNW_OPTION_ROUNDING,
                                     {.name = "min",
                                      .help = "fewest entries of a layer, the window included",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, min),
                                      .def = 32,
                                      .min = 1,
                                      .max = 1000000},
                                     {.name = "max_factor",
                                      .help = "most entries of a layer, as a multiple of the average",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct opts, max_factor),
                                      .def = 3,
                                      .min = 1,
                                      .max = 1000},
                                     {0}};

static const char details[] =
    "With e_l the layer's share of the calibrated error, m = `min`, M = min(`max_factor` B, n): `b_l = "
    "clamp(m + "
    "round(e_l (B L - L m)), m, M)`; what is missing goes one entry a layer and pass to the largest e, what "
    "is "
    "too much comes from the smallest, so that the total is B L.\n\n"
    "The shares come from a profile of kind `layers`; there is no budget without one (use `+uniform`). Below "
    "m entries on average every layer gets at least max(w + 1, B / 2), with a warning; the released code "
    "exceeds the total there, and loses what a share gives a layer above n. Sliding-window layers take no "
    "part.\n\n"
    "Cost O(L^2), once.";

const wnw_layer_budget wnw__layer_budget_error_aware = {
    .part = {WNW_LAYER_BUDGET_INIT, .name = "error_aware",
             .about = "More entries for layers whose output suffers more from eviction, as calibrated.",
             .paper = "CompressKV, arXiv 2508.02401", .details = details, .options = options,
             .options_size = sizeof(struct opts), .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES,
             .needs = needs},
    .allocate = allocate,
};
