/* SPDX-License-Identifier: MIT */
/* Makes a draft: it gets the facts and the memory that it needs before it observes any layer. */
#include "plan/compress_impl.h"

#include "base/system.h"
#include "method/compiler.h"
#include "method/count.h"
#include "winnow_calibrate.h"

#include <stdlib.h>
#include <string.h>

/* ---- The cache ---- */

static int count_entries(struct wnw__draft *draft)
{
    const struct wnw__plan_source *src = draft->src;
    struct wnw__draft_cache *c = &draft->cache;
    const size_t n_layer = (size_t)src->shape.n_layer;
    c->n_entry = calloc(n_layer * (size_t)src->shape.n_head_kv, sizeof *c->n_entry);
    c->rank = calloc(n_layer, sizeof *c->rank);
    c->il = calloc(n_layer, sizeof *c->il);
    if (!c->n_entry || !c->rank || !c->il)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a plan of %d layers", src->shape.n_layer);
    c->n_min = INT32_MAX;
    for (int32_t il = 0; il < src->shape.n_layer; il++) {
        const struct wnw__plan_layer layer = src->layer(src, il);
        const bool takes_part = wnw__policy_takes_layer(draft->policy, &src->shape, il);
        c->rank[il] = takes_part ? c->n_part : -1;
        if (takes_part)
            c->il[c->n_part++] = il;
        for (int32_t ih = 0; ih < src->shape.n_head_kv; ih++) {
            const int32_t n = layer.n_entry[ih];
            c->n_entry[il * src->shape.n_head_kv + ih] = n;
            c->row = n >= c->row ? n + 1 : c->row;
            if (!takes_part)
                continue;
            c->n_max = n > c->n_max ? n : c->n_max;
            c->n_min = n < c->n_min ? n : c->n_min;
            c->n_sum += n;
        }
    }
    return WNW_OK;
}

/* ---- What the policy needs in addition to observations ---- */

/* Leaves a table out that does not serve this policy and size, if it may be left out. */
static int fit_table(struct wnw__draft *draft)
{
    const struct wnw__table_use use = {
        .model = &draft->src->shape, .budget = draft->size.mean, .n_tokens = draft->src->n_past};
    WNW_TRY(wnw__table_fit(&draft->without, draft->policy, draft->profile, &use, draft->report->warning));
    draft->profile = draft->without ? draft->without : draft->profile;
    return WNW_OK;
}

static int check_profile(const struct wnw__draft *draft)
{
    const wnw_needs needs = wnw_policy_needs(draft->policy);
    const uint32_t have = wnw_profile_kinds(draft->src->profile);
    const uint32_t lacking = needs.flags & WNW_NEED_PROFILE ? needs.profiles_optional & ~have : 0;
    WNW_TRY(wnw__policy_check_profile(draft->policy, draft->src->profile));
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++)
        if (lacking >> kind & 1u)
            wnw__warn(draft->report->warning,
                      "no calibration profile of kind %s was given: %s works with neutral values",
                      wnw_profile_kind_name(kind), wnw__policy_name(draft->policy));
    return WNW_OK;
}

/* Whether any head of layer il has an entry before position pos. */
static bool has_before(const struct wnw__plan_source *src, int32_t il, int32_t pos)
{
    const struct wnw__plan_layer l = src->layer(src, il);
    for (int32_t ih = 0; ih < src->shape.n_head_kv; ih++)
        if (l.n_entry[ih] > 0 && l.pos[l.off[ih]] < pos)
            return true;
    return false;
}

/* Refuses policies that do not work on a cache whose keys were turned to new positions. */
static int check_renumbered(const struct wnw__draft *draft)
{
    const struct wnw__plan_source *src = draft->src;
    const uint32_t matches = wnw__policy_matches(draft->policy);
    bool ambiguous = false;
    for (int32_t il = 0; il < src->shape.n_layer; il++)
        if (matches == WNW_FLAG_MATCHES_LAYERS)
            ambiguous = ambiguous || has_before(src, il, src->n_ambiguous);
        else if (matches == WNW_FLAG_MATCHES_HEADS && wnw__draft_takes_part(draft, il))
            ambiguous = ambiguous || has_before(src, il, src->layer(src, il).n_ambiguous);
    if (ambiguous)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "%s puts heads together by position, and since the kept tokens got new positions each "
            "head has another token there; use a policy that looks at every head by itself",
            wnw__policy_name(draft->policy));
    if (src->n_renumbered > 0 && wnw__policy_counts_age(draft->policy))
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "%s divides by the number of queries that have seen an entry, which new positions "
                         "do not tell",
                         wnw__policy_name(draft->policy));
    return WNW_OK;
}

