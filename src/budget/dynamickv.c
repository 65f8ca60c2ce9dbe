/* SPDX-License-Identifier: MIT */
/*
 * DynamicKV: all layers compete for one budget with their scores. Paper: "DynamicKV: Task-Aware Adaptive KV
 * Cache Compression for Long Context LLMs" (arXiv 2412.14838). C = B - w entries are to be chosen per layer,
 * in H heads. A layer's part is the number of its entries among the H C L best scores of all layers.
 *
 * exact:    in proportion to that number, at most r_max C and the layer's entries. The total is exact
 *           (default).
 *
 * cascade:  the authors' code: every layer keeps n0 = min(r_max C, S - w) at first. Counts change after each
 *           `every` layers (and at the last). With m layers seen, n_i entries of layer i are among the H C m
 *           best, and c_i = floor(n_i / m). Then:
 *               b_i = trunc(n0 c_i / sum c), then floor(b_i / r) with r = sum b / (C L);
 *           The last layer takes the rest of C L. Then every layer shrinks to b_i. Counts never grow again: a
 *           layer has the smallest b_i of all its steps, so the total can stay below what was asked for.
 *
 * The authors' heads are query heads with repeated keys; here they are KV heads. Protected entries take no
 * part. Equal scores are ordered by lower layer, head and position. Cost O(n) per head and step.
 */
#include "base/topk.h"
#include "method/count.h"
#include "policy/part.h"

#include <math.h>

enum form { FORM_EXACT, FORM_CASCADE };

struct opts {
    struct wnw__layer_opts common;
    double r_max;
    int32_t every;
    int32_t form;
};

/* The scores of one head's candidates: of its entries that are not protected. */
static const float *candidates(const wnw_layer_problem *p, int32_t l, int32_t h, int32_t *n)
{
    const wnw_protected prot = p->prot[l * p->n_head_kv + h];
    *n = p->n_entry[l * p->n_head_kv + h] - prot.n_first - prot.n_last;
    return p->score[l] + (int64_t)h * p->row[l] + prot.n_first;
}

/* The cut after the k best candidates of the layers 0 .. m - 1: wnw__topk_cut over several arrays. */
static struct wnw__cut joint_cut(const wnw_layer_problem *p, int32_t m, int64_t k)
{
    struct wnw__cut_search s = {.shift = 24, .left = k};
    do
        for (int32_t l = 0; l < m; l++)
            for (int32_t h = 0; h < p->n_head_kv; h++) {
                int32_t n;
                const float *score = candidates(p, l, h, &n);
                wnw__cut_count(&s, score, n);
            }
    while (wnw__cut_next(&s));
    return (struct wnw__cut){.key = s.key, .n_tie = s.left};
}

/* number[m] = candidates of each layer among the k best; returns k, at most the number of all candidates. */
static int64_t count_best(const wnw_layer_problem *p, int32_t m, int64_t k, double *number)
{
    int64_t all = 0;
    for (int32_t l = 0; l < m; l++)
        for (int32_t h = 0; h < p->n_head_kv; h++) {
            int32_t n;
            candidates(p, l, h, &n);
            all += n;
        }
    k = k < all ? k : all;
    struct wnw__cut cut = k > 0 ? joint_cut(p, m, k) : wnw__topk_cut(NULL, 0, 0);
    for (int32_t l = 0; l < m; l++) {
        number[l] = 0;
        for (int32_t h = 0; h < p->n_head_kv; h++) {
            int32_t n;
            const float *score = candidates(p, l, h, &n);
            for (int32_t i = 0; i < n; i++)
                number[l] += wnw__cut_take(&cut, score[i]);
        }
    }
    return k;
}

static double sum_of(const double *x, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

/* One step of the cascade over the layers 0 .. m - 1. */
static void shrink(const wnw_layer_problem *p, int32_t m, int32_t c, int32_t n0, int32_t *n_keep)
{
    double *b = p->work;
    const double total = (double)c * p->n_layer;
    const int64_t k = count_best(p, m, (int64_t)c * p->n_head_kv * m, b);
    for (int32_t i = 0; i < m; i++)
        b[i] = floor(b[i] / m);
    if (m == p->n_layer)
        b[m - 1] += floor((double)k / m) - sum_of(b, m);
    const double sum = sum_of(b, m);
    if (!(sum > 0)) { /* too few candidates to rank layers: equal parts in the end */
        for (int32_t i = 0; i < m && m == p->n_layer; i++)
            n_keep[i] = n_keep[i] < c ? n_keep[i] : c;
        return;
    }
    for (int32_t i = 0; i < m; i++)
        b[i] = trunc(n0 * b[i] / sum);
    const double r = sum_of(b, m) / total;
    if (!(r > 0))
        return;
    for (int32_t i = 0; i < m; i++)
        b[i] = floor(b[i] / r);
    b[m - 1] += total - sum_of(b, m);
    for (int32_t i = 0; i < m; i++)
        if (b[i] < n_keep[i])
            n_keep[i] = b[i] > 0 ? (int32_t)b[i] : 0;
}

static int allocate(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, char *warning)
{
    const struct opts *o = opts;
    (void)warning;
    const int32_t c = p->budget - p->n_protected, room = p->n - p->n_protected, n_layer = p->n_layer;
    const int32_t most = wnw__round_count(o->r_max * c, p->rounding), n0 = most < room ? most : room;
    if (o->form == FORM_EXACT) {
        count_best(p, n_layer, (int64_t)c * p->n_head_kv * n_layer, p->work);
        wnw__share_out(p->work, n_layer, (int64_t)c * n_layer, n0, n_keep);
    } else {
        for (int32_t l = 0; l < n_layer; l++)
            n_keep[l] = n0;
        for (int32_t m = 1; m <= n_layer && c > 0; m++)
            if (m % o->every == 0 || m == n_layer)
                shrink(p, m, c, n0, n_keep);
    }
    for (int32_t l = 0; l < n_layer; l++)
        n_keep[l] += p->n_protected;
    return WNW_OK;
}

static const char *const forms[] = {"exact", "cascade", NULL};

static const wnw_option options[] = {
    WNW_OPTION_ROUNDING,
    {.name = "r_max",
     .help = "a layer chooses at most so many times the average",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, r_max),
     .def = 10,
     .min = 1,
     .max = 1000},
    {.name = "every",
     .help = "form=cascade: layers between two steps",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, every),
     .def = 4,
     .min = 1,
     .max = 1000},
    {.name = "form",
     .help = "exact: one allocation, exact total; cascade: as the authors' code, while layers come",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, form),
     .def = FORM_EXACT,
     .choices = forms},
    {0}};

const wnw_layer_budget wnw__layer_budget_dynamickv = {
    .part =
        {WNW_LAYER_BUDGET_INIT, .name = "dynamickv",
         .about = "All layers compete for one budget with their scores.",
         .paper = "DynamicKV, arXiv 2412.14838",
         .details =
             "With `C = B - w`, a layer's part is in proportion to the number of its entries among the "
             "`H C L` best of all layers, at most `r_max C`.\n\n"
             "`cascade` follows the authors' code, which re-shares every 4 layers while the prompt goes "
             "through them and can end below the size asked for; where the number of layers is no "
             "multiple, the last layer is a step too. The default allocates once, with an exact total.\n\n"
             "Cost O(n) per head and step.",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES | WNW_FLAG_ALL_LAYERS},
    .allocate = allocate,
};
