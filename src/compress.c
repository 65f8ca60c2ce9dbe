/* SPDX-License-Identifier: MIT */
/*
 * The only place that knows the order observe -> score -> budget -> select; methods are reached through
 * their descriptors alone. A job is one policy at work. Its layers go one by one:
 *
 *     gather    what the scorer wants to know of all layers first                      (few policies)
 *     score     observe the layer, score it; count and select too where the policy is layer-local
 *     settle    counts of all layers from their scores, then select                    (model scope)
 *
 * Several jobs walk in step, so that a layer is observed once for all of them.
 */
#include "compress_impl.h"

#include "base/time.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making a job
 * ------------------------------------------------------------------------------------------- */

static int count_entries(struct wnw__plan_job *j)
{
    const struct wnw__plan_source *src = j->src;
    const size_t n_head = (size_t)src->n_head_kv;
    j->n_entry = calloc((size_t)src->n_layer * n_head, sizeof *j->n_entry);
    j->part_il = calloc((size_t)src->n_layer, sizeof *j->part_il);
    j->n_keep = calloc(n_head, sizeof *j->n_keep);
    j->n_safe = calloc(n_head, sizeof *j->n_safe);
    j->prot = calloc(n_head, sizeof *j->prot);
    j->keep_heads = calloc(n_head, sizeof *j->keep_heads);
    if (!j->n_entry || !j->part_il || !j->n_keep || !j->n_safe || !j->prot || !j->keep_heads)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a plan of %d layers", src->n_layer);
    j->n_min = INT32_MAX;
    for (int32_t il = 0; il < src->n_layer; il++) {
        const bool skipped = wnw__job_skips(j, il);
        if (!skipped)
            j->part_il[j->n_part++] = il;
        for (int32_t ih = 0; ih < src->n_head_kv; ih++) {
            const int32_t n = src->n_entry(src, il, ih);
            j->n_entry[il * src->n_head_kv + ih] = n;
            j->keep_row = n >= j->keep_row ? n + 1 : j->keep_row;
            if (skipped)
                continue;
            j->n_max = n > j->n_max ? n : j->n_max;
            j->n_min = n < j->n_min ? n : j->n_min;
            j->n_sum += n;
        }
    }
    return WNW_OK;
}

static int copy_scorer_opts(struct wnw__plan_job *j)
{
    const struct wnw__part *part = &j->policy->part[WNW_PART_SCORER];
    j->scorer_opts = calloc(1, part->options_size + 1);
    if (!j->scorer_opts)
        return wnw__fail(WNW_E_NOMEM, "out of memory for the options of %s", part->name);
    memcpy(j->scorer_opts, j->policy->opts[WNW_PART_SCORER], part->options_size);
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
                      wnw_profile_kind_name(kind), j->scorer->name);
    return WNW_OK;
}

/* The problem as far as it is known before any layer is scored. */
static struct wnw__layer_problem layer_problem(const struct wnw__plan_job *j)
{
    const wnw_protected p = wnw__protected_shrink(wnw__job_protected(j, j->n_max), j->budget);
    return (struct wnw__layer_problem){.n_layer = j->n_part,
                                       .n = j->n_max,
                                       .n_protected = p.n_first + p.n_last,
                                       .budget = j->budget,
                                       .mean = j->mean,
                                       .ratio = j->ratio,
                                       .rounding = wnw__policy_rounding(j->policy),
                                       .il = j->part_il,
                                       .n_layer_model = j->src->n_layer,
                                       .n_head = j->src->n_head,
                                       .n_head_kv = j->src->n_head_kv,
                                       .profile = j->src->profile,
                                       .perplexity = j->perplexity,
                                       .work = j->layer_work};
}

static int allocate_layers(struct wnw__plan_job *j, const struct wnw__layer_problem *p)
{
    WNW_TRY(
        j->layer->allocate(j->policy->opts[WNW_PART_LAYER_BUDGET], p, j->layer_budget, j->report->warning));
    for (int32_t i = 0; i < j->n_part; i++) {
        j->layer_budget[i] = j->layer_budget[i] < 0          ? 0
                             : j->layer_budget[i] > j->n_max ? j->n_max
                                                             : j->layer_budget[i];
    }
    return WNW_OK;
}

