/* SPDX-License-Identifier: MIT */
/*
 * CriticalKV: what an entry adds to the output of a head is a_i (v_i W_O), so attention alone is not its
 * importance. Paper: "CriticalKV: Optimizing KV Cache Eviction from an Output Perturbation Perspective"
 * (arXiv 2502.03805, algorithm 1). Of b entries of a head, protected ones included:
 *
 *     stage 1   the floor(alpha b) best by attention A_i; protected entries and those that the head budget
 *               promised are the first of them;
 *     stage 2   of the rest the best by (A_i + eps) nu_i,   nu_i = ||v_i W_O|| of the group's query heads
 *
 * gqa=joint keeps the query heads of a group separate until then, (1 / G) sum over g of (A_ig + eps) nu_ig, which is
 * the bound of the paper's theorem for the group; the released code multiplies means.
 *
 * alpha = 1 is plain top-k. eps does not scale with n: 1e-4 is a tenth of the mean attention of 1000 entries
 * and ten times that of 100000; eps_rel = x means eps = x / n. The paper's norm is L1; L2 costs a
 * hundredth of the work, and answers alike in the paper (appendix C.3), so it is the default here. It is another
 * choice: up to 16 % of a head's entries differ. Over the query heads of a group L1 norms are averaged, and L2
 * norms by their root mean square. Sinks have huge attention
 * and tiny values, so that only stage 1 would hold them; the first `sinks` entries (4; 0 = as in the paper)
 * are therefore kept in any case, unless protected and promised entries leave no room. kvpress marks stage 1
 * with a sentinel score and lets the window compete; here the window is kept first, which gives the same sets
 * except that a window which does not fit into stage 1 is still kept. Post-norms after the output projection
 * are not seen by nu. Observes projected value norms. Cost O(n).
 */
#include "base/topk.h"
#include "method/count.h"
#include "policy/part.h"

enum gqa { GQA_MEAN, GQA_JOINT };

struct opts {
    double alpha;
    double eps;
    double eps_rel;
    int32_t norm;
    int32_t sinks;
    int32_t gqa;
};

static uint32_t flags_of(const void *opts)
{
    return ((const struct opts *)opts)->gqa == GQA_JOINT ? WNW_FLAG_QUERY_HEADS : 0;
}

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_PROJ_NORM;
}

/* Warns where protected entries and sinks fill stage 1, so that attention alone chooses nothing. */
static void advise(const void *opts, const wnw_protected *prot, int32_t budget, wnw_rounding rounding,
                   char *warning)
{
    const struct opts *o = opts;
    const int32_t by_attention = wnw__round_count(budget * o->alpha, rounding);
    const int32_t sinks = o->sinks > prot->n_first ? o->sinks : prot->n_first;
    if (o->alpha > 0 && by_attention <= sinks + prot->n_last)
        wnw__warn(
            warning,
            "critical: %d of %d entries per head are chosen by attention alone, and the first %d and the "
            "last %d take all of these places: the rest goes by attention times value norm",
            by_attention, budget, sinks, prot->n_last);
}

/* Scratch holds the scores of the entries that are not marked yet. */
static size_t scratch_size(const void *opts, int32_t n)
{
    (void)opts;
    return (size_t)n;
}

/* keep[i] = 1 for entries that are kept before stage 1: protected ones, those that the head budget promised,
 * and sinks while there is room. Returns their number. */
static int32_t mark_sure(const struct opts *o, const wnw_select_problem *p, int32_t *keep)
{
    const int32_t first = p->prot.n_first, end = p->n - p->prot.n_last;
    struct wnw__cut safe = wnw__topk_cut(p->score + first, end - first, p->n_safe);
    int32_t n_sure = 0;
    for (int32_t i = 0; i < p->n; i++) {
        keep[i] = i < first || i >= end || wnw__cut_take(&safe, p->score[i]);
        n_sure += keep[i];
    }
    for (int32_t i = 0; i < o->sinks && i < p->n && n_sure < p->n_keep; i++) {
        n_sure += !keep[i];
        keep[i] = 1;
    }
    return n_sure;
}

/* The factors of stage 2 for one KV head: rows of scores and of norms, one for the whole group or one per
 * query head. */
struct product {
    const float *score, *nu;
    int32_t n_row, score_row, nu_row; /* number of rows; floats from one row to the next */
    float eps;
};

static struct product product_of(const struct opts *o, const wnw_select_problem *p, const float *nu)
{
    const int64_t n = p->obs->n;
    const int32_t group = o->gqa == GQA_JOINT ? p->obs->n_head / p->n_head_kv : 1;
    const int64_t first = (int64_t)p->ih * group;
    return (struct product){.score = o->gqa == GQA_JOINT ? p->head_score + first * p->row : p->score,
                            .nu = nu + first * n,
                            .n_row = group,
                            .score_row = p->row,
                            .nu_row = p->obs->n,
                            .eps = (float)(o->eps_rel > 0 ? o->eps_rel / p->n : o->eps)};
}

