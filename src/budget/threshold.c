/* SPDX-License-Identifier: MIT */
/*
 * A score threshold in place of a size: entries that score below tau go, so that the number of entries that
 * stay follows from the text, layer by layer and head by head. DMS evicts by this rule while it runs
 * ("Inference-Time Hyper-Scaling with KV Cache Compression", arXiv 2506.05345); its scores come from a
 * trained predictor, here from any scorer, as in kvpress' DMSPress.
 *
 *     n_keep of a head = protected entries + #{ i not protected : score_i >= tau }
 * The scorer's protected entries and the last `window` entries are protected: a token is judged once it has
 * left that window.
 * With a size, tau is a floor and the size a ceiling: of the H B entries that a layer may keep, the best
 * scores of its heads that reach tau stay, and the window is at most B / 4. Without a size no layer budget
 * has anything to share out. Equal scores at that ceiling are ordered by lower head, then lower position.
 * Cost O(H n).
 */
#include "base/topk.h"
#include "policy/part.h"

struct opts {
    double tau;
    int32_t window;
};

static void keep(const void *opts, const wnw_keep_problem *p, wnw_protected *out)
{
    const struct opts *o = opts;
    const int32_t last = p->sized && o->window > p->budget / 4 ? p->budget / 4 : o->window;
    out->n_last = last > out->n_last ? last : out->n_last;
}

/* Copies the scores of head ih's unprotected entries that reach tau; returns their number. */
static int32_t passing(const struct opts *o, const wnw_head_problem *p, int32_t ih, float *out)
{
    const wnw_protected prot = p->prot[ih];
    const float *score = p->score + (int64_t)ih * p->n;
    int32_t m = 0;
    for (int32_t i = prot.n_first; i < p->n_entry[ih] - prot.n_last; i++)
        if ((double)score[i] >= o->tau)
            out[m++] = score[i];
    return m;
}

static int allocate(const void *opts, const wnw_head_problem *p, int32_t *n_keep, int32_t *n_safe,
                    float *scratch)
{
    int64_t n_flat = 0, left = 0;
    (void)n_safe;
    for (int32_t ih = 0; ih < p->n_head_kv; ih++) {
        n_keep[ih] = passing(opts, p, ih, scratch + n_flat); /* candidates so far */
        n_flat += n_keep[ih];
        left += p->budget;
        left -= p->prot[ih].n_first + p->prot[ih].n_last;
    }
    struct wnw__cut cut = wnw__topk_cut(scratch, n_flat, left < n_flat ? left : n_flat);
    for (int32_t ih = 0; ih < p->n_head_kv; ih++) {
        const int32_t m = n_keep[ih];
        n_keep[ih] = p->prot[ih].n_first + p->prot[ih].n_last;
        for (int32_t i = 0; i < m; i++)
            n_keep[ih] += wnw__cut_take(&cut, *scratch++);
    }
    return WNW_OK;
}

static const wnw_option options[] = {
    {.name = "tau",
     .help = "entries that score less go; what is a good one depends on the scorer",
     .type = WNW_OPT_REAL,
     .offset = offsetof(struct opts, tau),
     .def = 0,
     .min = -1e30,
     .max = 1e30},
    {.name = "window",
     .help = "last entries that stay regardless of their score; with a size at most a quarter of it",
     .type = WNW_OPT_INT,
     .offset = offsetof(struct opts, window),
     .def = 128,
     .min = 0,
     .max = 1 << 20},
    {0}};

const wnw_head_budget wnw__head_budget_threshold = {
    .part = {WNW_HEAD_BUDGET_INIT, .name = "threshold",
             .about = "What scores below a threshold goes: the size follows from the text, head by head.",
             .paper = "DMS, arXiv 2506.05345",
             .details =
                 "A head keeps what its scorer protects, the last `window` entries and all others with "
                 "`score >= "
                 "tau`. "
                 "It needs no size. Given one, a layer keeps at most its `H B` entries, the best of "
                 "those that reach "
                 "`tau`, and may keep less; the window is then at most `B / 4`. Without a size a layer "
                 "budget next to "
                 "it does nothing.\n\n"
                 "DMS trains a predictor for its scores and sparsifies while a prompt is read; "
                 "kvpress' DMSPress puts "
                 "the same threshold on any scorer, and so does this. `--evict chunk` and "
                 "`--evict-every` go on "
                 "judging "
                 "as tokens leave the window. A threshold is portable only as far as its scorer's "
                 "scale is: cosines "
                 "(`keydiff`) and maxima of attention (`kvzip`) have one, norms (`knorm`) change with "
                 "the model and "
                 "means of attention with the prompt's length.\n\nCost: O(H n).",
             .options = options, .options_size = sizeof(struct opts),
             .flags = WNW_FLAG_RAGGED | WNW_FLAG_COMPETES | WNW_FLAG_OWN_SIZE, .keep = keep},
    .allocate = allocate,
};