static int alloc_gathered(double **out, size_t n)
{
    *out = n > 0 ? calloc(n, sizeof **out) : NULL;
    return n == 0 || *out ? WNW_OK : wnw__fail(WNW_E_NOMEM, "out of memory for %zu gathered numbers", n);
}

static int job_prepare(struct wnw__plan_job *j, const wnw_size *size)
{
    const struct wnw__plan_source *src = j->src;
    const size_t n_head = (size_t)src->n_head_kv;
    const void *layer_opts = j->policy->opts[WNW_PART_LAYER_BUDGET];
    WNW_TRY(wnw__plan_begin(&j->plan, src->n_layer, src->n_head_kv, src->n_past));
    WNW_TRY(count_entries(j));
    WNW_TRY(wnw__job_size(j, size));
    if (j->keep_all || j->n_part == 0) {
        j->keep_all = true;
        return WNW_OK;
    }
    WNW_TRY(check_profile(j));
    WNW_TRY(copy_scorer_opts(j));
    j->keep = calloc(n_head * (size_t)j->keep_row, sizeof *j->keep);
    j->layer_budget = calloc((size_t)j->n_part, sizeof *j->layer_budget);
    j->layer_work = calloc((size_t)j->n_part, sizeof *j->layer_work);
    if (!j->keep || !j->layer_budget || !j->layer_work)
        return wnw__fail(WNW_E_NOMEM, "out of memory for %d entries", j->n_max);
    const wnw_needs needs = wnw_policy_needs(j->policy);
    if (needs.flags & WNW_NEED_PERPLEXITY) {
        if (!src->perplexity)
            return wnw__fail(WNW_E_NOT_OBSERVED, "%s needs the prompt's perplexity, which was not observed",
                             j->scorer->name);
        WNW_TRY(src->perplexity(src, needs.window, &j->perplexity));
    }
    if (j->own && j->own->collect)
        WNW_TRY(alloc_gathered(&j->collected, j->own->collect_size(j->scorer_opts, src->n_past)));
    if (j->own_size)
        return WNW_OK;
    WNW_TRY(wnw__job_fit_protected(j, size));
    if (!j->model_scope) {
        const struct wnw__layer_problem p = layer_problem(j);
        return allocate_layers(j, &p);
    }
    j->scored = calloc((size_t)j->n_part, sizeof *j->scored);
    if (!j->scored)
        return wnw__fail(WNW_E_NOMEM, "out of memory for the scores of %d layers", j->n_part);
    if (j->layer->collect_size)
        WNW_TRY(alloc_gathered(&j->measured, j->layer->collect_size(layer_opts, src->n_past)));
    if (j->head->measure)
        WNW_TRY(alloc_gathered(&j->head_stat, (size_t)j->n_part * n_head));
    return alloc_gathered(&j->stat, (size_t)j->n_part * (size_t)j->layer->n_stat);
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
    j->policy = policy;
    j->scorer = policy->part[WNW_PART_SCORER].scorer;
    j->own = policy->part[WNW_PART_SCORER].own;
    j->layer = policy->part[WNW_PART_LAYER_BUDGET].layer;
    j->head = policy->part[WNW_PART_HEAD_BUDGET].head;
    j->selector = policy->part[WNW_PART_SELECTOR].selector;
    j->model_scope = j->layer->model_scope || j->head->allocate_model;
    j->report = report ? report : &j->unused_report;
    j->report->warning[0] = '\0';
    const int rc = job_prepare(j, size);
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
    for (int32_t i = 0; j->scored && i < j->n_part; i++)
        free(j->scored[i].score);
    free(j->scored);
    wnw_plan_free(j->plan);
    free(j->n_entry);
    free(j->part_il);
    free(j->n_keep);
    free(j->n_safe);
    free(j->prot);
    free(j->keep_heads);
    free(j->scorer_opts);
    free(j->layer_budget);
    free(j->collected);
    free(j->measured);
    free(j->stat);
    free(j->head_stat);
    free(j->layer_work);
    free(j->counts);
    free(j->score);
    free(j->scratch);
    free(j->keep);
    free(j);
}

/* ---- Observing
 * ---------------------------------------------------------------------------------------------- */

static wnw_needs selector_needs(const struct wnw__plan_job *j)
{
    wnw_needs needs = {0};
    if (j->selector->needs)
        j->selector->needs(j->policy->opts[WNW_PART_SELECTOR], &needs);
    return needs;
}

