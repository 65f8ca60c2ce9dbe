/* SPDX-License-Identifier: MIT */
/*
 * The best ranks of a head, averaged over successive compressions. A policy that compresses while decoding judges every
 * entry again each time by the newest queries. An entry that one of them has no use for goes, though all before it had. Here
 * what was judged before counts too, by ranks, because scores of different times have no common scale. From no paper that
 * we know; H2O (arXiv 2306.14048) adds up attention over time, for one scorer.
 *
 *     q_i = number of higher scores among the m unprotected entries / m.
 *     R_i = w q_i + (1 - w) R'_i, where R'_i was noted at the last compression; R_i = q_i if nothing was.
 *     The entries of the lowest R stay; of equal ones the earlier position. R_i is noted of those that stay.
 *
 * A protected entry is not judged, and nothing is noted of it. The entries that a head budget promises stay by their present
 * scores. The first compression is plain top-k. Cost O(n log n).
 */
#include "base/topk.h"
#include "method/protected.h"
#include "method/rank.h"
#include "policy/part.h"

#include <math.h>

struct opts {
    double weight;
};

static void needs(const void *opts, wnw_needs *out)
{
    (void)opts;
    out->flags = WNW_NEED_NOTES;
}

/* Scratch holds the sorted scores of the unprotected entries and their ranks, then what they are chosen by. */
static size_t scratch_size(const void *opts, int32_t n)
{
    (void)opts;
    return 2 * (size_t)n;
}

static int32_t select_entries(const void *opts, const wnw_select_problem *p, int32_t *keep, float *scratch)
{
    const struct opts *o = opts;
    const int32_t first = p->prot.n_first, n = p->n - first - p->prot.n_last;
    const float *score = p->score + first, *before = p->obs->note + (int64_t)p->ih * p->obs->n + first;
    float *order = scratch + p->n, *note = p->note + first;
    wnw__ranks(score, n, order, scratch);
    struct wnw__cut safe = wnw__topk_cut(score, n, p->n_safe);
    for (int32_t i = 0; i < n; i++) {
        const double now = (double)order[i] / n;
        note[i] = (float)(isnan(before[i]) ? now : o->weight * now + (1 - o->weight) * (double)before[i]);
        /* The lowest mean is the best, and the promised ones are ahead of all. */
        order[i] = wnw__cut_take(&safe, score[i]) ? 1.0f : -note[i];
    }
    int32_t m = wnw__keep_first(p, keep);
    m += wnw__topk(order, n, p->n_keep - first - p->prot.n_last, first, keep + m);
    return wnw__keep_last(p, keep, m);
}

static const wnw_option options[] = {
    {.name = "weight",
     .help = "weight of the present rank; the past has the rest, and 1 = top-k",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, weight),
     .def = 0.5,
     .min = 0,
     .max = 1},
    {0}};

const wnw_selector wnw__selector_ranks = {
    .part =
        {WNW_SELECTOR_INIT, .name = "ranks",
         .about = "The best ranks of a head, averaged over the compressions that an entry has seen.",
         .details =
             "`q_i` is the number of higher scores among the `m` unprotected entries, divided by `m`. `R_i = "
             "w q_i "
             "+ (1 - w) R'_i`, where `R'_i` was noted at the last compression, and `R_i = q_i` for an entry "
             "that "
             "was not judged before. The lowest `R` stay, and their `R` is noted with them. A cache that is "
             "compressed once is what top-k leaves.\n\n"
             "Made for long answers, where each compression otherwise judges by the newest queries alone: "
             "`snapkv+ranks` with `--evict-every 64`. It goes with chunks too. Ranks compare between times, "
             "and "
             "scores do not. Head budgets see the present scores, and what they promise stays.\n\n"
             "From no paper that we know.\n\n"
             "One number per entry is kept. It is known in winnow's own sessions only, not under the backend "
             "for libllama programs.\n\n"
             "Cost: O(n log n) per head.",
         .options = options, .options_size = sizeof(struct opts), .needs = needs},
    .scratch = scratch_size,
    .select = select_entries,
};
