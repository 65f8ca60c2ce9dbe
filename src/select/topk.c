/* SPDX-License-Identifier: MIT */
/*
 * The best scores of a head, in addition to its protected first and last entries. Reference programs differ in which
 * of equal scores stays: the earlier position (the default, and the order everywhere else in this project) or the
 * later one (CompilerKV, arXiv 2602.08686). Cost O(n).
 */
#include "base/topk.h"
#include "method/protected.h"
#include "policy/part.h"

enum ties { TIES_EARLY, TIES_LATE };

struct opts {
    int32_t ties;
};

static int32_t select_entries(const void *opts, const wnw_select_problem *p, int32_t *keep, float *scratch)
{
    const struct opts *o = opts;
    (void)scratch;
    const int32_t first = p->prot.n_first, last = p->prot.n_last;
    int32_t m = wnw__keep_first(p, keep);
    const float *score = p->score + first;
    const int32_t n = p->n - first - last, k = p->n_keep - first - last;
    m += o->ties == TIES_LATE ? wnw__topk_late(score, n, k, first, keep + m)
                              : wnw__topk(score, n, k, first, keep + m);
    return wnw__keep_last(p, keep, m);
}

static const char *const ties[] = {"early", "late", NULL};

static const wnw_option options[] = {
    {.name = "ties",
     .help = "which of equal scores stays: the earlier or the later position",
     .type = WNW_OPT_ENUM,
     .offset = offsetof(struct opts, ties),
     .def = TIES_EARLY,
     .choices = ties},
    {0}};

const wnw_selector wnw__selector_topk = {
    .part = {WNW_SELECTOR_INIT, .name = "topk",
             .about = "The highest scores of a head; of equal scores the earlier position, or the later one.",
             .details = "The best scores besides the protected first and last entries. Of equal scores the "
                        "earlier position stays; an option turns that round, as CompilerKV's code has "
                        "it.\n\nCost: O(n).",
             .options = options, .options_size = sizeof(struct opts)},
    .select = select_entries,
};
