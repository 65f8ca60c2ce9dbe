/* SPDX-License-Identifier: MIT */
/* Which entries of a layer stay, and what is written into them. The choices of every part are checked, built
 * in or registered. */
#include "plan/compress_impl.h"

#include <math.h>
#include <string.h>

/* ---- One head ---- */

static int add_head(struct wnw__draft *draft, int32_t il, int32_t ih, const int32_t *keep, int32_t n)
{
    const int32_t *pos = wnw__draft_positions(draft, il, ih);
    int32_t *to = wnw__plan_add_head(draft->plan, n);
    if (!to)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a plan");
    for (int32_t i = 0; i < n; i++)
        to[i] = pos[keep ? keep[i] : i];
    return WNW_OK;
}

static bool ascends(const int32_t *x, int32_t n, int32_t end)
{
    for (int32_t i = 0; i < n; i++)
        if (x[i] < (i > 0 ? x[i - 1] + 1 : 0) || x[i] >= end)
            return false;
    return true;
}

/* Number of entry index `entry` among those that stay, or -1 if it is dropped. */
static int32_t number_kept(const wnw_contents_problem *p, int32_t entry)
{
    int32_t lo = 0, hi = p->n_keep;
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (p->keep[mid] < entry)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < p->n_keep && p->keep[lo] == entry ? lo : -1;
}

/* Whether merges of one head are valid. They name entries by index, ascend, and lead from dropped entries to
 * kept ones. */
static bool merges_fit(const wnw_merge *m, int32_t n_merge, const wnw_contents_problem *p)
{
    if (n_merge < 0 || n_merge > p->n - p->n_keep)
        return false;
    for (int32_t i = 0; i < n_merge; i++) {
        const int32_t to = number_kept(p, m[i].to);
        if (m[i].from < (i > 0 ? m[i - 1].from + 1 : 0) || m[i].from >= p->n ||
            number_kept(p, m[i].from) >= 0 || to < 0 || m[i].n_to < 1 || m[i].n_to > p->n_keep - to)
            return false;
    }
    return true;
}

/* Adds the biases and values that the content rule fits to the kept entries of the head. */
static int fit_head(struct wnw__draft *draft, int64_t i, const wnw_contents_problem *p)
{
    const wnw_contents *c = draft->contents;
    const int32_t d = draft->src->shape.d;
    const size_t n = (size_t)p->n_keep;
    WNW_TRY(wnw__draft_reserve(&draft->fitted, n * (size_t)(d + 1)));
    float *bias = draft->fitted.x, *values = bias + n;
    const float *v = p->obs->values ? p->obs->values(p->obs, p->ih) : NULL;
    for (int32_t t = 0; t < p->n_keep; t++) {
        bias[t] = p->obs->bias ? p->obs->bias[(int64_t)p->ih * p->obs->n + p->keep[t]] : 0.0f;
        if (v)
            memcpy(values + (int64_t)t * d, v + (int64_t)p->keep[t] * d, (size_t)d * sizeof *v);
    }
    const int rc = c->fit(draft->policy->opts[WNW_PART_CONTENTS], p, bias, values, draft->scratch.x);
    if (rc < 0)
        return wnw__part_status(&c->part, rc);
    for (size_t k = 0; k < n * (size_t)(d + 1); k++)
        if (!isfinite(draft->fitted.x[k]) && rc & (k < n ? WNW_FIT_BIAS : WNW_FIT_VALUES))
            return wnw__fail(WNW_E_NOT_FINITE,
                             "content rule %s: what it fits to layer %d, KV head %d is not finite",
                             c->part.name, p->obs->il, p->ih);
    return wnw__plan_set_fitted(draft->plan, i, p->n_keep, d, rc & WNW_FIT_BIAS ? bias : NULL,
                                rc & WNW_FIT_VALUES ? values : NULL);
}

/* Adds to the plan what is written into the kept entries of one head; obs = what the content rule asked
 * for. */
