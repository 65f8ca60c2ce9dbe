/* SPDX-License-Identifier: MIT */
/*
 * The only place that knows the order observe -> score -> budget -> select; methods are reached through
 * their descriptors alone. The layers are walked up to three times:
 *
 *     gather    the scorer sees all layers before any is scored                        (few policies)
 *     score     the layer is observed and scored; a layer-local policy also counts and selects
 *     decide    all layers get counts from their scores, then entries are selected     (all_layers)
 *
 * Several drafts walk in step, so that a layer is observed once for all of them.
 */
#include "plan/compress_impl.h"

#include "base/system.h"

#include <stdlib.h>
#include <string.h>

/* ---- The three steps of one draft ---- */

/* Whether there is nothing to decide in layer il. */
static bool keeps_whole(const struct wnw__draft *draft, int32_t il)
{
    if (draft->size.rule == WNW_SIZE_RULE_ALL || !wnw__draft_takes_part(draft, il))
        return true;
    if (draft->size.rule != WNW_SIZE_RULE_MEAN || draft->all_layers)
        return false;
    const int32_t i = draft->cache.rank[il], n_head = draft->src->shape.n_head_kv;
    for (int32_t ih = 0; ih < n_head; ih++)
        if (wnw__draft_entries(draft, il)[ih] >
            (draft->counts ? draft->counts[i * n_head + ih] : draft->layer_budget[i]))
            return false;
    return true;
}

/* Whether something is written into the entries of layer il though all of them stay. */
static bool rewrites_whole(const struct wnw__draft *draft, int32_t il)
{
    return wnw__policy_rewrites_all(draft->policy) && wnw__draft_takes_part(draft, il) &&
           draft->cache.n_max > 0;
}

static bool gather_needs(const struct wnw__draft *draft, int32_t il, wnw_needs *needs)
{
    if (!wnw__draft_takes_part(draft, il) || !draft->gathered[WNW_PART_SCORER])
        return false;
    *needs = wnw__draft_gather_needs(draft);
    return true;
}

static int gather(struct wnw__draft *draft, int32_t il, const wnw_observation *seen)
{
    wnw_observation obs;
    (void)il;
    if (!seen)
        return WNW_OK;
    const double start = wnw__now_ms();
    WNW_TRY(wnw__draft_adapt(draft, seen, &draft->needs, &obs));
    WNW_TRY(wnw__draft_gather(draft, WNW_PART_SCORER, &obs));
    draft->score_ms += wnw__now_ms() - start;
    return WNW_OK;
}

static bool score_needs(const struct wnw__draft *draft, int32_t il, wnw_needs *needs)
{
    const bool whole = keeps_whole(draft, il);
    *needs = whole ? wnw__draft_contents_needs(draft) : wnw__draft_score_needs(draft);
    return !whole || rewrites_whole(draft, il);
}

/* Adds the heads that the step `score` reads. Content rules look at the queries of all heads. */
static int score_heads(struct wnw__draft *draft, int32_t il, bool *used)
{
    if (!keeps_whole(draft, il))
        return wnw__draft_window_heads(draft, il, used);
    for (int32_t h = 0; h < draft->src->shape.n_head; h++)
        used[h] = true;
    return WNW_OK;
}

/* Scores the layer, then selects at once or keeps the scores until all layers are scored. */
static int score(struct wnw__draft *draft, int32_t il, const wnw_observation *seen)
{
    struct wnw__scored_layer l;
    wnw_observation obs;
    if (seen)
        WNW_TRY(wnw__draft_adapt(draft, seen, &draft->needs, &obs));
    const bool whole = keeps_whole(draft, il);
    if (whole && draft->all_layers) /* `decide` writes the plan */
        return WNW_OK;
    if (whole)
        return wnw__draft_keep_layer(draft, il, seen ? &obs : NULL);
    const double start = wnw__now_ms();
    WNW_TRY(wnw__draft_score(draft, &obs, &l));
    draft->score_ms += wnw__now_ms() - start;
    if (!draft->all_layers)
        return wnw__draft_select_layer(draft, &l, &obs);
    for (int32_t k = WNW_PART_SCORER + 1; k < WNW_N_PART_KINDS; k++)
        WNW_TRY(wnw__draft_gather(draft, k, &obs));
    draft->scored[l.i] = l;
    draft->score = draft->head_score = (struct wnw__floats){0};
    return WNW_OK;
}