static wnw_needs gather_needs(const struct wnw__plan_job *j)
{
    wnw_needs needs = {0};
    j->own->collect_needs(j->scorer_opts, &needs);
    return needs;
}

/* What the job wants to see of a layer when it is scored. */
static wnw_needs score_needs(const struct wnw__plan_job *j)
{
    wnw_needs needs = {0};
    if (j->scorer->needs)
        j->scorer->needs(j->scorer_opts, &needs);
    if (j->layer->measure && j->layer->needs) {
        wnw_needs more = {0};
        j->layer->needs(j->policy->opts[WNW_PART_LAYER_BUDGET], &more);
        wnw__needs_merge(&needs, &more);
    }
    if (j->head->measure && j->head->needs) {
        wnw_needs more = {0};
        j->head->needs(j->policy->opts[WNW_PART_HEAD_BUDGET], &more);
        wnw__needs_merge(&needs, &more);
    }
    if (!j->model_scope) {
        const wnw_needs more = selector_needs(j);
        wnw__needs_merge(&needs, &more);
    }
    return needs;
}

static int check_observation(const struct wnw__plan_job *j, const wnw_needs *needs,
                             const wnw_observation *obs)
{
    const struct {
        uint32_t flag;
        bool there;
        const char *what;
    } rows[] = {
        {WNW_NEED_WINDOW_ATTN, obs->window_attn && obs->n_window > 0, "window attention"},
        {WNW_NEED_KEYS, obs->keys != NULL, "keys"},
        {WNW_NEED_VALUES, obs->values != NULL, "values"},
        {WNW_NEED_ATTN_SUM, obs->attn_sum != NULL, "attention sums"},
        {WNW_NEED_ATTN_MAX, obs->attn_max != NULL, "attention maxima"},
        {WNW_NEED_PROJ_NORM, obs->proj_norm != NULL, "projected value norms"},
        {WNW_NEED_QUERY_STATS, obs->query_mean && obs->query_cov, "query statistics"},
        {WNW_NEED_QUERIES, obs->queries != NULL, "queries"},
        {WNW_NEED_SECOND_PASS, obs->pass2_max && obs->pass2_sum, "a second pass"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((needs->flags & rows[i].flag) && !rows[i].there)
            return wnw__fail(WNW_E_NOT_OBSERVED,
                             "%s needs %s of layer %d, which was not observed; declare the policy before "
                             "prefill",
                             j->scorer->name, rows[i].what, obs->il);
    return WNW_OK;
}

/* The observation as this job sees it. */
static int adapt(const struct wnw__plan_job *j, const wnw_observation *seen, const wnw_needs *needs,
                 wnw_observation *obs)
{
    WNW_TRY(check_observation(j, needs, seen));
    *obs = *seen;
    obs->budget = j->mean;
    obs->n_final = j->src->n_final ? j->src->n_final(j->src, seen->il) : 0;
    obs->collected = j->collected;
    obs->profile = j->src->profile;
    obs->perplexity = j->perplexity;
    return WNW_OK;
}

/* ---- One layer
 * ---------------------------------------------------------------------------------------------- */

static int reserve(float **buf, size_t *cap, size_t n)
{
    if (n <= *cap && *buf)
        return WNW_OK;
    free(*buf);
    *cap = n + 1;
    *buf = malloc(*cap * sizeof **buf);
    if (!*buf)
        *cap = 0;
    return *buf ? WNW_OK : wnw__fail(WNW_E_NOMEM, "out of memory for %zu scores", n);
}

static int add_head(struct wnw__plan_job *j, int32_t il, int32_t ih, const int32_t *keep, int32_t n)
{
    const int32_t *pos = j->src->positions(j->src, il, ih);
    int32_t *to = wnw__plan_add_head(j->plan, n);
    if (!to)
        return wnw__fail(WNW_E_NOMEM, "out of memory for a plan");
    for (int32_t i = 0; i < n; i++)
        to[i] = pos[keep ? keep[i] : i];
    return WNW_OK;
}

/* Everything of the layer stays, whatever is settled stays settled. */
static int keep_layer(struct wnw__plan_job *j, int32_t il)
{
    j->n_final = j->src->n_final ? j->src->n_final(j->src, il) : 0;
    j->plan->n_final[il] = j->n_final;
    for (int32_t ih = 0; ih < j->src->n_head_kv; ih++) {
        const int32_t n = j->n_entry[il * j->src->n_head_kv + ih];
        j->n_keep[ih] = n;
        for (int32_t i = 0; j->keep && i < n; i++)
            j->keep[ih * j->keep_row + i] = i;
        WNW_TRY(add_head(j, il, ih, NULL, n));
    }
    return WNW_OK;
}

static int score_layer(struct wnw__plan_job *j, const wnw_observation *obs)
{
    const size_t n_score = (size_t)obs->n_head_kv * (size_t)obs->n;
    const size_t n_scratch = j->scorer->scratch ? j->scorer->scratch(j->scorer_opts, obs) : 0;
    WNW_TRY(reserve(&j->score, &j->score_cap, n_score));
    WNW_TRY(reserve(&j->scratch, &j->scratch_cap, n_scratch > n_score ? n_scratch : n_score));
    const double start = wnw__now_ms();
    WNW_TRY(j->scorer->score(j->scorer_opts, obs, j->score, j->scratch));
    j->score_ms += wnw__now_ms() - start;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            if (isnan(j->score[(int64_t)ih * obs->n + i]))
                return wnw__fail(WNW_E_BACKEND, "scorer %s gave no number for layer %d, KV head %d, entry %d",
                                 j->scorer->name, obs->il, ih, i);
    return WNW_OK;
}

/* Blocks of the scorer, which may have shrunk; behind what is settled, if anything is. */
static struct wnw__blocks blocks_of(const struct wnw__plan_job *j, int32_t n_final)
{
    struct wnw__blocks b = {0};
    if (j->own && j->own->blocks)
        j->own->blocks(j->scorer_opts, &b);
    if (b.lag > 0 && n_final > 0)
        b.sink = n_final;
    return b;
}

/* What the rest of the driver must know of a layer that was scored. */
struct counted {
    int32_t il, i, row, n_final; /* i counts the layers that take part */
    const float *score;          /* [n_head_kv][row] */
    const int32_t *n_entry;
};

static void protect_heads(struct wnw__plan_job *j, const int32_t *n_entry, const int32_t *most)
{
    for (int32_t ih = 0; ih < j->src->n_head_kv; ih++)
        j->prot[ih] = wnw__protected_shrink(wnw__job_protected(j, n_entry[ih]), most[ih]);
}

static void count_heads(struct wnw__plan_job *j, const struct counted *c)
{
    const int32_t n_head = j->src->n_head_kv;
    memset(j->n_safe, 0, (size_t)n_head * sizeof *j->n_safe);
    if (j->own_size) {
        const struct wnw__blocks blocks = blocks_of(j, c->n_final);
        for (int32_t ih = 0; ih < n_head; ih++)
            j->n_keep[ih] = j->selector->own_size(j->policy->opts[WNW_PART_SELECTOR], &blocks, c->n_entry[ih],
                                                  wnw__policy_rounding(j->policy));
        protect_heads(j, c->n_entry, j->n_keep);
        return;
    }
    if (j->counts) {
        for (int32_t ih = 0; ih < n_head; ih++) {
            const int32_t n = j->counts[c->i * n_head + ih];
            j->n_keep[ih] = n < 0 ? 0 : n > c->n_entry[ih] ? c->n_entry[ih] : n;
        }
        protect_heads(j, c->n_entry, j->n_keep);
        return;
    }
    const int32_t budget = j->layer_budget[c->i];
    for (int32_t ih = 0; ih < n_head; ih++)
        j->n_keep[ih] = c->n_entry[ih] < budget ? c->n_entry[ih] : budget;
    protect_heads(j, c->n_entry, j->n_keep);
    const struct wnw__head_problem problem = {.n_head_kv = n_head,
                                              .n = c->row,
                                              .n_entry = c->n_entry,
                                              .score = c->score,
                                              .prot = j->prot,
                                              .budget = budget,
                                              .rounding = wnw__policy_rounding(j->policy)};
    j->head->allocate(j->policy->opts[WNW_PART_HEAD_BUDGET], &problem, j->n_keep, j->n_safe, j->scratch);
}

/* obs: what the selector asked for, or NULL. */
static int select_layer(struct wnw__plan_job *j, const struct counted *c, const wnw_observation *obs)
{
    const void *opts = j->policy->opts[WNW_PART_SELECTOR];
    const struct wnw__blocks blocks = blocks_of(j, c->n_final);
    const int32_t n_head = j->src->n_head_kv;
    int32_t settled = INT32_MAX;
    if (j->selector->scratch)
        WNW_TRY(reserve(&j->scratch, &j->scratch_cap, j->selector->scratch(opts, c->row)));
    for (int32_t ih = 0; ih < n_head; ih++) {
        const struct wnw__select_problem problem = {.score = c->score + (int64_t)ih * c->row,
                                                    .n = c->n_entry[ih],
                                                    .n_keep = j->n_keep[ih],
                                                    .prot = j->prot[ih],
                                                    .blocks = blocks,
                                                    .n_final = c->n_final,
                                                    .n_safe = j->n_safe[ih],
                                                    .ih = ih,
                                                    .n_head_kv = n_head,
                                                    .row = c->row,
                                                    .layer_score = c->score,
                                                    .n_entry = c->n_entry,
                                                    .rounding = wnw__policy_rounding(j->policy),
                                                    .mean = j->own_size ? 0 : j->mean,
                                                    .obs = obs};
        int32_t *keep = j->keep + (int64_t)ih * j->keep_row;
        const int32_t n = j->selector->select(opts, &problem, keep, j->scratch);
        if (n < 0)
            return n;
        j->n_keep[ih] = n;
        if (j->selector->settled) {
            const int32_t s = j->selector->settled(opts, &blocks, c->n_entry[ih], n);
            settled = s < settled ? s : settled;
        }
        WNW_TRY(add_head(j, c->il, ih, keep, n));
    }
    j->n_final = j->selector->settled ? settled : 0;
    j->plan->n_final[c->il] = j->n_final;
    return WNW_OK;
}

/* Whether the job has nothing to decide in the layer. */
static bool keeps_whole(const struct wnw__plan_job *j, int32_t il, int32_t i)
{
    if (j->keep_all || wnw__job_skips(j, il))
        return true;
    if (j->own_size || j->model_scope)
        return false;
    for (int32_t ih = 0; ih < j->src->n_head_kv; ih++)
        if (j->n_entry[il * j->src->n_head_kv + ih] > j->layer_budget[i])
            return false;
    return true;
}

/* Number among the layers that take part. */
static int32_t part_of(const struct wnw__plan_job *j, int32_t il)
{
    int32_t i = 0;
    while (i < j->n_part && j->part_il[i] < il)
        i++;
    return i;
}

/* Scores the layer; selects at once, or remembers the scores until all layers have theirs. */
static int work_on_layer(struct wnw__plan_job *j, int32_t il, const wnw_observation *seen)
{
    const int32_t i = part_of(j, il);
    const wnw_needs needs = score_needs(j);
    wnw_observation obs;
    WNW_TRY(adapt(j, seen, &needs, &obs));
    WNW_TRY(score_layer(j, &obs));
    const struct counted c = {.il = il,
                              .i = i,
                              .row = obs.n,
                              .n_final = obs.n_final,
                              .score = j->score,
                              .n_entry = j->n_entry + (int64_t)il * j->src->n_head_kv};
    if (!j->model_scope) {
        count_heads(j, &c);
        return select_layer(j, &c, &obs);
    }
    if (j->head->measure)
        WNW_TRY(j->head->measure(j->policy->opts[WNW_PART_HEAD_BUDGET], &obs,
                                 j->head_stat + (int64_t)i * obs.n_head_kv));
    if (j->layer->measure)
        WNW_TRY(j->layer->measure(j->policy->opts[WNW_PART_LAYER_BUDGET], &obs, j->score,
                                  j->stat ? j->stat + (int64_t)i * j->layer->n_stat : NULL, j->measured,
                                  j->scratch));
    j->scored[i] =
        (struct wnw__scored_layer){.il = il, .row = obs.n, .n_final = obs.n_final, .score = j->score};
    j->score = NULL;
    j->score_cap = 0;
    return WNW_OK;
}

/* ---- Model scope
 * -------------------------------------------------------------------------------------------- */

static int allocate_model(struct wnw__plan_job *j, struct wnw__layer_problem *p)
{
    const size_t n_count = (size_t)j->n_part * (size_t)j->src->n_head_kv;
    size_t n_score = 0;
    for (int32_t i = 0; i < j->n_part; i++)
        n_score += (size_t)j->src->n_head_kv * (size_t)j->scored[i].row;
    WNW_TRY(reserve(&j->scratch, &j->scratch_cap, n_score));
    if (!j->head->allocate_model) {
        p->scratch = j->scratch;
        return allocate_layers(j, p);
    }
    j->counts = calloc(n_count, sizeof *j->counts);
    if (!j->counts)
        return wnw__fail(WNW_E_NOMEM, "out of memory for %zu counts", n_count);
    return j->head->allocate_model(j->policy->opts[WNW_PART_HEAD_BUDGET], p, j->counts, j->scratch,
                                   j->report->warning);
}

/* Counts of all layers from all scores. */
static int settle_counts(struct wnw__plan_job *j)
{
    const int32_t n_head = j->src->n_head_kv;
    const size_t n_part = (size_t)j->n_part;
    const float **score = calloc(n_part, sizeof *score);
    int32_t *row = calloc(n_part, sizeof *row), *n_entry = calloc(n_part * (size_t)n_head, sizeof *n_entry);
    wnw_protected *prot = calloc(n_part * (size_t)n_head, sizeof *prot);
    int rc = WNW_E_NOMEM;
    if (!score || !row || !n_entry || !prot) {
        wnw__fail(rc, "out of memory for the counts of %d layers", j->n_part);
        goto done;
    }
    for (int32_t i = 0; i < j->n_part; i++) {
        score[i] = j->scored[i].score;
        row[i] = j->scored[i].row;
        for (int32_t ih = 0; ih < n_head; ih++) {
            n_entry[i * n_head + ih] = j->n_entry[j->part_il[i] * n_head + ih];
            prot[i * n_head + ih] =
                wnw__protected_shrink(wnw__job_protected(j, n_entry[i * n_head + ih]), j->budget);
        }
    }
    struct wnw__layer_problem p = layer_problem(j);
    p.score = score;
    p.row = row;
    p.n_entry = n_entry;
    p.prot = prot;
    p.stat = j->stat;
    p.head_stat = j->head_stat;
    p.collected = j->measured;
    rc = allocate_model(j, &p);
done:
    free(score);
    free(row);
    free(n_entry);
    free(prot);
    return rc;
}

static int select_scored(struct wnw__plan_job *j, int32_t i, const wnw_observation *seen)
{
    const wnw_needs needs = selector_needs(j);
    wnw_observation obs;
    if (seen)
        WNW_TRY(adapt(j, seen, &needs, &obs));
    const struct wnw__scored_layer *l = &j->scored[i];
    const struct counted c = {.il = l->il,
                              .i = i,
                              .row = l->row,
                              .n_final = l->n_final,
                              .score = l->score,
                              .n_entry = j->n_entry + (int64_t)l->il * j->src->n_head_kv};
    count_heads(j, &c);
    return select_layer(j, &c, seen ? &obs : NULL);
}

/* ---- Several jobs in step
 * ----------------------------------------------------------------------------------- */

struct walk {
    struct wnw__plan_job **jobs;
    int32_t n;
    const struct wnw__plan_source *src;
};

/* One look at layer il for every job that `wanted` names; the time counts for each of them. */
static int observe_for(const struct walk *w, int32_t il, const wnw_needs *needs, const bool *wanted,
                       wnw_observation *obs)
{
    const double start = wnw__now_ms();
    *obs = (wnw_observation){0};
    WNW_TRY(w->src->observe(w->src, il, needs, obs));
    const double ms = wnw__now_ms() - start;
    for (int32_t k = 0; k < w->n; k++)
        w->jobs[k]->observe_ms += wanted[k] ? ms : 0;
    return WNW_OK;
}

static int gather_layer(const struct walk *w, int32_t il, bool *wanted)
{
    wnw_needs needs = {0};
    wnw_observation seen, obs;
    bool any = false;
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__plan_job *j = w->jobs[k];
        wanted[k] = !j->keep_all && !wnw__job_skips(j, il) && j->collected;
        if (!wanted[k])
            continue;
        const wnw_needs more = gather_needs(j);
        wnw__needs_merge(&needs, &more);
        any = true;
    }
    if (!any)
        return WNW_OK;
    WNW_TRY(observe_for(w, il, &needs, wanted, &seen));
    for (int32_t k = 0; k < w->n; k++) {
        if (!wanted[k])
            continue;
        struct wnw__plan_job *j = w->jobs[k];
        const double start = wnw__now_ms();
        const wnw_needs own = gather_needs(j);
        WNW_TRY(adapt(j, &seen, &own, &obs));
        WNW_TRY(j->own->collect(j->scorer_opts, &obs, j->collected));
        j->score_ms += wnw__now_ms() - start;
        j->work_ms += wnw__now_ms() - start;
    }
    return WNW_OK;
}

static int walk_layer(const struct walk *w, int32_t il, bool *wanted)
{
    wnw_needs needs = {0};
    wnw_observation seen;
    bool any = false;
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__plan_job *j = w->jobs[k];
        wanted[k] = !keeps_whole(j, il, part_of(j, il));
        if (!wanted[k])
            continue;
        const wnw_needs more = score_needs(j);
        wnw__needs_merge(&needs, &more);
        any = true;
    }
    if (any)
        WNW_TRY(observe_for(w, il, &needs, wanted, &seen));
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__plan_job *j = w->jobs[k];
        const double start = wnw__now_ms();
        if (wanted[k])
            WNW_TRY(work_on_layer(j, il, &seen));
        else if (!j->model_scope || j->keep_all)
            WNW_TRY(keep_layer(j, il)); /* in model scope the plan is written in the end */
        j->work_ms += wnw__now_ms() - start;
    }
    return WNW_OK;
}