static int ask_perplexity(struct wnw__draft *draft)
{
    if (!(wnw_policy_needs(draft->policy).flags & WNW_NEED_PERPLEXITY))
        return WNW_OK;
    if (!draft->src->perplexity)
        return wnw__fail(WNW_E_NOT_OBSERVED, "%s needs the prompt's perplexity, which was not observed",
                         wnw__policy_name(draft->policy));
    return draft->src->perplexity(draft->src, wnw__policy_perplexity_window(draft->policy),
                                  &draft->perplexity);
}

/* ---- Memory ---- */

static int hold_options(struct wnw__draft *draft)
{
    const size_t size = draft->scorer->part.options_size;
    draft->scorer_opts = calloc(1, size + 1);
    if (!draft->scorer_opts)
        return wnw__fail(WNW_E_NOMEM, "out of memory for the options of %s", wnw__policy_name(draft->policy));
    memcpy(draft->scorer_opts, draft->policy->opts[WNW_PART_SCORER], size);
    return WNW_OK;
}

static int hold_heads(struct wnw__draft *draft)
{
    const size_t n_head = (size_t)draft->src->shape.n_head_kv;
    struct wnw__draft_kept *kept = &draft->kept;
    kept->n_keep = calloc(n_head, sizeof *kept->n_keep);
    kept->n_safe = calloc(n_head, sizeof *kept->n_safe);
    kept->prot = calloc(n_head, sizeof *kept->prot);
    kept->keep_heads = calloc(n_head, sizeof *kept->keep_heads);
    draft->heads = calloc((size_t)draft->src->shape.n_head, sizeof *draft->heads);
    draft->all_heads = calloc((size_t)draft->src->shape.n_head, sizeof *draft->all_heads);
    return kept->n_keep && kept->n_safe && kept->prot && kept->keep_heads && draft->heads && draft->all_heads
               ? WNW_OK
               : wnw__fail(WNW_E_NOMEM, "out of memory for a plan of %d heads", draft->src->shape.n_head);
}

static int hold_kept(struct wnw__draft *draft)
{
    struct wnw__draft_kept *kept = &draft->kept;
    const size_t row = (size_t)draft->cache.row + 1;
    const bool writes = wnw__contents_works(draft->contents), notes = wnw__draft_notes(draft),
               averages = draft->contents->averages;
    if (draft->size.rule == WNW_SIZE_RULE_ALL && !writes)
        return WNW_OK;
    kept->keep = calloc((size_t)draft->src->shape.n_head_kv * row, sizeof *kept->keep);
    if (notes)
        WNW_TRY(wnw__draft_reserve(&draft->note, 2 * row));
    if (writes || notes)
        WNW_TRY(wnw__plan_begin_contents(draft->plan, averages));
    if (writes) {
        kept->merges = calloc(row, sizeof *kept->merges);
        kept->channels = calloc((size_t)draft->src->shape.d + 1, sizeof *kept->channels);
    }
    return kept->keep && (!writes || (kept->merges && kept->channels))
               ? WNW_OK
               : wnw__fail(WNW_E_NOMEM, "out of memory for %d entries", draft->cache.n_max);
}

static int hold_gathered(struct wnw__draft *draft)
{
    const wnw_shape shape = {.n_layer = draft->src->shape.n_layer,
                             .n_head = draft->src->shape.n_head,
                             .n_head_kv = draft->src->shape.n_head_kv,
                             .n_embd_head = draft->src->shape.d,
                             .n_past = draft->src->n_past};
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        const wnw_gather *g = draft->policy->part[k].head.gather;
        const size_t n = g ? g->size(draft->policy->opts[k], &shape) : 0;
        if (n == 0)
            continue;
        draft->gathered[k] =
            n < SIZE_MAX / sizeof **draft->gathered / 2 ? calloc(n, sizeof **draft->gathered) : NULL;
        if (!draft->gathered[k])
            return wnw__fail(WNW_E_NOMEM, "out of memory for %zu gathered numbers", n);
    }
    return WNW_OK;
}

