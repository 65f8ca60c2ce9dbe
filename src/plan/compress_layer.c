/* SPDX-License-Identifier: MIT */
/* What one policy does with one layer: look, score, count, select. Counts of model scope come from the scores
 * of all layers. */
#include "plan/compress_impl.h"

#include "base/time.h"
#include "plan/score.h"
#include "policy/count.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Observing ---- */

wnw_needs wnw__job_select_needs(const struct wnw__plan_job *j)
{
    wnw_needs needs = {0};
    if (j->selector->part.needs)
        j->selector->part.needs(j->policy->opts[WNW_PART_SELECTOR], &needs);
    const wnw_needs more = wnw__job_contents_needs(j);
    wnw__needs_merge(&needs, &more);
    return needs;
}

wnw_needs wnw__job_contents_needs(const struct wnw__plan_job *j)
{
    wnw_needs needs = {0};
    if (j->contents->part.needs)
        j->contents->part.needs(j->policy->opts[WNW_PART_CONTENTS], &needs);
    return needs;
}

wnw_needs wnw__job_gather_needs(const struct wnw__plan_job *j)
{
    wnw_needs needs = {0};
    if (j->scorer->part.gather->needs)
        j->scorer->part.gather->needs(j->scorer_opts, &needs);
    return needs;
}

/* What parts other than the scorer want to see of a layer when it is scored. */
static wnw_needs needs_besides(const struct wnw__plan_job *j)
{
    wnw_needs needs = {0};
    for (int32_t k = WNW_PART_SCORER + 1; k < WNW_N_PART_KINDS; k++) {
        const wnw_gather *gather = j->policy->part[k].head.gather;
        wnw_needs more = {0};
        if (!j->gathered[k] || !gather->needs)
            continue;
        gather->needs(j->policy->opts[k], &more);
        wnw__needs_merge(&needs, &more);
    }
    if (!j->model_scope) {
        const wnw_needs more = wnw__job_select_needs(j);
        wnw__needs_merge(&needs, &more);
    }
    return needs;
}

/* What the job wants to see of a layer when it is scored. */
wnw_needs wnw__job_score_needs(const struct wnw__plan_job *j)
{
    const wnw_needs besides = needs_besides(j);
    wnw_needs needs = {0};
    if (j->scorer->part.needs)
        j->scorer->part.needs(j->scorer_opts, &needs);
    wnw__needs_merge(&needs, &besides);
    return needs;
}

int wnw__job_window_heads(struct wnw__plan_job *j, int32_t il, bool *used)
{
    const wnw_aggregation *agg = wnw__aggregation_of(j->policy);
    const wnw_observation known = {.il = il,
                                   .n_layer = j->src->n_layer,
                                   .n_head = j->src->n_head,
                                   .n_head_kv = j->src->n_head_kv,
                                   .profile = j->src->profile};
    for (int32_t h = 0; h < j->src->n_head; h++)
        j->heads[h] = true;
    if (agg->choose)
        WNW_TRY(agg->choose(j->policy->opts[WNW_PART_AGGREGATION], &known, j->heads));
    const bool by_head = wnw__policy_has(j->policy, WNW_PART_SCORER, WNW_FLAG_WINDOW_BY_HEAD) &&
                         !(needs_besides(j).flags & WNW_NEED_WINDOW_ATTN);
    if (wnw__job_score_needs(j).flags & WNW_NEED_WINDOW_ATTN)
        for (int32_t h = 0; h < j->src->n_head; h++)
            used[h] = used[h] || j->heads[h] || !by_head;
    return WNW_OK;
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
                             j->scorer->part.name, rows[i].what, obs->il);
    return WNW_OK;
}

/* The observation as this job sees it. */
int wnw__job_adapt(const struct wnw__plan_job *j, const wnw_observation *seen, const wnw_needs *needs,
                   wnw_observation *obs)
{
    WNW_TRY(check_observation(j, needs, seen));
    *obs = *seen;
    obs->n_prefix = j->src->n_prefix;
    obs->budget = j->mean;
    obs->n_final = j->src->n_final ? j->src->n_final(j->src, seen->il) : 0;
    obs->gathered = j->gathered[WNW_PART_SCORER];
    obs->profile = j->src->profile;
    obs->perplexity = j->perplexity;
    return WNW_OK;
}

/* ---- One layer ---- */

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