static int settle_layer(const struct walk *w, int32_t il, bool *wanted)
{
    wnw_needs needs = {0};
    wnw_observation seen;
    bool any = false;
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__plan_job *j = w->jobs[k];
        wanted[k] = j->model_scope && !j->keep_all && !wnw__job_skips(j, il) && j->selector->needs;
        if (!wanted[k])
            continue;
        const wnw_needs more = selector_needs(j);
        wnw__needs_merge(&needs, &more);
        any = true;
    }
    if (any)
        WNW_TRY(observe_for(w, il, &needs, wanted, &seen));
    for (int32_t k = 0; k < w->n; k++) {
        struct wnw__plan_job *j = w->jobs[k];
        if (!j->model_scope || j->keep_all)
            continue;
        const double start = wnw__now_ms();
        if (wnw__job_skips(j, il))
            WNW_TRY(keep_layer(j, il));
        else
            WNW_TRY(select_scored(j, part_of(j, il), wanted[k] ? &seen : NULL));
        j->work_ms += wnw__now_ms() - start;
    }
    return WNW_OK;
}

/* Feeds the second pass, if any job wants one; the time counts for each of them. */
static int feed_second_pass(const struct walk *w, bool *wanted)
{
    int32_t kind = 0, n_wanted = 0;
    for (int32_t k = 0; k < w->n; k++) {
        const wnw_needs needs = wnw_policy_needs(w->jobs[k]->policy);
        wanted[k] = !w->jobs[k]->keep_all && needs.flags & WNW_NEED_SECOND_PASS;
        if (!wanted[k])
            continue;
        if (n_wanted++ > 0 && needs.second_pass != kind)
            return wnw__fail(WNW_E_ARG,
                             "%s feeds other tokens in its second pass than the policies before "
                             "it: plan them one by one",
                             w->jobs[k]->scorer->name);
        kind = needs.second_pass;
    }
    if (n_wanted == 0 || !w->src->second_pass)
        return WNW_OK;
    char warning[256] = "";
    const double start = wnw__now_ms();
    WNW_TRY(w->src->second_pass(w->src, kind, warning));
    const double ms = wnw__now_ms() - start;
    for (int32_t k = 0; k < w->n; k++) {
        char *to = w->jobs[k]->report->warning;
        if (!wanted[k])
            continue;
        w->jobs[k]->observe_ms += ms;
        if (warning[0]) {
            const size_t used = strlen(to);
            snprintf(to + used, sizeof w->jobs[k]->report->warning - used, "%s%s", used ? "; " : "", warning);
        }
    }
    return WNW_OK;
}

