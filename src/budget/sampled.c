/* SPDX-License-Identifier: MIT */
/*
 * Head budgets from a sample of a second reading. KVzip (arXiv 2505.23416) feeds all tokens a second time; here only some are fed, at
 * several places of a long text, each after the tokens that precede it there. There is no instruction to repeat. A head keeps the share
 * of its entries that it has above a threshold in the sample. Shares (budget/shares.c) are the same, measured once per model over many
 * texts. These are measured on the current prompt and need no profile. A few tokens are enough to see how the best entries spread over
 * the heads (decisions 114, 124, 127). From no paper that we know. Let Z be the largest attention that the repetition gave to each of
 * the m sampled entries of head r:
 *
 *     s_r(t) = the share of log(Z + 1e-6) above t: (i - 1/2) / m at the i-th largest, linear between, 0 and 1 one further out
 *     c_r    = clamp(p_r + s_r(t) (N - p_r), p_r, n_r)
 *
 * for the t where all counts add up to the size; N tokens read, p_r protected, n_r entries in the cache. Counts are rounded by largest
 * fraction, lower layer and head first. In heads with fewer than 8 entries in the sample the share falls evenly as t rises. No score is
 * read, so any scorer that orders the entries of one head can be combined with it. Cost: the pass and O(R m).
 */
#include "base/topk.h"
#include "method/count.h"
#include "method/sample_places.h"
#include "policy/part.h"

#include <math.h>

enum { N_ENOUGH = 8 };
/* Logarithms are those of numbers between this and 1. */
#define LEAST 1e-6

struct opts {
    struct wnw__look_opts stays;
    wnw_sample_size sample;
};

/* ---- The sample: for each head of the model its number of entries, and their logarithms ---- */

static int32_t most_of(const struct opts *o)
{
    return o->sample.every > 0 && o->sample.most > o->sample.least ? o->sample.most : o->sample.least;
}

static size_t row_size(const struct opts *o)
{
    return 1 + (size_t)most_of(o);
}

static size_t gather_size(const void *opts, const wnw_shape *shape)
{
    return (size_t)shape->n_layer * (size_t)shape->n_head_kv * row_size(opts);
}

static void gather_needs(const void *opts, wnw_needs *out)
{
    out->flags = WNW_NEED_SECOND_PASS;
    out->second_pass = WNW_PASS_SAMPLE;
    out->sample = ((const struct opts *)opts)->sample;
}

static int gather_layer(const void *opts, const wnw_observation *obs, double *numbers)
{
    const struct opts *o = opts;
    const int32_t group = obs->n_head / obs->n_head_kv;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++) {
        const int32_t *pos = obs->pos + (int64_t)ih * obs->n;
        double *row = numbers + ((size_t)obs->il * (size_t)obs->n_head_kv + (size_t)ih) * row_size(o);
        for (int32_t c = 0; c < obs->n_entry[ih] && *row < most_of(o); c++) {
            float most = 0;
            if (wnw__sample_number(obs->pass2_places, obs->n_pass2_places, pos[c]) < 0)
                continue;
            for (int32_t h = ih * group; h < (ih + 1) * group; h++)
                most = fmaxf(most, obs->pass2_max[(int64_t)h * obs->n + c]);
            row[1 + (int32_t)*row] = log((double)most + LEAST);
            ++*row;
        }
    }
    return WNW_OK;
}

static const wnw_gather gather = {.size = gather_size, .needs = gather_needs, .visit = gather_layer};

/* ---- Counts ---- */

struct problem {
    const wnw_layer_problem *p;
    const struct opts *o;
    float *sorted; /* [n_row][stride] the sample of each head, largest first */
    int32_t stride;
};

static const double *sample_of(const struct problem *x, int32_t r)
{
    return x->p->gathered + (size_t)wnw__row_of_model(x->p, r) * row_size(x->o);
}

static int32_t n_sampled(const struct problem *x, int32_t r)
{
    const double n = *sample_of(x, r);
    return n < x->stride ? (int32_t)n : x->stride;
}

/* s_r at the threshold that lies a share `removed` of the way from below all of the sample to above. */
static double share_of(const struct problem *x, int32_t r, double removed)
{
    const int32_t m = n_sampled(x, r);
    const float *y = x->sorted + (int64_t)r * x->stride;
    const double lowest = log(LEAST) - 1, t = lowest + removed * (1 - lowest);
    int32_t i = 0; /* that many are above t */
    if (m < N_ENOUGH)
        return 1 - removed;
    while (i < m && (double)y[i] > t)
        i++;
    const double above = i > 0 ? (double)y[i - 1] : (double)y[0] + 1,
                 below = i < m ? (double)y[i] : (double)y[m - 1] - 1;
    const double from = i > 0 ? (i - 0.5) / m : 0, to = i < m ? (i + 0.5) / m : 1;
    double part = above > below ? (above - t) / (above - below) : 1;
    part = part < 0 ? 0 : part;
    return from + (to - from) * (part > 1 ? 1 : part);
}

