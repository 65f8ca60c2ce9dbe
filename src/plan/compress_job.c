/* SPDX-License-Identifier: MIT */
/* Makes a job: it gets the facts and the memory that it needs before it looks at any layer. */
#include "plan/compress_impl.h"

#include "base/system.h"
#include "policy/count.h"
#include "policy/table_fit.h"

#include <stdlib.h>
#include <string.h>

int wnw__job_reserve(struct wnw__floats *f, size_t n)
{
    if (n <= f->cap && f->at)
        return WNW_OK;
    free(f->at);
    f->at = n < SIZE_MAX / sizeof *f->at ? malloc((n + 1) * sizeof *f->at) : NULL;
    f->cap = f->at ? n + 1 : 0;
    return f->at ? WNW_OK : wnw__fail(WNW_E_NOMEM, "out of memory for %zu scores", n);
}

/* ---- The cache ---- */

static int count_entries(struct wnw__plan_job *j)
{
    const struct wnw__plan_source *src = j->src;
    struct wnw__job_cache *c = &j->cache;
    const size_t n_layer = (size_t)src->shape.n_layer;
    c->n_entry = calloc(n_layer * (size_t)src->shape.n_head_kv, sizeof *c->n_entry);
    c->part = calloc(n_layer, sizeof *c->part);
    c->il = calloc(n_layer, sizeof *c->il);
    if (!c->n_entry || !c->part || !c->il)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a plan of %d layers", src->shape.n_layer);
    c->n_min = INT32_MAX;
    for (int32_t il = 0; il < src->shape.n_layer; il++) {
        const struct wnw__plan_layer layer = src->layer(src, il);
        const bool takes_part = wnw__policy_takes_layer(j->policy, &src->shape, il);
        c->part[il] = takes_part ? c->n_part : -1;
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

/* ---- What the policy needs besides observations ---- */

/* Leaves a table out that does not serve this policy and size, if it may be left out. */
static int fit_table(struct wnw__plan_job *j)
{
    const struct wnw__table_use use = {.model = &j->src->shape, .budget = j->size.mean};
    WNW_TRY(wnw__table_fit(&j->without, j->policy, j->profile, &use, j->report->warning));
    j->profile = j->without ? j->without : j->profile;
    return WNW_OK;
}

static int check_profile(const struct wnw__plan_job *j)
{
    const wnw_needs needs = wnw_policy_needs(j->policy);
    const uint32_t have = wnw_profile_kinds(j->src->profile);
    const uint32_t lacking = needs.flags & WNW_NEED_PROFILE ? needs.profiles_optional & ~have : 0;
    WNW_TRY(wnw__policy_check_profile(j->policy, j->src->profile));
    for (int32_t kind = 0; kind < WNW_N_PROFILE_KINDS; kind++)
        if (lacking >> kind & 1u)
            wnw__warn(j->report->warning,
                      "no calibration profile of kind %s was given: %s works with neutral values",
                      wnw_profile_kind_name(kind), wnw__policy_name(j->policy));
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
static int check_renumbered(const struct wnw__plan_job *j)
{
    const struct wnw__plan_source *src = j->src;
    const uint32_t matches = wnw__policy_matches(j->policy);
    bool ambiguous = false;
    for (int32_t il = 0; il < src->shape.n_layer; il++)
        if (matches == WNW_FLAG_MATCHES_LAYERS)
            ambiguous = ambiguous || has_before(src, il, src->n_ambiguous);
        else if (matches == WNW_FLAG_MATCHES_HEADS && wnw__job_takes_part(j, il))
            ambiguous = ambiguous || has_before(src, il, src->layer(src, il).n_ambiguous);
    if (ambiguous)
        return wnw__fail(
            WNW_E_UNSUPPORTED,
            "%s puts heads together by position, and since the kept tokens got new positions each "
            "head has another token there; use a policy that looks at every head by itself",
            wnw__policy_name(j->policy));
    if (src->n_renumbered > 0 && wnw__policy_counts_age(j->policy))
        return wnw__fail(WNW_E_UNSUPPORTED,
                         "%s divides by the number of queries that have seen an entry, which new positions "
                         "do not tell",
                         wnw__policy_name(j->policy));
    return WNW_OK;
}

static int ask_perplexity(struct wnw__plan_job *j)
{
    if (!(wnw_policy_needs(j->policy).flags & WNW_NEED_PERPLEXITY))
        return WNW_OK;
    if (!j->src->perplexity)
        return wnw__fail(WNW_E_NOT_OBSERVED, "%s needs the prompt's perplexity, which was not observed",
                         wnw__policy_name(j->policy));
    return j->src->perplexity(j->src, wnw__policy_perplexity_window(j->policy), &j->perplexity);
}

/* ---- Memory ---- */

static int hold_options(struct wnw__plan_job *j)
{
    const size_t size = j->scorer->part.options_size;
    j->scorer_opts = calloc(1, size + 1);
    if (!j->scorer_opts)
        return wnw__fail(WNW_E_NOMEM, "out of memory for the options of %s", wnw__policy_name(j->policy));
    memcpy(j->scorer_opts, j->policy->opts[WNW_PART_SCORER], size);
    return WNW_OK;
}

static int hold_heads(struct wnw__plan_job *j)
{
    const size_t n_head = (size_t)j->src->shape.n_head_kv;
    struct wnw__job_kept *kept = &j->kept;
    kept->n_keep = calloc(n_head, sizeof *kept->n_keep);
    kept->n_safe = calloc(n_head, sizeof *kept->n_safe);
    kept->prot = calloc(n_head, sizeof *kept->prot);
    kept->keep_heads = calloc(n_head, sizeof *kept->keep_heads);
    j->heads = calloc((size_t)j->src->shape.n_head, sizeof *j->heads);
    j->all_heads = calloc((size_t)j->src->shape.n_head, sizeof *j->all_heads);
    return kept->n_keep && kept->n_safe && kept->prot && kept->keep_heads && j->heads && j->all_heads
               ? WNW_OK
               : wnw__fail(WNW_E_NOMEM, "out of memory for a plan of %d heads", j->src->shape.n_head);
}

static int hold_kept(struct wnw__plan_job *j)
{
    struct wnw__job_kept *kept = &j->kept;
    const size_t row = (size_t)j->cache.row + 1;
    const bool writes = wnw__contents_works(j->contents),
               averages = wnw__policy_has(j->policy, WNW_PART_CONTENTS, WNW_FLAG_AVERAGES);
    if (j->size.rule == WNW_SIZE_RULE_ALL && !writes)
        return WNW_OK;
    kept->keep = calloc((size_t)j->src->shape.n_head_kv * row, sizeof *kept->keep);
    if (writes) {
        WNW_TRY(wnw__plan_begin_contents(j->plan, averages));
        kept->merges = calloc(row, sizeof *kept->merges);
        kept->channels = calloc((size_t)j->src->shape.d + 1, sizeof *kept->channels);
    }
    return kept->keep && (!writes || (kept->merges && kept->channels))
               ? WNW_OK
               : wnw__fail(WNW_E_NOMEM, "out of memory for %d entries", j->cache.n_max);
}

static int hold_gathered(struct wnw__plan_job *j)
{
    const wnw_shape shape = {.n_layer = j->src->shape.n_layer,
                             .n_head = j->src->shape.n_head,
                             .n_head_kv = j->src->shape.n_head_kv,
                             .n_embd_head = j->src->shape.d,
                             .n_past = j->src->n_past};
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++) {
        const wnw_gather *g = j->policy->part[k].head.gather;
        const size_t n = g ? g->size(j->policy->opts[k], &shape) : 0;
        if (n == 0)
            continue;
        j->gathered[k] = n < SIZE_MAX / sizeof **j->gathered / 2 ? calloc(n, sizeof **j->gathered) : NULL;
        if (!j->gathered[k])
            return wnw__fail(WNW_E_NOMEM, "out of memory for %zu gathered numbers", n);
    }
    return WNW_OK;
}

static int hold_layers(struct wnw__plan_job *j)
{
    const size_t n = (size_t)j->cache.n_part;
    const bool sized = j->size.rule == WNW_SIZE_RULE_MEAN;
    j->all_layers =
        (sized && wnw__policy_sees_all_layers(j->policy)) || j->gathered[WNW_PART_SELECTOR] != NULL;
    j->layer_budget = calloc(n, sizeof *j->layer_budget);
    j->layer_work = calloc(n, sizeof *j->layer_work);
    j->scored = j->all_layers ? calloc(n, sizeof *j->scored) : NULL;
    return j->layer_budget && j->layer_work && (!j->all_layers || j->scored)
               ? WNW_OK
               : wnw__fail(WNW_E_NOMEM, "out of memory for the scores of %d layers", j->cache.n_part);
}

/* ---- Beginning and end ---- */

static int prepare_sized(struct wnw__plan_job *j)
{
    WNW_TRY(wnw__job_fit_protected(j));
    if (j->selector->advise) {
        const wnw_protected prot =
            wnw__protected_shrink(wnw__job_protected(j, j->cache.n_max), j->size.budget);
        j->selector->advise(j->policy->opts[WNW_PART_SELECTOR], &prot, j->size.budget, j->policy->rounding,
                            j->report->warning);
    }
    if (wnw__policy_sees_all_layers(j->policy))
        return WNW_OK; /* all layers are scored first */
    return wnw__head_budget_of(j->policy)->allocate_model ? wnw__job_count_model(j)
                                                          : wnw__job_count_layers(j);
}

static int prepare(struct wnw__plan_job *j, const wnw_size *size)
{
    const struct wnw__plan_source *src = j->src;
    WNW_TRY(wnw__plan_begin(&j->plan, src->shape.n_layer, src->shape.n_head_kv, src->n_past));
    WNW_TRY(count_entries(j));
    WNW_TRY(hold_options(j));
    WNW_TRY(hold_heads(j));
    WNW_TRY(wnw__job_resolve_size(j, size));
    WNW_TRY(hold_kept(j));
    if (j->size.rule == WNW_SIZE_RULE_ALL)
        return WNW_OK;
    WNW_TRY(check_renumbered(j));
    WNW_TRY(check_profile(j));
    WNW_TRY(fit_table(j));
    WNW_TRY(ask_perplexity(j));
    WNW_TRY(hold_gathered(j));
    WNW_TRY(hold_layers(j));
    return j->size.rule == WNW_SIZE_RULE_MEAN ? prepare_sized(j) : WNW_OK;
}

int wnw__plan_job_new(struct wnw__plan_job **out, const wnw_policy *policy, const wnw_size *size,
                      const struct wnw__plan_source *src, wnw_report *report)
{
    const double start = wnw__now_ms();
    *out = NULL;
    struct wnw__plan_job *j = calloc(1, sizeof *j);
    if (!j)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a plan");
    j->src = src;
    j->profile = src->profile;
    j->policy = policy;
    j->scorer = wnw__scorer_of(policy);
    j->aggregation = wnw__aggregation_of(policy);
    j->selector = wnw__selector_of(policy);
    j->contents = wnw__contents_of(policy);
    j->report = report ? report : &j->unused_report;
    j->report->warning[0] = '\0';
    const int rc = prepare(j, size);
    if (rc != WNW_OK) {
        wnw__plan_job_free(j);
        return rc;
    }
    j->work_ms = wnw__now_ms() - start;
    *out = j;
    return WNW_OK;
}

void wnw__plan_job_free(struct wnw__plan_job *j)
{
    if (!j)
        return;
    for (int32_t i = 0; j->scored && i < j->cache.n_part; i++) {
        free(j->scored[i].score);
        free(j->scored[i].head_score);
    }
    for (int32_t k = 0; k < WNW_N_PART_KINDS; k++)
        free(j->gathered[k]);
    void *const owned[] = {j->without,         j->cache.n_entry, j->cache.part,  j->cache.il,  j->scorer_opts,
                           j->scored,          j->layer_budget,  j->layer_work,  j->counts,    j->score.at,
                           j->head_score.at,   j->scratch.at,    j->heads,       j->all_heads, j->kept.keep,
                           j->kept.keep_heads, j->kept.n_keep,   j->kept.n_safe, j->kept.prot, j->kept.merges,
                           j->kept.channels};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    wnw_plan_free(j->plan);
    free(j);
}
