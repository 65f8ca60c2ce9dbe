/* SPDX-License-Identifier: MIT */
/*
 * The best scores of a head, where of two near-equal keys one gives its place to an entry that was left out. A query
 * that finds one of two equal keys finds the other too. From no paper that we know. KeyDiff (arXiv 2504.15364) scores
 * by likeness of keys; this part corrects a selection.
 *
 *     S = protected entries and the b best others; m = floor(share b), but at most b minus the promised ones.
 *     The m worst of S are looked at, the worst first. Entry i is a double if another j of S has cos(k_i, k_j) >= near.
 *     A double gives its place to the best of the m next entries e with cos(k_e, k_j) < near for every other j of S.
 *
 * Each of the m next entries is looked at once. Equal scores are ordered by position, the earlier one first. Without a
 * candidate the double stays, so the count is exact. A key of length 0 is like no other. Cost O(m n d).
 */
#include "base/topk.h"
#include "base/vectors.h"
#include "kernel/kernel.h"
#include "policy/part.h"

struct opts {
    double near, share;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_KEYS;
}

/* Scratch holds the length of every key, what became of its entry, and its product with one key. */
static size_t scratch_size(const void *opts, int32_t n)
{
    (void)opts;
    return 3 * (size_t)n;
}

/* What became of an entry. Of states that are looked at, the order is that of the names. */
enum state { LEFT_OUT, NEXT, STAYS, LOOSE };

struct search {
    const struct opts *o;
    const wnw_select_problem *p;
    const float *keys; /* [n][d] */
    float *length;     /* [n] of keys */
    float *state;      /* [n] enum state */
    float *dot;        /* [n] */
    int32_t d;
};

static bool stays(const struct search *s, int32_t i)
{
    return s->state[i] == (float)STAYS || s->state[i] == (float)LOOSE;
}

/* Whether an entry that stays, other than i and `except`, has nearly the key of i. */
static bool has_double(const struct search *s, int32_t i, int32_t except)
{
    wnw__mul_nt(s->keys + (int64_t)i * s->d, 1, s->keys, s->p->n, s->d, 1, s->dot, s->p->n);
    for (int32_t j = 0; j < s->p->n; j++) {
        const double lengths = (double)s->length[i] * (double)s->length[j];
        if (j != i && j != except && stays(s, j) && lengths > 0 && (double)s->dot[j] >= s->o->near * lengths)
            return true;
    }
    return false;
}

/* The entry of this state that comes next: the worst loose one or the best one that is left out, after `last`; -1 = none. */
static int32_t next_of(const struct search *s, enum state state, int32_t last)
{
    const float *score = s->p->score;
    const bool worst = state == LOOSE;
    int32_t best = -1;
    for (int32_t t = 0; t < s->p->n; t++) {
        /* Of equal scores the later entry is the worse one. */
        const int32_t i = worst ? s->p->n - 1 - t : t;
        if (s->state[i] != (float)state)
            continue;
        if (last >= 0 && (i == last || (worst ? score[i] < score[last] : score[i] > score[last]) ||
                          (score[i] == score[last] && (worst ? i > last : i < last))))
            continue;
        if (best < 0 || (worst ? score[i] < score[best] : score[i] > score[best]))
            best = i;
    }
    return best;
}

/* Marks k best of the unprotected entries. */
static void mark(const struct search *s, int32_t k, enum state state)
{
    const wnw_select_problem *p = s->p;
    const int32_t first = p->prot.n_first, n = p->n - first - p->prot.n_last;
    struct wnw__cut cut = wnw__topk_cut(p->score + first, n, k < n ? k : n);
    for (int32_t i = first; i < first + n; i++)
        if (wnw__cut_take(&cut, p->score[i]))
            s->state[i] = (float)state;
}

static void swap_doubles(const struct search *s)
{
    int32_t e = next_of(s, NEXT, -1);
    for (int32_t i = next_of(s, LOOSE, -1); i >= 0 && e >= 0; i = next_of(s, LOOSE, i)) {
        if (!has_double(s, i, -1))
            continue;
        while (e >= 0 && has_double(s, e, i))
            e = next_of(s, NEXT, e);
        if (e < 0)
            break;
        const int32_t taken = e;
        e = next_of(s, NEXT, e);
        s->state[taken] = (float)STAYS;
        s->state[i] = (float)LEFT_OUT;
    }
}

static int32_t select_entries(const void *opts, const wnw_select_problem *p, int32_t *keep, float *scratch)
{
    const struct opts *o = opts;
    const int32_t b = p->n_keep - p->prot.n_first - p->prot.n_last, movable = b - p->n_safe;
    const int32_t asked = (int32_t)(o->share * b + 1e-6), m = asked < movable ? asked : movable;
    struct search s = {.o = o,
                       .p = p,
                       .length = scratch,
                       .state = scratch + p->n,
                       .dot = scratch + 2 * (size_t)p->n,
                       .d = p->obs->n_embd_head};
    s.keys = p->obs->keys(p->obs, p->ih);
    if (!s.keys)
        return WNW_E_NOMEM; /* keys has set the error text */
    for (int32_t i = 0; i < p->n; i++) {
        s.length[i] = (float)wnw__norm(s.keys + (int64_t)i * s.d, s.d);
        s.state[i] = (float)(i < p->prot.n_first || i >= p->n - p->prot.n_last ? STAYS : LEFT_OUT);
    }
    mark(&s, b + m, NEXT);
    mark(&s, b, LOOSE);
    mark(&s, b - m, STAYS);
    swap_doubles(&s);
    int32_t n_keep = 0;
    for (int32_t i = 0; i < p->n; i++)
        if (stays(&s, i))
            keep[n_keep++] = i;
    return n_keep;
}

static const wnw_option options[] = {
    {.name = "near",
     .help = "cosine from which two keys count as equal",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, near),
     .def = 0.98,
     .min = 0,
     .max = 1},
    {.name = "share",
     .help = "the most of the chosen entries that may give way, the worst ones",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, share),
     .def = 0.1,
     .min = 0,
     .max = 1},
    {0}};

const wnw_selector wnw__selector_distinct = {
    .part =
        {WNW_SELECTOR_INIT, .name = "distinct",
         .about =
             "The highest scores of a head, where near-equal keys give way to entries that were left out.",
         .details =
             "Of the `b` chosen entries the `m = floor(share b)` worst are looked at, the worst "
             "first. One is a "
             "double if another entry that stays has a key with `cos(k_i, k_j) >= near`. It gives its "
             "place to "
             "the best of the `m` next entries whose key is no double either; each of these is looked "
             "at once. "
             "Without such an entry it stays, so the count is exact. Protected entries and those that "
             "a head budget promises never move.\n\n"
             "For example `snapkv+adakv+distinct:near=0.95`. `share=0` is plain top-k.\n\n"
             "From no paper that we know.\n\n"
             "Keys are compared after RoPE. Two equal words that are far apart have different keys.\n\n"
             "Cost: O(m n d) per head.",
         .options = options, .options_size = sizeof(struct opts), .needs = needs},
    .scratch = scratch_size,
    .select = select_entries,
};