static double count_of(const void *user, int32_t r, double removed)
{
    const struct problem *x = user;
    return wnw__look_count(x->p, r, share_of(x, r, removed));
}

static int allocate_model(const void *opts, const wnw_layer_problem *p, int32_t *n_keep, float *scratch,
                          char *warning)
{
    const struct opts *o = opts;
    const int32_t n_row = p->n_layer * p->n_head_kv;
    struct problem x = {.p = p, .o = o, .stride = most_of(o) < p->n - 1 ? most_of(o) : p->n - 1};
    const struct wnw__count_rule rule = {
        .count = count_of, .user = &x, .n_entry = p->n_entry, .n_row = n_row};
    float *fraction =
        scratch; /* and the samples: as many numbers in all as the scores of the longest heads */
    (void)warning;
    x.sorted = scratch + n_row;
    for (int32_t r = 0; r < n_row; r++) {
        const double *sample = sample_of(&x, r) + 1;
        float *y = x.sorted + (int64_t)r * x.stride;
        for (int32_t i = 0; i < n_sampled(&x, r); i++)
            y[i] = (float)sample[i];
        wnw__sort_descending(y, n_sampled(&x, r));
    }
    const int32_t total = wnw__count_together(p, p->n_entry, n_row);
    wnw__count_rule_round(&rule, wnw__count_rule_find(&rule, total), 0, n_row, total, fraction, n_keep);
    return WNW_OK;
}

static const wnw_option options[] = {
    {.name = "sample",
     .help = "tokens that are repeated in truth, or more",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, sample.least),
     .def = 32,
     .min = 8,
     .max = 4096},
    {.name = "every",
     .help = "one of so many tokens is repeated, where that is more; 0 = as many as sample",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, sample.every),
     .def = 0,
     .min = 0,
     .max = 65536},
    {.name = "most",
     .help = "but no more than so many, or sample",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, sample.most),
     .def = 256,
     .min = 8,
     .max = 4096},
    {.name = "place",
     .help = "tokens that are repeated together; more are in several places, which lie evenly in the text",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, sample.place),
     .def = 32,
     .min = 8,
     .max = 4096},
    WNW_OPTION_LOOK_HEADER,
    WNW_OPTION_LOOK_SINKS,
    WNW_OPTION_LOOK_LAST,
    WNW_OPTION_LOOK_ROOM,
    {0}};

const wnw_head_budget wnw__head_budget_sampled = {
    .part =
        {WNW_HEAD_BUDGET_INIT, .name = "sampled",
         .about = "Heads keep as many entries as KVzip would leave them, by a few tokens that are repeated.",
         .paper = "after KVzip, arXiv 2505.23416",
         .details =
             "`sample` tokens of what was read since the last compression are repeated in truth, with "
             "`every` one of "
             "so many where that is more, up to `most`, as KVzip repeats "
             "all, with the attention's own softmax over everything. Of more than `place` tokens there are "
             "several places, one in the middle of each of as many slices of the text, which are fed one "
             "behind the other, each with the 8 tokens before it. With `Z` the largest "
             "attention that the repetition gives an "
             "entry, `s_r(t)` is the share of head r's sampled entries with `log(Z + 1e-6) > t`: "
             "`(i - 1/2) / m` at the i-th largest "
             "of m, linear between, 0 and 1 one further out. Of `N` tokens read, of which `p_r` "
             "are protected, head r keeps `p_r + "
             "s_r(t) (N - p_r)`, with the `t` at which all heads together come to the size. The "
             "scorer orders the entries of one "
             "head and has no part in this, so any does. Of heads with fewer than 8 entries in the "
             "sample the share falls evenly as `t` rises.\n\n"
             "With `last=32,room=0.3` what was asked at the end of a prompt stays, as far as it fits: "
             "neither keys nor a sample from the middle speak of it. `auto` does so where the question is "
             "known, with `room=0.5` where less than a quarter stays.\n\n"
             "What `shares` has measured once for a model, this measures on the prompt at hand. "
             "It is not had where nothing can "
             "be read again.\n\n"
             "From no paper that we know; docs/research/auto.md has what it does to answers.\n\n"
             "Cost: the sample and the 8 tokens before each of its places are read once more.",
         .options = options, .options_size = sizeof(struct opts),
         .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES, .keep = wnw__look_keep, .gather = &gather},
    .allocate_model = allocate_model,
};