static int walk_all(const struct walk *w, bool *wanted)
{
    const int32_t n_layer = w->src->n_layer;
    WNW_TRY(feed_second_pass(w, wanted));
    for (int32_t il = 0; il < n_layer; il++)
        WNW_TRY(gather_layer(w, il, wanted));
    for (int32_t il = 0; il < n_layer; il++) {
        WNW_TRY(walk_layer(w, il, wanted));
        if (w->src->progress && !w->src->progress(w->src, il))
            return wnw__fail(WNW_E_CANCELLED, "cancelled after layer %d of %d", il, n_layer);
    }
    for (int32_t k = 0; k < w->n; k++)
        if (w->jobs[k]->model_scope && !w->jobs[k]->keep_all) {
            const double start = wnw__now_ms();
            WNW_TRY(settle_counts(w->jobs[k]));
            w->jobs[k]->work_ms += wnw__now_ms() - start;
        }
    for (int32_t il = 0; il < n_layer; il++)
        WNW_TRY(settle_layer(w, il, wanted));
    return WNW_OK;
}

int wnw__plan_job_layer(struct wnw__plan_job *j, int32_t il, struct wnw__kept_layer *out)
{
    const struct walk w = {.jobs = &j, .n = 1, .src = j->src};
    bool wanted;
    if (!j->keep_all && (j->model_scope || j->collected))
        return wnw__fail(WNW_E_UNSUPPORTED, "%s cannot compress a layer before it has seen all of them",
                         j->scorer->name);
    WNW_TRY(walk_layer(&w, il, &wanted));
    if (!out)
        return WNW_OK;
    for (int32_t ih = 0; ih < j->src->n_head_kv; ih++)
        j->keep_heads[ih] = j->keep ? j->keep + (int64_t)ih * j->keep_row : NULL;
    *out = (struct wnw__kept_layer){.keep = j->keep_heads, .n_keep = j->n_keep, .n_final = j->n_final};
    return WNW_OK;
}

