/* SPDX-License-Identifier: MIT */
/*
 * A ratio for every layer, given by hand: after kvpress' PerLayerCompressionPress. r_l is removed of layer l. There are
 * n tokens read, L layers, and a size of B entries per head on average. Of these w are protected.
 *
 *     size   n_l = w + (B - w) L (1 - r_l) / sum over layers of (1 - r_m), at most n.
 *            What a full layer cannot hold goes to the others in proportion. The sum is exactly B L (default).
 *     list   n_l = floor((1 - r_l) n) of the n tokens read, at least w.
 *            The list alone says how much stays (kvpress).
 *
 * One number counts for all layers. Layers on which a policy does not act, as those with a sliding window, have numbers
 * too, which are not used. No score is read. Cost O(L).
 */
#include "method/count.h"
#include "policy/part.h"

enum form { FORM_SIZE, FORM_LIST };

struct opts {
    struct wnw__layer_opts common;
    int32_t form;
    wnw_list ratios;
};

/* The share that layer i of those that take part keeps. */
static double share_of(const struct opts *o, const wnw_layer_problem *p, int32_t i)
{
    return 1 - o->ratios.x[o->ratios.n == 1 ? 0 : p->il[i]];
}

static void by_size(const struct opts *o, const wnw_layer_problem *p, int32_t *n_keep)
{
    const int64_t chosen = (int64_t)(p->budget - p->n_protected) * p->n_layer;
    for (int32_t i = 0; i < p->n_layer; i++)
        p->work[i] = share_of(o, p, i);
    wnw__share_out(p->work, p->n_layer, chosen, p->n - p->n_protected, n_keep);
    for (int32_t i = 0; i < p->n_layer; i++)
        n_keep[i] += p->n_protected;
}

static void by_list(const struct opts *o, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    double sum = 0;
    for (int32_t i = 0; i < p->n_layer; i++) {
        const int32_t n = wnw__round_count(p->n_past * share_of(o, p, i), p->rounding);
        const int32_t least = n < p->n_protected ? p->n_protected : n;
        n_keep[i] = least < p->n ? least : p->n;
        sum += n_keep[i];
    }
    wnw__warn(warning,
              "layers: the list keeps %.4g entries per head, whatever the size; form=size keeps to it",
              sum / p->n_layer);
}

static int allocate(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    const struct opts *o = opts;
    if (o->ratios.n != 1 && o->ratios.n != p->n_layer_model)
        return wnw__fail(
            WNW_E_MISMATCH,
            "layers: %d ratios are given and the model has %d layers; give one for each, or one for all",
            (int)o->ratios.n, (int)p->n_layer_model);
    if (o->form == FORM_SIZE)
        by_size(o, p, n_keep);
    else
        by_list(o, p, n_keep, warning);
    return WNW_OK;
}

static const char *const forms[] = {"size", "list", NULL};

static const wnw_option options[] = {
    WNW_OPTION_ROUNDING,
    {.name = "ratios",
     .help = "share that is removed of each layer of the model, from the first to the last; or one for all",
     .type = WNW_OPT_LIST,
     .offset = offsetof(struct opts, ratios),
     .def = 0.5,
     .min = 0,
     .max = 1},
    {.name = "form",
     .help = "size: scaled so that the size is met; list: the ratios as they are, and the size follows",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, form),
     .def = FORM_SIZE,
     .choices = forms},
    {0}};

const wnw_layer_budget wnw__layer_budget_layers = {
    .part = {WNW_LAYER_BUDGET_INIT, .name = "layers", .about = "A ratio for every layer, given by hand.",
             .paper = "after kvpress' PerLayerCompressionPress",
             .details =
                 "`r_l` of layer `l` is removed, of `B` entries per head on average, `w` of them protected: "
                 "`n_l = w + (B - w) L (1 - r_l) / sum_m (1 - r_m)`, at most all entries. What a full layer "
                 "cannot hold goes to the others in proportion, so the total is exact. `form=list` keeps "
                 "`floor((1 - r_l) n)` of the `n` tokens read, as kvpress does, whatever the size is.\n\n"
                 "For example `snapkv+layers:ratios=0/0.5/0.75/...`, with as many numbers as the model has "
                 "layers. A file with the numbers in one line is given as `layers:ratios=$(cat FILE)`.\n\n"
                 "Cost: O(L).",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES},
    .allocate = allocate,
};
