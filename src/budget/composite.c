/* SPDX-License-Identifier: MIT */
/*
 * KVCompose's layer budgets: the k-th best entries of all heads of a layer together are composite token k,
 * and composite tokens of all layers compete for one budget. Paper: "KVCompose: Efficient Structured KV Cache
 * Compression with Composite Tokens" (arXiv 2509.05165).
 *
 *     S'(l,j,k) = k-th largest score of KV head j of layer l;
 *     I(l,k)    = mean over j of S'(l,j,k), falls with k;
 *     B         = floor((1 - r) L n),  N_l = how many I(l,.) are among the B largest
 *
 * Each head of layer l then keeps its N_l best, which need not be the same tokens. Equal I are ordered by
 * lower layer, then lower k. The sum of N_l is exactly B.
 * min_tokens is the number of composite tokens that every layer keeps, as far as B allows. The paper has no such
 * floor, so a layer may lose everything. layer0_max gives the first layer max over l of I(l,k). kvpress does so
 * because its cache takes its length from there. It is not in the paper. Entries that a scorer protects lead their
 * head's list. Cost O(L H n log n).
 */
#include "base/topk.h"
#include "method/count.h"
#include "policy/part.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum agg_head { HEAD_MEAN, HEAD_MAX };

struct opts {
    struct wnw__layer_opts layer;
    int32_t agg_head;
    int32_t layer0_max;
    int32_t min_tokens;
};

/* Longest head of layer i. */
static int32_t layer_length(const wnw_layer_problem *p, int32_t i)
{
    int32_t n = 0;
    for (int32_t ih = 0; ih < p->n_head_kv; ih++)
        n = p->n_entry[i * p->n_head_kv + ih] > n ? p->n_entry[i * p->n_head_kv + ih] : n;
    return n;
}

/* Entries of the layer's heads that stay regardless of their score. */
static int32_t layer_protected(const wnw_layer_problem *p, int32_t i)
{
    int32_t n = 0;
    for (int32_t ih = 0; ih < p->n_head_kv; ih++) {
        const int32_t of_head = wnw__row_protected(p, i * p->n_head_kv + ih);
        n = of_head > n ? of_head : n;
    }
    return n;
}

/* Scores of one head to out[n], best first, protected ones before them. A shorter head goes on with its
 * lowest score, so that the sequence still falls. */
static void sort_head(const wnw_layer_problem *p, int32_t i, int32_t ih, int32_t n, float *out)
{
    const int32_t n_entry = p->n_entry[i * p->n_head_kv + ih];
    const wnw_protected prot = wnw__protected_shrink(p->prot[i * p->n_head_kv + ih], p->budget);
    memcpy(out, p->score[i] + (int64_t)ih * p->row[i], (size_t)n_entry * sizeof *out);
    for (int32_t k = 0; k < prot.n_first; k++)
        out[k] = FLT_MAX;
    for (int32_t k = n_entry - prot.n_last; k < n_entry; k++)
        out[k] = FLT_MAX;
    wnw__sort_descending(out, n_entry);
    for (int32_t k = n_entry; k < n; k++)
        out[k] = n_entry > 0 ? out[n_entry - 1] : 0;
}

/* sorted[n_head_kv][n] -> I[n], which takes the place of the first row. */
static void compose(const struct opts *o, int32_t n_head_kv, int32_t n, float *sorted)
{
    for (int32_t k = 0; k < n; k++) {
        float best = sorted[k];
        double sum = 0;
        for (int32_t ih = 0; ih < n_head_kv; ih++) {
            const float s = sorted[(int64_t)ih * n + k];
            best = s > best ? s : best;
            sum += (double)s;
        }
        sorted[k] = o->agg_head == HEAD_MAX ? best : (float)(sum / n_head_kv);
    }
}

/* I of the first layer becomes the highest of all layers. */
static void raise_first(const wnw_layer_problem *p, float *pool)
{
    const int32_t n_first = layer_length(p, 0);
    const float *at = pool;
    for (int32_t i = 0; i < p->n_layer; i++) {
        const int32_t n = layer_length(p, i);
        for (int32_t k = 0; k < n && k < n_first; k++)
            pool[k] = at[k] > pool[k] ? at[k] : pool[k];
        at += n;
    }
}

static int allocate(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    const struct opts *o = opts;
    float *pool = p->scratch; /* I of all layers, one layer after the other */
    int64_t n_pool = 0;
    (void)warning;
    for (int32_t i = 0; i < p->n_layer; i++) {
        const int32_t n = n_keep[i] = layer_length(p, i);
        for (int32_t ih = 0; ih < p->n_head_kv; ih++)
            sort_head(p, i, ih, n, pool + n_pool + (int64_t)ih * n);
        compose(o, p->n_head_kv, n, pool + n_pool);
        n_pool += n;
    }
    if (o->layer0_max)
        raise_first(p, pool);

    const int32_t budget = wnw__count_together(p, n_keep, p->n_layer);
    const int32_t affordable = budget / p->n_layer;
    float *at = pool;
    for (int32_t i = 0; i < p->n_layer; i++) {
        const int32_t prot = layer_protected(p, i);
        int32_t sure = prot > o->min_tokens ? prot : o->min_tokens;
        sure = sure < affordable ? sure : affordable;
        for (int32_t k = 0; k < sure && k < n_keep[i]; k++)
            at[k] = INFINITY;
        at += n_keep[i];
    }
    struct wnw__cut cut = wnw__topk_cut(pool, n_pool, budget);
    for (int32_t i = 0; i < p->n_layer; i++) {
        const int32_t n = n_keep[i];
        n_keep[i] = 0;
        for (int32_t k = 0; k < n; k++)
            n_keep[i] += wnw__cut_take(&cut, *pool++);
    }
    return WNW_OK;
}

static const char *const agg_heads[] = {"mean", "max", NULL};

static const wnw_option options[] = {WNW_OPTION_ROUNDING,
                                     {.name = "agg_head",
                                      .help = "over the heads of a layer: mean, or the most demanding one",
                                      .type = WNW_OPT_ENUM,
                                      .offset = offsetof(struct opts, agg_head),
                                      .def = HEAD_MEAN,
                                      .choices = agg_heads},
                                     {.name = "layer0_max",
                                      .help = "the first layer counts as much as the best one (kvpress)",
                                      .type = WNW_OPT_BOOL,
                                      .offset = offsetof(struct opts, layer0_max)},
                                     {.name = "min_tokens",
                                      .help = "composite tokens that every layer keeps",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, min_tokens),
                                      .def = 1,
                                      .min = 0,
                                      .max = 65536},
                                     {0}};

const wnw_layer_budget wnw__layer_budget_composite = {
    .part = {WNW_LAYER_BUDGET_INIT, .name = "composite",
             .about =
                 "Layers compete with their heads' k-th best scores taken together; one length per layer.",
             .paper = "KVCompose, arXiv 2509.05165",
             .details =
                 "`I(l,k)` is the mean over KV heads of the `k`-th largest score of layer `l`; of all `L n` "
                 "values "
                 "the "
                 "`B = floor((1-r) L n)` largest count, and `N_l` of them are layer `l`'s. Equal values: "
                 "lower layer, "
                 "then lower `k`. Every head of a layer keeps its own `N_l` best, so the layer has one "
                 "length.\n\n"
                 "`min_tokens=1` keeps a layer from losing everything, which the paper allows "
                 "(`min_tokens=0`). "
                 "`layer0_max=1` is kvpress' rule that the first layer is never shorter than another.\n\n"
                 "`O(L H n log n)`.",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES | WNW_FLAG_ALL_LAYERS},
    .allocate = allocate,
};