static int hold_layers(struct wnw__draft *draft)
{
    const size_t n = (size_t)draft->cache.n_part;
    const bool sized = draft->size.rule == WNW_SIZE_RULE_MEAN;
    draft->all_layers =
        ((sized || wnw__draft_own_counts(draft)) && wnw__policy_sees_all_layers(draft->policy)) ||
        draft->gathered[WNW_PART_SELECTOR] != NULL;
    draft->layer_budget = calloc(n, sizeof *draft->layer_budget);
    draft->layer_work = calloc(n, sizeof *draft->layer_work);
    draft->layer_length = calloc(n, sizeof *draft->layer_length);
    draft->scored = draft->all_layers ? calloc(n, sizeof *draft->scored) : NULL;
    return draft->layer_budget && draft->layer_work && draft->layer_length &&
                   (!draft->all_layers || draft->scored)
               ? WNW_OK
               : wnw__fail(WNW_E_NOMEM, "out of memory for the scores of %d layers", draft->cache.n_part);
}

/* ---- Beginning and end ---- */

static int prepare_sized(struct wnw__draft *draft)
{
    WNW_TRY(wnw__draft_fit_protected(draft));
    if (draft->selector->advise) {
        const wnw_protected prot =
            wnw__protected_shrink(wnw__draft_protected(draft, draft->cache.n_max), draft->size.budget);
        draft->selector->advise(draft->policy->opts[WNW_PART_SELECTOR], &prot, draft->size.budget,
                                draft->policy->rounding, draft->report->warning);
    }
    if (wnw__policy_sees_all_layers(draft->policy))
        return WNW_OK; /* all layers are scored first */
    return wnw__head_budget_of(draft->policy)->allocate_model ? wnw__draft_count_model(draft)
                                                              : wnw__draft_count_layers(draft);
}

static int prepare(struct wnw__draft *draft, const wnw_size *size)
{
    const struct wnw__plan_source *src = draft->src;
    WNW_TRY(wnw__plan_begin(&draft->plan, src->shape.n_layer, src->shape.n_head_kv, src->n_past));
    WNW_TRY(count_entries(draft));
    WNW_TRY(hold_options(draft));
    WNW_TRY(hold_heads(draft));
    WNW_TRY(wnw__draft_resolve_size(draft, size));
    WNW_TRY(hold_kept(draft));
    if (draft->size.rule == WNW_SIZE_RULE_ALL)
        return WNW_OK;
    WNW_TRY(check_renumbered(draft));
    WNW_TRY(check_profile(draft));
    WNW_TRY(fit_table(draft));
    WNW_TRY(ask_perplexity(draft));
    WNW_TRY(hold_gathered(draft));
    WNW_TRY(hold_layers(draft));
    return draft->size.rule == WNW_SIZE_RULE_MEAN ? prepare_sized(draft) : WNW_OK;
}

int wnw__draft_new(struct wnw__draft **out, const wnw_policy *policy, const wnw_size *size,
                   const struct wnw__plan_source *src, wnw_report *report)
{
    const double start = wnw__now_ms();
    *out = NULL;
    struct wnw__draft *draft = calloc(1, sizeof *draft);
    if (!draft)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a plan");
    draft->src = src;
    draft->profile = src->profile;
    draft->policy = policy;
    draft->scorer = wnw__scorer_of(policy);
    draft->aggregation = wnw__aggregation_of(policy);
    draft->selector = wnw__selector_of(policy);
    draft->contents = wnw__contents_of(policy);
    draft->report = report ? report : &draft->unused_report;
    draft->report->warning[0] = '\0';
    const int rc = prepare(draft, size);
    if (rc != WNW_OK) {
        wnw__draft_free(draft);
        return rc;
    }
    draft->work_ms = wnw__now_ms() - start;
    *out = draft;
    return WNW_OK;
}

void wnw__draft_free(struct wnw__draft *draft)
{
    if (!draft)
        return;
    for (int32_t i = 0; draft->scored && i < draft->cache.n_part; i++) {
        free(draft->scored[i].score);
        free(draft->scored[i].head_score);
    }
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        free(draft->gathered[k]);
    void *const owned[] = {
        draft->without,         draft->cache.n_entry, draft->cache.rank,   draft->cache.il,
        draft->scorer_opts,     draft->scored,        draft->layer_budget, draft->layer_work,
        draft->layer_length,    draft->counts,        draft->score.x,      draft->head_score.x,
        draft->scratch.x,       draft->heads,         draft->all_heads,    draft->kept.keep,
        draft->kept.keep_heads, draft->kept.n_keep,   draft->kept.n_safe,  draft->kept.prot,
        draft->kept.merges,     draft->kept.channels, draft->fitted.x,     draft->lookahead,
        draft->note.x};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    wnw_plan_free(draft->plan);
    free(draft);
}