void wnw__plan_job_times(const struct wnw__plan_job *j, wnw_report *report)
{
    report->observe_ms += j->observe_ms;
    report->select_ms += j->work_ms;
}

/* ---- The driver
 * -------------------------------------------------------------------------------------------- */

static double kept_mean(const struct wnw__plan_job *j)
{
    int64_t sum = 0, n_head = 0;
    const int32_t *pos;
    for (int32_t il = 0; il < j->src->n_layer; il++) {
        if (j->src->is_skipped && j->src->is_skipped(j->src, il))
            continue; /* layers that the method itself leaves whole do count */
        for (int32_t ih = 0; ih < j->src->n_head_kv; ih++)
            sum += wnw_plan_head(j->plan, il, ih, &pos);
        n_head += j->src->n_head_kv;
    }
    return n_head > 0 ? (double)sum / (double)n_head : 0;
}

int wnw__plan_make_many(wnw_plan **out, const wnw_policy *const *policies, const wnw_size *sizes, int32_t n,
                        const struct wnw__plan_source *src, wnw_report *reports)
{
    struct wnw__plan_job **jobs = calloc((size_t)n + 1, sizeof(struct wnw__plan_job *));
    bool *wanted = calloc((size_t)n + 1, sizeof *wanted);
    int rc = jobs && wanted ? WNW_OK : wnw__fail(WNW_E_NOMEM, "out of memory for %d plans", n);
    for (int32_t k = 0; k < n; k++)
        out[k] = NULL;
    if (rc == WNW_OK)
        rc = wnw__needs_agree(policies, n);
    for (int32_t k = 0; rc == WNW_OK && k < n; k++)
        rc = wnw__plan_job_new(&jobs[k], policies[k], sizes ? &sizes[k] : NULL, src,
                               reports ? &reports[k] : NULL);
    const struct walk w = {.jobs = jobs, .n = n, .src = src};
    if (rc == WNW_OK)
        rc = walk_all(&w, wanted);
    for (int32_t k = 0; rc == WNW_OK && k < n; k++) {
        jobs[k]->report->kept_mean = kept_mean(jobs[k]);
        jobs[k]->report->observe_ms = jobs[k]->observe_ms;
        jobs[k]->report->score_ms = jobs[k]->score_ms;
        jobs[k]->report->select_ms = jobs[k]->work_ms - jobs[k]->score_ms;
        out[k] = jobs[k]->plan;
        jobs[k]->plan = NULL;
    }
    for (int32_t k = 0; jobs && k < n; k++)
        wnw__plan_job_free(jobs[k]);
    free(jobs);
    free(wanted);
    return rc;
}

int wnw__plan_make(wnw_plan **out, const wnw_policy *policy, const wnw_size *size,
                   const struct wnw__plan_source *src, wnw_report *report)
{
    return wnw__plan_make_many(out, &policy, size, 1, src, report);
}