static int write_head(struct wnw__draft *draft, int32_t il, int32_t ih, const int32_t *keep, int32_t n_keep,
                      const wnw_observation *obs)
{
    const wnw_contents *c = draft->contents;
    const void *opts = draft->policy->opts[WNW_PART_CONTENTS];
    const int32_t *pos = wnw__draft_positions(draft, il, ih);
    const wnw_contents_problem p = {
        .obs = obs, .ih = ih, .keep = keep, .n_keep = n_keep, .n = wnw__draft_entries(draft, il)[ih]};
    wnw_merge *merges = draft->kept.merges;
    int32_t n_spared = 0;
    if (c->scratch)
        WNW_TRY(wnw__draft_reserve(&draft->scratch, c->scratch(opts, obs)));
    const int32_t n_merge = c->merge ? c->merge(opts, &p, merges, draft->scratch.x) : 0;
    const int32_t n_channel =
        c->prune ? c->prune(opts, &p, draft->kept.channels, &n_spared, draft->scratch.x) : 0;
    if (!merges_fit(merges, n_merge, &p))
        return wnw__fail(WNW_E_RANGE,
                         "content rule %s: merges of layer %d, KV head %d do not ascend, or are not from "
                         "entries that go to entries that stay",
                         c->part.name, il, ih);
    if (n_channel < 0 || n_channel > draft->src->shape.d || n_spared < 0 ||
        !ascends(draft->kept.channels, n_channel, draft->src->shape.d))
        return wnw__fail(WNW_E_RANGE, "content rule %s: channels of layer %d, KV head %d are none of %d",
                         c->part.name, il, ih, draft->src->shape.d);
    for (int32_t i = 0; i < n_merge; i++) {
        merges[i].from = pos[merges[i].from];
        merges[i].to = pos[merges[i].to];
    }
    const int64_t i = (int64_t)il * draft->src->shape.n_head_kv + ih;
    WNW_TRY(
        wnw__plan_set_contents(draft->plan, i, merges, n_merge, draft->kept.channels, n_channel, n_spared));
    return c->fit && n_keep > 0 ? fit_head(draft, i, &p) : WNW_OK;
}

/* ---- One layer ---- */

/* Settled entries stay settled. */
int wnw__draft_keep_layer(struct wnw__draft *draft, int32_t il, const wnw_observation *obs)
{
    struct wnw__draft_kept *kept = &draft->kept;
    kept->n_settled = draft->src->layer(draft->src, il).n_settled;
    draft->plan->n_settled[il] = kept->n_settled;
    for (int32_t ih = 0; ih < draft->src->shape.n_head_kv; ih++) {
        const int32_t n = wnw__draft_entries(draft, il)[ih];
        int32_t *keep = kept->keep ? kept->keep + (int64_t)ih * draft->cache.row : NULL;
        kept->n_keep[ih] = n;
        for (int32_t i = 0; keep && i < n; i++)
            keep[i] = i;
        WNW_TRY(add_head(draft, il, ih, NULL, n));
        if (obs)
            WNW_TRY(write_head(draft, il, ih, keep, n, obs));
    }
    return WNW_OK;
}

/* Has the plan keep what the selector noted of the entries that stay. */
static int note_head(struct wnw__draft *draft, int32_t il, int32_t ih, const int32_t *keep, int32_t n_keep)
{
    float *kept = draft->note.x + draft->cache.row;
    for (int32_t i = 0; i < n_keep; i++)
        kept[i] = draft->note.x[keep[i]];
    return wnw__plan_set_notes(draft->plan, (int64_t)il * draft->src->shape.n_head_kv + ih, n_keep, kept);
}

