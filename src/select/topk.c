/* SPDX-License-Identifier: MIT */
/* The best scores of a head, besides its protected first and last entries. Cost O(n). */
#include "base/topk.h"
#include "method.h"

static int32_t select_entries(const void *opts, const struct wnw__select_problem *p, int32_t *keep,
                              float *scratch)
{
    (void)opts;
    (void)scratch;
    const int32_t first = p->prot.n_first, last = p->prot.n_last;
    int32_t m = 0;
    while (m < first) {
        keep[m] = m;
        m++;
    }
    m += wnw__topk(p->score + first, p->n - first - last, p->n_keep - first - last, first, keep + m);
    for (int32_t i = p->n - last; i < p->n; i++)
        keep[m++] = i;
    return m;
}

extern const struct wnw__selector wnw__selector_topk;
const struct wnw__selector wnw__selector_topk = {
    .name = "topk",
    .about = "The highest scores of a head; of equal scores the earlier position.",
    .paper = "",
    .select = select_entries,
};