/* What is written into the entries of one head that stay; obs: what the content rule asked for. */
static int write_head(struct wnw__plan_job *j, int32_t il, int32_t ih, const int32_t *keep, int32_t n_keep,
                      const wnw_observation *obs)
{
    const void *opts = j->policy->opts[WNW_PART_CONTENTS];
    const int32_t *pos = j->src->positions(j->src, il, ih);
    const wnw_contents_problem p = {
        .obs = obs, .ih = ih, .keep = keep, .n_keep = n_keep, .n = obs->n_entry[ih]};
    int32_t n_spared = 0;
    if (j->contents->scratch)
        WNW_TRY(reserve(&j->scratch, &j->scratch_cap, j->contents->scratch(opts, obs)));
    const int32_t n_merge = j->contents->merge ? j->contents->merge(opts, &p, j->merges, j->scratch) : 0;
    const int32_t n_channel =
        j->contents->prune ? j->contents->prune(opts, &p, j->channels, &n_spared, j->scratch) : 0;
    for (int32_t i = 0; i < n_merge; i++) {
        j->merges[i].from = pos[j->merges[i].from];
        j->merges[i].to = pos[j->merges[i].to];
    }
    return wnw__plan_set_contents(j->plan, (int64_t)il * j->src->n_head_kv + ih, j->merges, n_merge,
                                  j->channels, n_channel, n_spared);
}

/* Everything of the layer stays, whatever is settled stays settled. */
int wnw__job_keep_layer(struct wnw__plan_job *j, int32_t il, const wnw_observation *seen)
{
    const wnw_needs needs = wnw__job_contents_needs(j);
    wnw_observation obs;
    if (seen)
        WNW_TRY(wnw__job_adapt(j, seen, &needs, &obs));
    j->n_final = j->src->n_final ? j->src->n_final(j->src, il) : 0;
    j->plan->n_final[il] = j->n_final;
    for (int32_t ih = 0; ih < j->src->n_head_kv; ih++) {
        const int32_t n = j->n_entry[il * j->src->n_head_kv + ih];
        j->n_keep[ih] = n;
        for (int32_t i = 0; j->keep && i < n; i++)
            j->keep[ih * j->keep_row + i] = i;
        WNW_TRY(add_head(j, il, ih, NULL, n));
        if (seen)
            WNW_TRY(write_head(j, il, ih, j->keep + (int64_t)ih * j->keep_row, n, &obs));
    }
    return WNW_OK;
}

/* Scores of query heads for a selector that looks at them, taken out of the scratch. */
static int keep_head_scores(struct wnw__plan_job *j, const wnw_observation *obs)
{
    const size_t n = (size_t)obs->n_head * (size_t)obs->n;
    if (!wnw__policy_has(j->policy, WNW_PART_SELECTOR, WNW_FLAG_QUERY_HEADS))
        return WNW_OK;
    WNW_TRY(reserve(&j->head_score, &j->head_score_cap, n));
    memcpy(j->head_score, wnw__score_rows(obs, j->scratch), n * sizeof *j->head_score);
    if (j->scorer->finish)
        j->scorer->finish(j->scorer_opts, obs, obs->n_head, j->head_score, j->scratch);
    return WNW_OK;
}

static int score_layer(struct wnw__plan_job *j, const wnw_observation *obs)
{
    const size_t n_score = (size_t)obs->n_head_kv * (size_t)obs->n;
    const size_t n_scratch = wnw__score_room(j->policy, j->scorer_opts, obs);
    WNW_TRY(reserve(&j->score, &j->score_cap, n_score));
    WNW_TRY(reserve(&j->scratch, &j->scratch_cap, n_scratch > n_score ? n_scratch : n_score));
    const double start = wnw__now_ms();
    wnw_observation chosen = *obs;
    if (wnw__aggregation_of(j->policy)->choose)
        chosen.query_head_used = j->heads;
    WNW_TRY(wnw__score(j->policy, j->scorer_opts, &chosen, j->score, j->scratch));
    WNW_TRY(keep_head_scores(j, obs));
    j->score_ms += wnw__now_ms() - start;
    for (int32_t ih = 0; ih < obs->n_head_kv; ih++)
        for (int32_t i = 0; i < obs->n_entry[ih]; i++)
            if (isnan(j->score[(int64_t)ih * obs->n + i]))
                return wnw__fail(WNW_E_NOT_FINITE,
                                 "the score that %s gives entry %d of layer %d, KV head %d is not a number: "
                                 "%s",
                                 j->scorer->part.name, i, obs->il, ih,
                                 wnw__part_find(j->scorer->part.name, strlen(j->scorer->part.name))
                                     ? "the model computed values that are none; weights in its file are "
                                       "damaged, or too large for the type of the KV cache"
                                     : "a fault of this scorer, or of the model's weights");
    return WNW_OK;
}

/* What the rest of the driver must know of a layer that was scored. */
struct counted {
    int32_t il, i, row, n_final; /* i counts the layers that take part */
    const float *score;          /* [n_head_kv][row] */
    const float *head_score;     /* [n_head][row], or NULL */
    const int32_t *n_entry;
};