static bool decide_needs(const struct wnw__draft *draft, int32_t il, wnw_needs *needs)
{
    if (!draft->all_layers || !wnw__draft_takes_part(draft, il) ||
        !(draft->selector->part.needs || draft->contents->part.needs))
        return false;
    *needs = wnw__draft_select_needs(draft);
    return true;
}

static int decide(struct wnw__draft *draft, int32_t il, const wnw_observation *seen)
{
    wnw_observation obs;
    if (!draft->all_layers)
        return WNW_OK;
    if (il == 0 && (draft->size.rule == WNW_SIZE_RULE_MEAN || wnw__draft_own_counts(draft)))
        WNW_TRY(wnw__draft_count_model(draft));
    if (!wnw__draft_takes_part(draft, il))
        return wnw__draft_keep_layer(draft, il, NULL);
    if (seen)
        WNW_TRY(wnw__draft_adapt(draft, seen, &draft->needs, &obs));
    return wnw__draft_select_layer(draft, &draft->scored[draft->cache.rank[il]], seen ? &obs : NULL);
}

static const struct step {
    /* Whether the draft observes layer il, and what it needs of it. */
    bool (*needs)(const struct wnw__draft *draft, int32_t il, wnw_needs *needs);
    /* Adds the query heads whose window attention the step reads. NULL = it reads all. */
    int (*heads)(struct wnw__draft *draft, int32_t il, bool *used);
    /* Does the step; seen = what the draft needs, NULL where it does not observe the layer. */
    int (*act)(struct wnw__draft *draft, int32_t il, const wnw_observation *seen);
} steps[] = {{gather_needs, NULL, gather}, {score_needs, score_heads, score}, {decide_needs, NULL, decide}};
enum { STEP_GATHER, STEP_SCORE, STEP_DECIDE, N_STEP };

/* ---- Several drafts in step ---- */

struct walk {
    struct wnw__draft **drafts;
    int32_t n;
    const struct wnw__plan_source *src;
    bool again; /* the source has the second pass already */
};

/* Adds the time of one observation to every draft that took part in it. */
static void add_observe_ms(const struct walk *w, double ms)
{
    for (int32_t k = 0; k < w->n; k++)
        w->drafts[k]->observe_ms += w->drafts[k]->observes ? ms : 0;
}

/* Observes layer il once for all drafts that need it; *any says whether any does. */
static int observe(const struct walk *w, const struct step *step, int32_t il, bool *any,
                   wnw_observation *seen)
{
    wnw_needs needs = {0};
    bool *heads = w->n > 0 ? w->drafts[0]->all_heads : NULL;
    *any = false;
    for (int32_t h = 0; heads && h < w->src->shape.n_head; h++)
        heads[h] = false;
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__draft *draft = w->drafts[k];
        draft->needs = (wnw_needs){0};
        draft->observes = step->needs(draft, il, &draft->needs);
        if (!draft->observes)
            continue;
        wnw__needs_merge(&needs, &draft->needs);
        if (step->heads)
            WNW_TRY(step->heads(draft, il, heads));
        *any = true;
    }
    if (!*any)
        return WNW_OK;
    const double start = wnw__now_ms();
    *seen = (wnw_observation){0};
    WNW_TRY(w->src->observe(w->src, il, &needs, step->heads ? heads : NULL, seen));
    add_observe_ms(w, wnw__now_ms() - start);
    return WNW_OK;
}

