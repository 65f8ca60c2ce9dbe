/* SPDX-License-Identifier: MIT */
/* Inside of the driver: one policy at work. compress_job.c sets it up, compress_size.c reads the size,
 * compress_layer.c works on one layer, compress.c walks the layers. */
#ifndef WNW_COMPRESS_IMPL_H
#define WNW_COMPRESS_IMPL_H

#include "plan/compress.h"
#include "plan/plan.h"
#include "policy/policy.h"

/* What is remembered of a layer until all are scored. */
struct wnw__scored_layer {
    int32_t il, row, n_final; /* layer of the model; entries per row of score */
    float *score;             /* [n_head_kv][row] */
    float *head_score;        /* [n_head][row], or NULL */
};

struct wnw__plan_job {
    const struct wnw__plan_source *src;
    const wnw_policy *policy;
    const wnw_scorer *scorer;
    const wnw_layer_budget *layer;
    const wnw_head_budget *head;
    const wnw_selector *selector;
    const wnw_contents *contents;
    wnw_report *report, unused_report;
    double observe_ms, score_ms, work_ms; /* work: scores, budgets and selection */

    int32_t *n_entry; /* [n_layer][n_head_kv] */
    int32_t n_part;   /* layers that take part */
    int32_t n_max;    /* entries of their longest head */
    int32_t n_min;    /* and of their shortest */
    int64_t n_sum;    /* entries of all their heads */

    void *scorer_opts; /* a copy: a small size may shrink their blocks */
    int32_t room;      /* what is protected makes room within so many entries; 0 = it need not */
    bool keep_all, own_size;
    bool unsized;          /* no size was given, and the head budget has a rule of its own */
    bool model_scope;      /* counts need every layer's scores */
    int32_t budget;        /* average entries per layer and head; neither keep_all nor own_size */
    double mean;           /* the same before rounding; n_max where the policy has its own size */
    double ratio;          /* fraction to remove of heads that are equally long; 0 = otherwise */
    int32_t *part_il;      /* [n_part] which layers take part */
    int32_t *layer_budget; /* [n_part] */
    double perplexity;

    double *gathered[WNW_N_PART_KINDS]; /* over the layers, by parts that do so; or NULL */
    double *layer_work;                 /* [n_part] scratch of the layer budget */
    struct wnw__scored_layer *scored;   /* [n_part] model scope */
    int32_t *counts;                    /* [n_part][n_head_kv] model scope of the heads; or NULL */

    float *score;      /* [n_head_kv][n] of one layer */
    float *head_score; /* [n_head][n] of it, where the selector looks at them; or NULL */
    size_t head_score_cap;
    float *scratch; /* of scorer, budget or selector, one after the other */
    size_t score_cap, scratch_cap;
    int32_t *keep;              /* [n_head_kv][keep_row] entries of the layer at hand */
    int32_t keep_row;           /* longest head of all layers, and one more */
    const int32_t **keep_heads; /* [n_head_kv] into keep */
    int32_t *n_keep, *n_safe;   /* [n_head_kv] */
    wnw_protected *prot;        /* [n_head_kv] */
    bool *heads,
        *all_heads;    /* [n_head] of the layer at hand: those that count for this job; scratch of the walk */
    int32_t n_final;   /* settled entries of the layer at hand, after selecting */
    wnw_merge *merges; /* [keep_row] of one head */
    int32_t *channels; /* [n_embd_head] of one head */

    wnw_plan *plan;
};

static inline bool wnw__job_skips(const struct wnw__plan_job *j, int32_t il)
{
    return (j->src->is_skipped && j->src->is_skipped(j->src, il)) || wnw__policy_skips(j->policy, il);
}

/* Entries that the scorer protects of n, in a head that holds as much as any of what the chat template wrote. */
wnw_protected wnw__job_protected(const struct wnw__plan_job *j, int32_t n);
/* The same for KV head ih of layer il as it is. */
wnw_protected wnw__job_protected_head(const struct wnw__plan_job *j, int32_t il, int32_t ih);
/* Fills keep_all, own_size, budget and mean. size may be NULL. */
int wnw__job_size(struct wnw__plan_job *j, const wnw_size *size);
/* Makes what is protected fit into the size, with a warning, or refuses the size. */
int wnw__job_fit_protected(struct wnw__plan_job *j, const wnw_size *size);

/* The layer budget's problem as far as it is known before any layer is scored, and its answer. */
wnw_layer_problem wnw__job_layer_problem(const struct wnw__plan_job *j);
int wnw__job_allocate_layers(struct wnw__plan_job *j, const wnw_layer_problem *p);

/* What it wants to see of a layer: before all, when it scores, when it selects. */
wnw_needs wnw__job_gather_needs(const struct wnw__plan_job *j);
wnw_needs wnw__job_score_needs(const struct wnw__plan_job *j);
wnw_needs wnw__job_select_needs(const struct wnw__plan_job *j);
/* Which query heads' window attention the job reads when it scores layer il: adds to used[n_head]. */
int wnw__job_window_heads(struct wnw__plan_job *j, int32_t il, bool *used);
/* The observation as this policy sees it; fails if something it needs is missing. */
int wnw__job_adapt(const struct wnw__plan_job *j, const wnw_observation *seen, const wnw_needs *needs,
                   wnw_observation *obs);

/* Number of layer il among those that take part. */
int32_t wnw__job_part(const struct wnw__plan_job *j, int32_t il);
/* Whether there is nothing to decide in layer il, the i-th that takes part. */
bool wnw__job_keeps_whole(const struct wnw__plan_job *j, int32_t il, int32_t i);
/* Whether something is written into the entries of layer il though all of them stay. */
bool wnw__job_rewrites_whole(const struct wnw__plan_job *j, int32_t il);
/* What the content rule wants to see. */
wnw_needs wnw__job_contents_needs(const struct wnw__plan_job *j);
/* Everything of the layer stays; seen = what the content rule asked for, or NULL. */
int wnw__job_keep_layer(struct wnw__plan_job *j, int32_t il, const wnw_observation *seen);
/* Scores the layer; selects at once, or remembers the scores until all layers have theirs. */
int wnw__job_score_layer(struct wnw__plan_job *j, int32_t il, const wnw_observation *seen);
/* Counts of all layers from all scores; then selects in the i-th layer, seen = what the selector asked for. */
int wnw__job_settle_counts(struct wnw__plan_job *j);
int wnw__job_select_scored(struct wnw__plan_job *j, int32_t i, const wnw_observation *seen);

#endif