/* As far as `budget` and each head's n_keep hold it. */
static void protect_heads(struct wnw__plan_job *j, int32_t il, int32_t budget)
{
    for (int32_t ih = 0; ih < j->src->n_head_kv; ih++)
        j->prot[ih] = wnw__protected_shrink(wnw__protected_shrink(wnw__job_protected_head(j, il, ih), budget),
                                            j->n_keep[ih]);
}

static int count_heads(struct wnw__plan_job *j, const struct counted *c)
{
    const int32_t n_head = j->src->n_head_kv;
    memset(j->n_safe, 0, (size_t)n_head * sizeof *j->n_safe);
    if (j->own_size) {
        const wnw_blocks blocks = wnw__policy_blocks_with(j->policy, j->scorer_opts, c->n_final);
        for (int32_t ih = 0; ih < n_head; ih++)
            j->n_keep[ih] = j->selector->recursive->own_size(j->policy->opts[WNW_PART_SELECTOR], &blocks,
                                                             c->n_entry[ih], j->policy->rounding);
        protect_heads(j, c->il, INT32_MAX);
        return WNW_OK;
    }
    if (j->counts) {
        /* Of a head that got more than the average no more is protected than was when it competed. */
        for (int32_t ih = 0; ih < n_head; ih++) {
            const int32_t n = j->counts[c->i * n_head + ih];
            j->n_keep[ih] = n;
        }
        protect_heads(j, c->il, j->budget);
        return WNW_OK;
    }
    const int32_t budget = j->layer_budget[c->i];
    for (int32_t ih = 0; ih < n_head; ih++)
        j->n_keep[ih] = c->n_entry[ih] < budget ? c->n_entry[ih] : budget;
    protect_heads(j, c->il, INT32_MAX);
    const wnw_head_problem problem = {.n_head_kv = n_head,
                                      .n = c->row,
                                      .n_entry = c->n_entry,
                                      .score = c->score,
                                      .prot = j->prot,
                                      .budget = budget,
                                      .rounding = j->policy->rounding,
                                      .gathered = j->gathered[WNW_PART_HEAD_BUDGET]};
    return j->head->allocate(j->policy->opts[WNW_PART_HEAD_BUDGET], &problem, j->n_keep, j->n_safe,
                             j->scratch);
}

/* obs: what the selector asked for, or NULL. */
static int select_layer(struct wnw__plan_job *j, const struct counted *c, const wnw_observation *obs)
{
    const void *opts = j->policy->opts[WNW_PART_SELECTOR];
    const wnw_blocks blocks = wnw__policy_blocks_with(j->policy, j->scorer_opts, c->n_final);
    const int32_t n_head = j->src->n_head_kv;
    int32_t settled = INT32_MAX;
    if (j->selector->scratch)
        WNW_TRY(reserve(&j->scratch, &j->scratch_cap, j->selector->scratch(opts, c->row)));
    for (int32_t ih = 0; ih < n_head; ih++) {
        const wnw_select_problem problem = {.score = c->score + (int64_t)ih * c->row,
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
                                            .head_score = c->head_score,
                                            .n_entry = c->n_entry,
                                            .rounding = j->policy->rounding,
                                            .mean = j->own_size ? 0 : j->mean,
                                            .obs = obs,
                                            .gathered = j->gathered[WNW_PART_SELECTOR]};
        int32_t *keep = j->keep + (int64_t)ih * j->keep_row;
        const int32_t n = j->selector->select(opts, &problem, keep, j->scratch);
        if (n < 0)
            return n;
        j->n_keep[ih] = n;
        if (j->selector->recursive) {
            const int32_t s = j->selector->recursive->settled(opts, &blocks, c->n_entry[ih], n);
            settled = s < settled ? s : settled;
        }
        WNW_TRY(add_head(j, c->il, ih, keep, n));
        if (wnw__contents_works(j->contents))
            WNW_TRY(write_head(j, c->il, ih, keep, n, obs));
    }
    j->n_final = j->selector->recursive ? settled : 0;
    j->plan->n_final[c->il] = j->n_final;
    return WNW_OK;
}

/* Whether the job has nothing to decide in the layer. */
bool wnw__job_keeps_whole(const struct wnw__plan_job *j, int32_t il, int32_t i)
{
    if (j->keep_all || wnw__job_skips(j, il))
        return true;
    if (j->own_size || j->unsized || j->model_scope)
        return false;
    for (int32_t ih = 0; ih < j->src->n_head_kv; ih++)
        if (j->n_entry[il * j->src->n_head_kv + ih] > j->layer_budget[i])
            return false;
    return true;
}