/* Selects in KV head ih and writes the kept entries to draft->kept. */
static int select_head(struct wnw__draft *draft, const struct wnw__scored_layer *l, int32_t ih,
                       const wnw_blocks *blocks, const wnw_observation *obs)
{
    const wnw_select_problem problem = {.score = l->score + (int64_t)ih * l->row,
                                        .n = l->n_entry[ih],
                                        .n_keep = draft->kept.n_keep[ih],
                                        .prot = draft->kept.prot[ih],
                                        .blocks = *blocks,
                                        .n_settled = l->n_settled,
                                        .n_safe = draft->kept.n_safe[ih],
                                        .ih = ih,
                                        .n_head_kv = draft->src->shape.n_head_kv,
                                        .row = l->row,
                                        .layer_score = l->score,
                                        .head_score = l->head_score,
                                        .n_entry = l->n_entry,
                                        .rounding = draft->policy->rounding,
                                        .mean =
                                            draft->size.rule == WNW_SIZE_RULE_SELECTOR ? 0 : draft->size.mean,
                                        .obs = obs,
                                        .gathered = draft->gathered[WNW_PART_SELECTOR],
                                        .note = draft->note.x};
    for (int32_t i = 0; problem.note && i < problem.n; i++)
        problem.note[i] = NAN;
    int32_t *keep = draft->kept.keep + (int64_t)ih * draft->cache.row;
    const int32_t n =
        draft->selector->select(draft->policy->opts[WNW_PART_SELECTOR], &problem, keep, draft->scratch.x);
    if (n < 0)
        return wnw__part_status(&draft->selector->part, n);
    if (n > problem.n || !ascends(keep, n, problem.n))
        return wnw__fail(WNW_E_RANGE,
                         "selector %s: what it keeps of layer %d, KV head %d is not ascending entries of %d",
                         draft->selector->part.name, l->il, ih, problem.n);
    draft->kept.n_keep[ih] = n;
    return problem.note ? note_head(draft, l->il, ih, keep, n) : WNW_OK;
}

/* Lowers *settled to the number of kept entries of this head that the selector will not look at again. */
static int settle_head(const struct wnw__draft *draft, const struct wnw__scored_layer *l, int32_t ih,
                       const wnw_blocks *blocks, int32_t *settled)
{
    const int32_t n_keep = draft->kept.n_keep[ih];
    const int32_t n = draft->selector->recursive->settled(draft->policy->opts[WNW_PART_SELECTOR], blocks,
                                                          l->n_entry[ih], n_keep);
    if (n < 0 || n > n_keep)
        return wnw__fail(WNW_E_RANGE,
                         "selector %s: %d of %d kept entries of layer %d, KV head %d are settled",
                         draft->selector->part.name, n, n_keep, l->il, ih);
    *settled = n < *settled ? n : *settled;
    return WNW_OK;
}

/* A layer without any entry sees nothing of the prompt: the first one is named. */
static void note_empty(struct wnw__draft *draft, const struct wnw__scored_layer *l)
{
    int64_t have = 0, kept = 0;
    for (int32_t ih = 0; ih < draft->src->shape.n_head_kv; ih++) {
        have += l->n_entry[ih];
        kept += draft->kept.n_keep[ih];
    }
    if (draft->empties || have == 0 || kept > 0)
        return;
    draft->empties = true;
    wnw__warn(draft->report->warning, "layer %d keeps nothing: its share of %d entries per head comes to 0",
              l->il, draft->size.budget);
}

int wnw__draft_select_layer(struct wnw__draft *draft, const struct wnw__scored_layer *l,
                            const wnw_observation *obs)
{
    const wnw_blocks blocks = wnw__policy_blocks_with(draft->policy, draft->scorer_opts, l->n_settled);
    const void *opts = draft->policy->opts[WNW_PART_SELECTOR];
    int32_t settled = INT32_MAX;
    WNW_TRY(wnw__draft_count_heads(draft, l));
    wnw__draft_note_protected(draft, l);
    if (draft->selector->scratch)
        WNW_TRY(wnw__draft_reserve(&draft->scratch, draft->selector->scratch(opts, l->row)));
    for (int32_t ih = 0; ih < draft->src->shape.n_head_kv; ih++) {
        const int32_t *keep = draft->kept.keep + (int64_t)ih * draft->cache.row;
        WNW_TRY(select_head(draft, l, ih, &blocks, obs));
        if (draft->selector->recursive)
            WNW_TRY(settle_head(draft, l, ih, &blocks, &settled));
        WNW_TRY(add_head(draft, l->il, ih, keep, draft->kept.n_keep[ih]));
        if (wnw__contents_works(draft->contents))
            WNW_TRY(write_head(draft, l->il, ih, keep, draft->kept.n_keep[ih], obs));
    }
    note_empty(draft, l);
    draft->kept.n_settled = draft->selector->recursive ? settled : 0;
    draft->plan->n_settled[l->il] = draft->kept.n_settled;
    return WNW_OK;
}