static float product_at(const struct product *x, int32_t i)
{
    float sum = (x->score[i] + x->eps) * x->nu[i];
    for (int32_t g = 1; g < x->n_row; g++)
        sum += (x->score[(int64_t)g * x->score_row + i] + x->eps) * x->nu[(int64_t)g * x->nu_row + i];
    return sum;
}

/* Marks the k best of the entries that are not marked: by score, or by the product. */
static void mark_best(const wnw_select_problem *p, const struct product *x, int32_t k, int32_t *keep,
                      float *value)
{
    int32_t m = 0;
    for (int32_t i = 0; i < p->n; i++)
        if (!keep[i])
            value[m++] = x ? product_at(x, i) : p->score[i];
    struct wnw__cut cut = wnw__topk_cut(value, m, k);
    m = 0;
    for (int32_t i = 0; i < p->n; i++)
        if (!keep[i])
            keep[i] = wnw__cut_take(&cut, value[m++]);
}

static int32_t select_entries(const void *opts, const wnw_select_problem *p, int32_t *keep, float *scratch)
{
    const struct opts *o = opts;
    const wnw_proj_norm norm = (wnw_proj_norm)o->norm;
    const float *nu =
        o->gqa == GQA_JOINT ? p->obs->head_proj_norm(p->obs, norm) : p->obs->proj_norm(p->obs, norm);
    if (!nu)
        return WNW_E_NOMEM; /* proj_norm has set the error text */
    const struct product product = product_of(o, p, nu);
    const int32_t n_sure = mark_sure(o, p, keep);
    const int32_t by_attention = wnw__round_count(p->n_keep * o->alpha, p->rounding);
    const int32_t n_first = by_attention > n_sure ? by_attention : n_sure;
    mark_best(p, NULL, n_first - n_sure, keep, scratch);
    mark_best(p, &product, p->n_keep - n_first, keep, scratch);
    int32_t m = 0;
    for (int32_t i = 0; i < p->n; i++)
        if (keep[i])
            keep[m++] = i; /* m <= i */
    return m;
}

static const char *const gqas[] = {"mean", "joint", NULL};

static const wnw_option options[] = {{.name = "alpha",
                                      .help = "share of a head's entries that attention alone chooses",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct opts, alpha),
                                      .def = 0.5,
                                      .min = 0,
                                      .max = 1},
                                     {.name = "eps",
                                      .help = "added to attention before it is multiplied with the norm",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct opts, eps),
                                      .def = 1e-4,
                                      .min = 0,
                                      .max = 1},
                                     {.name = "eps_rel",
                                      .help = "if above 0: eps = eps_rel / entries of the head",
                                      .type = WNW_OPT_REAL,
                                      .offset = offsetof(struct opts, eps_rel),
                                      .def = 0,
                                      .min = 0,
                                      .max = 1000},
                                     WNW_OPTION_PROJ_NORM(struct opts),
                                     {.name = "sinks",
                                      .help = "first entries that are kept in any case",
                                      .type = WNW_OPT_INT,
                                      .offset = offsetof(struct opts, sinks),
                                      .def = 4,
                                      .min = 0,
                                      .max = 4096},
                                     {.name = "gqa",
                                      .help =
                                          "mean: mean attention times mean norm of the group's query heads;"
                                          " joint: the mean of their products",
                                      .type = WNW_OPT_ENUM,
                                      .offset = offsetof(struct opts, gqa),
                                      .def = GQA_MEAN,
                                      .choices = gqas},
                                     {0}};

const wnw_selector wnw__selector_critical = {
    .part =
        {WNW_SELECTOR_INIT, .name = "critical",
         .about = "Half by attention alone, the rest by attention times the norm of the projected value.",
         .paper = "CriticalKV, arXiv 2502.03805",
         .details =
             "Stage 1 keeps the `floor(alpha b)` best of a head's `b` entries by attention `A_i`, stage 2 "
             "fills "
             "up by `(A_i + eps) nu_i` with `nu_i = ||v_i W_O||` over the query heads of the group: the mean "
             "of L1 norms, "
             "the root mean square of L2 norms (the default). "
             "`alpha = 1` is plain top-k. `gqa=joint` takes `(1/G) sum_g (A_ig + eps) nu_ig`, every query "
             "head's "
             "own "
             "attention and norm, which is the bound for the group; for scorers of query heads.\n\n"
             "Deviations: the norm is L2 by default, which the paper finds as good as its L1; the first 4 "
             "entries are kept in any case (`sinks=0` turns that off); protected entries are kept first "
             "and "
             "do not compete. Norms after the output projection, as some models have, are not seen.\n\n"
             "Cost: O(n) per head besides the norms. L1 takes one output projection per entry and query "
             "head, "
             "L2 a d x d product per entry and KV head, or with `gqa=joint` per entry and query head.",
         .options = options, .options_size = sizeof(struct opts), .flags = WNW_FLAG_ATTENTION,
         .flags_of = flags_of, .needs = needs},
    .scratch = scratch_size,
    .advise = advise,
    .select = select_entries,
};