bool wnw__job_rewrites_whole(const struct wnw__plan_job *j, int32_t il)
{
    return wnw__policy_rewrites_all(j->policy) && !wnw__job_skips(j, il) && j->n_max > 0;
}

/* Number among the layers that take part. */
int32_t wnw__job_part(const struct wnw__plan_job *j, int32_t il)
{
    int32_t i = 0;
    while (i < j->n_part && j->part_il[i] < il)
        i++;
    return i;
}

/* Scores the layer; selects at once, or remembers the scores until all layers have theirs. */
int wnw__job_score_layer(struct wnw__plan_job *j, int32_t il, const wnw_observation *seen)
{
    const int32_t i = wnw__job_part(j, il);
    const wnw_needs needs = wnw__job_score_needs(j);
    wnw_observation obs;
    WNW_TRY(wnw__job_adapt(j, seen, &needs, &obs));
    WNW_TRY(score_layer(j, &obs));
    const struct counted c = {.il = il,
                              .i = i,
                              .row = obs.n,
                              .n_final = obs.n_final,
                              .score = j->score,
                              .head_score = j->head_score,
                              .n_entry = j->n_entry + (int64_t)il * j->src->n_head_kv};
    if (!j->model_scope) {
        WNW_TRY(count_heads(j, &c));
        return select_layer(j, &c, &obs);
    }
    for (int32_t k = WNW_PART_SCORER + 1; k < WNW_N_PART_KINDS; k++)
        if (j->gathered[k])
            WNW_TRY(j->policy->part[k].head.gather->visit(j->policy->opts[k], &obs, j->gathered[k]));
    j->scored[i] = (struct wnw__scored_layer){
        .il = il, .row = obs.n, .n_final = obs.n_final, .score = j->score, .head_score = j->head_score};
    j->score = j->head_score = NULL;
    j->score_cap = j->head_score_cap = 0;
    return WNW_OK;
}

/* ---- Model scope ---- */

static int allocate_model(struct wnw__plan_job *j, wnw_layer_problem *p)
{
    const size_t n_count = (size_t)j->n_part * (size_t)j->src->n_head_kv;
    size_t n_score = 0;
    for (int32_t i = 0; i < j->n_part; i++)
        n_score += (size_t)j->src->n_head_kv * (size_t)j->scored[i].row;
    WNW_TRY(reserve(&j->scratch, &j->scratch_cap, n_score));
    if (!j->head->allocate_model) {
        p->scratch = j->scratch;
        return wnw__job_allocate_layers(j, p);
    }
    j->counts = calloc(n_count, sizeof *j->counts);
    if (!j->counts)
        return wnw__fail(WNW_E_NOMEM, "out of memory for %zu counts", n_count);
    WNW_TRY(j->head->allocate_model(j->policy->opts[WNW_PART_HEAD_BUDGET], p, j->counts, j->scratch,
                                    j->report->warning));
    for (size_t i = 0; i < n_count; i++)
        if (j->counts[i] < 0 || j->counts[i] > p->n_entry[i])
            return wnw__fail(WNW_E_RANGE, "%s gives a head %d entries, of %d", j->head->part.name,
                             j->counts[i], p->n_entry[i]);
    return WNW_OK;
}

/* Counts of all layers from all scores. */
int wnw__job_settle_counts(struct wnw__plan_job *j)
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
                wnw__protected_shrink(wnw__job_protected_head(j, j->part_il[i], ih), j->budget);
        }
    }
    wnw_layer_problem p = wnw__job_layer_problem(j);
    p.score = score;
    p.row = row;
    p.n_entry = n_entry;
    p.prot = prot;
    p.gathered = j->gathered[j->head->allocate_model ? WNW_PART_HEAD_BUDGET : WNW_PART_LAYER_BUDGET];
    rc = allocate_model(j, &p);
done:
    free(score);
    free(row);
    free(n_entry);
    free(prot);
    return rc;
}

int wnw__job_select_scored(struct wnw__plan_job *j, int32_t i, const wnw_observation *seen)
{
    const wnw_needs needs = wnw__job_select_needs(j);
    wnw_observation obs;
    if (seen)
        WNW_TRY(wnw__job_adapt(j, seen, &needs, &obs));
    const struct wnw__scored_layer *l = &j->scored[i];
    const struct counted c = {.il = l->il,
                              .i = i,
                              .row = l->row,
                              .n_final = l->n_final,
                              .score = l->score,
                              .head_score = l->head_score,
                              .n_entry = j->n_entry + (int64_t)l->il * j->src->n_head_kv};
    WNW_TRY(count_heads(j, &c));
    return select_layer(j, &c, seen ? &obs : NULL);
}
