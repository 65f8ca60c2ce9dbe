/* SPDX-License-Identifier: MIT */
/*
 * PyramidKV: counts that fall linearly from the first layer to the last. Paper: "PyramidKV: Dynamic KV Cache
 * Compression based on Pyramidal Information Funneling" (arXiv 2406.02069).
 *
 * With w protected tokens, C = B - w others to choose, S entries, L layers:
 *     min = floor(C / beta), max = 2 C - min;   max > S - w:  max = S - w, min = 2 C - max
 *     n_l = max - l (max - min) / (L - 1),      B_l = n_l + w
 *
 * exact    n_l is floored and the largest fractions are rounded up until the sum is C L (default)
 * paper    the step (max - min) / (L - 1) is floored as in the paper's code: the sum exceeds C L a little
 * factory  the authors' later collection of methods: as paper, but uniform where S < 2 C
 * kvpress  C = S (1 - r) with the window inside the count, rounded half to even; uniform where min < w
 */
#include "policy/part.h"

#include <math.h>

enum form { FORM_EXACT, FORM_PAPER, FORM_KVPRESS, FORM_FACTORY };

struct opts {
    struct wnw__layer_opts common;
    int32_t beta;
    int32_t form;
};

static void allocate_kvpress(const struct opts *o, const wnw_layer_problem *p, int32_t *n_keep)
{
    const double n = p->n, w = p->n_protected, c = p->mean;
    double min = c / o->beta;
    double max = c * 2 - min;
    if (max >= n - w) {
        max = n - w;
        min = c * 2 - max;
    }
    const bool usable = p->n_layer > 1 && n >= max && max >= min && min >= w;
    for (int32_t l = 0; l < p->n_layer; l++) {
        const double x = usable ? max - l * ((max - min) / (p->n_layer - 1)) : c;
        n_keep[l] = (int32_t)nearbyint(x);
    }
}

/* Counts n_l in whole numbers over the denominator L - 1, because a rounded real step could floor the last layer one too low.
 * Returns their sum. */
static int64_t fall(const struct opts *o, int32_t n_layer, int64_t max, int64_t min, int32_t *n_keep)
{
    const int64_t n_step = n_layer - 1;
    int64_t sum = 0;
    for (int32_t l = 0; l < n_layer; l++) {
        int64_t down = 0;
        if (n_step > 0 && o->form != FORM_EXACT)
            down = l * ((max - min) / n_step);
        else if (n_step > 0)
            down = (l * (max - min) + n_step - 1) / n_step;
        n_keep[l] = (int32_t)(max - down);
        sum += n_keep[l];
    }
    return sum;
}

/* Rounds the largest fractions up until `missing` entries are handed out: with f(l) = (-l (max - min)) mod (L - 1), it serves
 * f = L-2 .. 1 in turn. */
static void round_up(int32_t n_layer, int64_t range, int64_t missing, int32_t *n_keep)
{
    const int64_t n_step = n_layer - 1;
    for (int64_t f = n_step - 1; f > 0 && missing > 0; f--)
        for (int32_t l = 0; l < n_layer && missing > 0; l++) {
            const int64_t rest = (l * range) % n_step;
            if ((rest ? n_step - rest : 0) == f) {
                n_keep[l]++;
                missing--;
            }
        }
}

static int allocate(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    (void)warning;
    const struct opts *o = opts;
    if (o->form == FORM_KVPRESS) {
        allocate_kvpress(o, p, n_keep);
        return WNW_OK;
    }
    const int64_t c = p->budget - p->n_protected;
    const int64_t room = p->n - p->n_protected;
    int64_t min = c / o->beta;
    int64_t max = 2 * c - min;
    if (max >= room) {
        max = room;
        min = 2 * c - max;
    }
    if (p->n_layer == 1 || (o->form == FORM_FACTORY && p->n < 2 * c))
        min = max = c;
    const int64_t sum = fall(o, p->n_layer, max, min, n_keep);
    if (o->form == FORM_EXACT)
        round_up(p->n_layer, max - min, c * p->n_layer - sum, n_keep);
    for (int32_t l = 0; l < p->n_layer; l++)
        n_keep[l] += p->n_protected;
    return WNW_OK;
}

static const char *const forms[] = {"exact", "paper", "kvpress", "factory", NULL};

static const wnw_option options[] = {
    WNW_OPTION_ROUNDING,
    {.name = "beta",
     .help = "the last layer chooses 1/beta of the average",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, beta),
     .def = 20,
     .min = 1,
     .max = 1000},
    {.name = "form",
     .help = "exact: the total is exact; paper: floored step; kvpress: window inside the count; factory: "
             "paper, but uniform for short prompts",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, form),
     .def = FORM_EXACT,
     .choices = forms},
    {0}};

const wnw_layer_budget wnw__layer_budget_pyramid = {
    .part = {WNW_LAYER_BUDGET_INIT, .name = "pyramid",
             .about = "Counts that fall linearly from the first layer to the last.",
             .paper = "PyramidKV, arXiv 2406.02069",
             .details = "With `C = B - w` entries to choose besides the `w` protected ones, `S` entries and "
                        "`L` layers: `min = floor(C / beta)`, `max = 2 C - min` (if that exceeds `S - w`, "
                        "`max = S - w` and `min = 2 C - max`), `n_l = max - l (max - min) / (L - 1)`, `B_l = "
                        "n_l + w`.\n\nDeviations by `form`: `exact` hands out what flooring leaves by largest"
                        " fraction, so that the total is exact; `paper` floors the step, as the paper's code "
                        "does, and keeps a little more than asked; `factory` is the authors' later code, "
                        "uniform where S < 2 C; `kvpress` counts the window inside and rounds half to even.",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES},
    .allocate = allocate,
};