static int walk_layer(const struct walk *w, const struct step *step, int32_t il)
{
    wnw_observation seen;
    bool any;
    WNW_TRY(observe(w, step, il, &any, &seen));
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__draft *draft = w->drafts[k];
        const double start = wnw__now_ms();
        WNW_TRY(step->act(draft, il, draft->observes ? &seen : NULL));
        draft->work_ms += wnw__now_ms() - start;
    }
    return WNW_OK;
}

/* Feeds the second pass, if any draft needs one; its time counts for each draft that does. */
static int feed_second_pass(const struct walk *w)
{
    wnw_needs wanted = {0};
    int32_t n_wanted = 0;
    for (int32_t k = 0; k < w->n; k++) {
        const wnw_needs needs = wnw_policy_needs(w->drafts[k]->policy);
        w->drafts[k]->observes =
            w->drafts[k]->size.rule != WNW_SIZE_RULE_ALL && needs.flags & WNW_NEED_SECOND_PASS;
        if (!w->drafts[k]->observes)
            continue;
        if (n_wanted++ > 0 && !wnw_second_passes_agree(&needs, &wanted))
            return wnw__fail(WNW_E_ARG,
                             "%s feeds other tokens in its second pass than the policies before "
                             "it: plan them one by one",
                             wnw__policy_name(w->drafts[k]->policy));
        wanted = needs;
    }
    if (n_wanted == 0 || w->again || !w->src->second_pass)
        return WNW_OK;
    char warning[WNW_WARNING_SIZE] = "";
    const double start = wnw__now_ms();
    WNW_TRY(w->src->second_pass(w->src, &wanted, warning));
    add_observe_ms(w, wnw__now_ms() - start);
    for (int32_t k = 0; k < w->n && warning[0]; k++)
        if (w->drafts[k]->observes)
            wnw__warn(w->drafts[k]->report->warning, "%s", warning);
    return WNW_OK;
}

/* Has the source generate tokens for each draft that wants their queries. */
static int look_ahead(const struct walk *w)
{
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__draft *draft = w->drafts[k];
        const wnw_needs needs = wnw_policy_needs(draft->policy);
        const struct wnw__shape *m = &w->src->shape;
        const size_t n = (size_t)m->n_layer * (size_t)m->n_head * (size_t)m->d * (size_t)needs.lookahead;
        if (!(needs.flags & WNW_NEED_LOOKAHEAD) || draft->size.rule == WNW_SIZE_RULE_ALL)
            continue;
        if (!w->src->look_ahead)
            return wnw__fail(WNW_E_NOT_OBSERVED,
                             "%s looks at tokens that a copy of the cache generates, which "
                             "cannot be had here",
                             wnw__policy_name(draft->policy));
        const double start = wnw__now_ms();
        draft->lookahead = calloc(n, sizeof *draft->lookahead);
        if (!draft->lookahead)
            return wnw__fail(WNW_E_NOMEM, "out of memory for the queries of %d tokens", (int)needs.lookahead);
        WNW_TRY(w->src->look_ahead(w->src, needs.lookahead, draft->size.mean, draft->lookahead,
                                   &draft->n_lookahead));
        draft->observe_ms += wnw__now_ms() - start;
    }
    return WNW_OK;
}

static int walk_all(const struct walk *w)
{
    WNW_TRY(feed_second_pass(w));
    WNW_TRY(look_ahead(w));
    for (int step = 0; step < N_STEP; step++)
        for (int32_t il = 0; il < w->src->shape.n_layer; il++) {
            WNW_TRY(walk_layer(w, &steps[step], il));
            if (step == STEP_SCORE && w->src->progress && !w->src->progress(w->src, il))
                return wnw__fail(WNW_E_CANCELLED, "cancelled after layer %d of %d", il,
                                 w->src->shape.n_layer);
        }
    return WNW_OK;
}

int wnw__draft_layer(struct wnw__draft *draft, int32_t il, struct wnw__kept_layer *out)
{
    const struct walk w = {.drafts = &draft, .n = 1, .src = draft->src};
    const struct wnw__draft_kept *kept = &draft->kept;
    if (draft->all_layers || draft->gathered[WNW_PART_SCORER])
        return wnw__fail(WNW_E_UNSUPPORTED, "%s cannot compress a layer before it has seen all of them",
                         wnw__policy_name(draft->policy));
    WNW_TRY(walk_layer(&w, &steps[STEP_SCORE], il));
    if (!out)
        return WNW_OK;
    for (int32_t ih = 0; ih < draft->src->shape.n_head_kv; ih++)
        kept->keep_heads[ih] = kept->keep ? kept->keep + (int64_t)ih * draft->cache.row : NULL;
    *out = (struct wnw__kept_layer){.keep = kept->keep_heads,
                                    .n_keep = kept->n_keep,
                                    .n_settled = kept->n_settled,
                                    .contents = wnw__plan_contents_of(draft->plan, il),
                                    .averages = draft->plan->averages};
    return WNW_OK;
}

/* ---- Reports ---- */

void wnw__draft_times(const struct wnw__draft *draft, wnw_report *report)
{
    report->observe_ms += draft->observe_ms;
    report->score_ms += draft->score_ms;
    report->select_ms += draft->work_ms - draft->score_ms;
}

void wnw__draft_protection(const struct wnw__draft *draft, wnw_report *report)
{
    report->protected_first = draft->drops ? draft->min_protected.n_first : draft->src->n_past;
    report->protected_last = draft->drops ? draft->min_protected.n_last : 0;
}

void wnw__report_add(wnw_report *sum, const wnw_report *one)
{
    sum->protected_first = one->protected_first;
    sum->protected_last = one->protected_last;
    sum->observe_ms += one->observe_ms;
    sum->score_ms += one->score_ms;
    sum->select_ms += one->select_ms;
    sum->compact_ms += one->compact_ms;
    if (one->kv_bytes_before > sum->kv_bytes_before)
        sum->kv_bytes_before = one->kv_bytes_before;
    if (*one->warning && !*sum->warning)
        memcpy(sum->warning, one->warning, sizeof sum->warning);
}

static double kept_mean(const struct wnw__draft *draft)
{
    int64_t sum = 0, n_head = 0;
    const int32_t *pos;
    for (int32_t il = 0; il < draft->src->shape.n_layer; il++) {
        if (!wnw__layer_takes_part(&draft->src->shape, il))
            continue; /* layers that the method leaves whole count */
        for (int32_t ih = 0; ih < draft->src->shape.n_head_kv; ih++)
            sum += wnw_plan_head(draft->plan, il, ih, &pos);
        n_head += draft->src->shape.n_head_kv;
    }
    return n_head > 0 ? (double)sum / (double)n_head : 0;
}

/* ---- All at once ---- */

int wnw__draft_walk(struct wnw__draft **drafts, int32_t n, const struct wnw__plan_source *src, bool again)
{
    return walk_all(&(struct walk){.drafts = drafts, .n = n, .src = src, .again = again});
}

wnw_plan *wnw__draft_finish(struct wnw__draft *draft)
{
    wnw_plan *plan = draft->plan;
    draft->report->kept_mean = kept_mean(draft);
    wnw__draft_protection(draft, draft->report);
    draft->report->observe_ms = draft->report->score_ms = draft->report->select_ms = 0;
    wnw__draft_times(draft, draft->report);
    draft->plan = NULL;
    return plan;
}

int wnw__plan_again(wnw_plan **out, const wnw_policy *policy, const wnw_size *size,
                    const struct wnw__plan_source *src, wnw_report *report)
{
    struct wnw__draft *draft;
    *out = NULL;
    WNW_TRY(wnw__draft_new(&draft, policy, size, src, report));
    const int rc = wnw__draft_walk(&draft, 1, src, true);
    if (rc == WNW_OK)
        *out = wnw__draft_finish(draft);
    wnw__draft_free(draft);
    return rc;
}
