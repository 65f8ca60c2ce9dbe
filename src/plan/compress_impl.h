/* SPDX-License-Identifier: MIT */
/*
 * Inside of the driver: one policy at work, a job. Each file has one subject:
 *
 *     compress.c          walks the layers, several jobs in step
 *     compress_job.c      what a job needs to know and to hold before it looks at any layer
 *     compress_size.c     from the size that was asked for to an average number of entries
 *     compress_protect.c  entries that stay whatever their score, made to fit into that
 *     compress_observe.c  what a job wants to see of a layer, and the observation as it sees it
 *     compress_score.c    scores of a layer
 *     compress_count.c    how many entries layers and heads keep
 *     compress_select.c   which, and what is written into them
 */
#ifndef WNW_COMPRESS_IMPL_H
#define WNW_COMPRESS_IMPL_H

#include "plan/compress.h"
#include "plan/plan.h"
#include "policy/policy.h"

/* The cache as the job finds it. */
struct wnw__job_cache {
    int32_t *n_entry; /* [n_layer][n_head_kv] */
    int32_t *part;    /* [n_layer] number among the layers that take part, -1 = it does not */
    int32_t *il;      /* [n_part] and back */
    int32_t n_part;   /* layers that take part */
    int32_t n_max;    /* entries of their longest head */
    int32_t n_min;    /* and of their shortest */
    int64_t n_sum;    /* entries of all their heads */
    int32_t row;      /* longest head of all layers, and one more */
};

/* What a size comes to. */
enum wnw__size_rule {
    WNW_SIZE_RULE_ALL,      /* everything stays */
    WNW_SIZE_RULE_SELECTOR, /* none was given: a recursive selector has its own */
    WNW_SIZE_RULE_HEADS,    /* none was given: a head budget has its own */
    WNW_SIZE_RULE_MEAN,     /* so many entries on average */
};
struct wnw__job_size {
    enum wnw__size_rule rule;
    int32_t budget;  /* average entries per layer and head; n_max but for the rule MEAN */
    double mean;     /* the same before rounding */
    double ratio;    /* fraction to remove of heads that are equally long; 0 = otherwise */
    bool may_shrink; /* what is protected may shrink to the size, which is refused else */
    int32_t room;    /* of so many entries, what is protected leaves room for others; 0 = it need not */
};

/* Scores of a layer and what the steps behind them must know. */
struct wnw__scored_layer {
    int32_t il, i;          /* layer of the model; its number among those that take part */
    int32_t row, n_final;   /* entries per row of score; settled ones */
    const int32_t *n_entry; /* [n_head_kv] */
    float *score;           /* [n_head_kv][row] */
    float *head_score;      /* [n_head][row] where the selector looks at them, or NULL */
};

struct wnw__floats {
    float *at;
    size_t cap;
};

/* What the layer at hand keeps. */
struct wnw__job_kept {
    int32_t *keep;              /* [n_head_kv][cache.row]; NULL where everything stays as it is */
    const int32_t **keep_heads; /* [n_head_kv] into keep */
    int32_t *n_keep, *n_safe;   /* [n_head_kv] */
    wnw_protected *prot;        /* [n_head_kv] */
    int32_t n_final;            /* settled entries, after selecting */
    wnw_merge *merges;          /* [cache.row] of one head */
    int32_t *channels;          /* [n_embd_head] of one head */
};

struct wnw__plan_job {
    const struct wnw__plan_source *src;
    const wnw_policy *policy;
    const wnw_scorer *scorer;
    const wnw_aggregation *aggregation;
    const wnw_selector *selector;
    const wnw_contents *contents;
    void *scorer_opts; /* a copy: a small size may shrink its blocks */
    wnw_report *report, unused_report;
    double observe_ms, score_ms, work_ms; /* work: scores, budgets and selection */

    struct wnw__job_cache cache;
    struct wnw__job_size size;
    double perplexity;
    double *gathered[WNW_N_PART_KINDS]; /* over the layers, by parts that do so; or NULL */

    bool all_layers;                  /* nothing is selected before all layers are scored */
    struct wnw__scored_layer *scored; /* [n_part] then */
    int32_t *layer_budget;            /* [n_part] */
    double *layer_work;               /* [n_part] scratch of the layer budget */
    int32_t *counts;                  /* [n_part][n_head_kv] of a head budget over all layers, or NULL */

    struct wnw__floats score, head_score; /* of one layer, as wnw__scored_layer has them */
    struct wnw__floats scratch;           /* of one part after the other */
    bool *heads, *all_heads; /* [n_head] that count for this job in the layer at hand; scratch of the walk */
    bool looks;              /* at the layer at hand */
    wnw_needs wants;         /* to see of it */
    struct wnw__job_kept kept;

    wnw_plan *plan;
};

/* ---- compress_job.c ---- */

static inline bool wnw__job_skips(const struct wnw__plan_job *j, int32_t il)
{
    return j->cache.part[il] < 0;
}
/* [n_head_kv] entries of layer il. */
static inline const int32_t *wnw__job_entries(const struct wnw__plan_job *j, int32_t il)
{
    return j->cache.n_entry + (int64_t)il * j->src->n_head_kv;
}
/* Room for n floats; what was there is lost. */
int wnw__job_reserve(struct wnw__floats *f, size_t n);

/* ---- compress_size.c ---- */

/* Resolves the size, which may be NULL. */
int wnw__job_resolve_size(struct wnw__plan_job *j, const wnw_size *size);

/* ---- compress_protect.c ---- */

/* Entries that are protected of n, in a head that holds as much as any of what the chat template wrote. */
wnw_protected wnw__job_protected(const struct wnw__plan_job *j, int32_t n);
/* The same for KV head ih of layer il as it is. */
wnw_protected wnw__job_protected_head(const struct wnw__plan_job *j, int32_t il, int32_t ih);
/* Makes what is protected fit into the size, with a warning, or refuses the size. */
int wnw__job_fit_protected(struct wnw__plan_job *j);

/* ---- compress_observe.c ---- */

/* What the job wants to see of a layer: before all, when it scores, when it selects, what its content rule
 * asks for. */
wnw_needs wnw__job_gather_needs(const struct wnw__plan_job *j);
wnw_needs wnw__job_score_needs(const struct wnw__plan_job *j);
wnw_needs wnw__job_select_needs(const struct wnw__plan_job *j);
wnw_needs wnw__job_contents_needs(const struct wnw__plan_job *j);
/* Which query heads' window attention the job reads when it scores layer il: adds to used[n_head]. */
int wnw__job_window_heads(struct wnw__plan_job *j, int32_t il, bool *used);
/* The observation as this policy sees it; fails if something it needs is missing. */
int wnw__job_adapt(const struct wnw__plan_job *j, const wnw_observation *seen, const wnw_needs *needs,
                   wnw_observation *obs);
/* Lets part k gather what it sees of a layer, if it does that. */
int wnw__job_gather(struct wnw__plan_job *j, int32_t k, const wnw_observation *obs);

/* ---- compress_score.c ---- */

/* The scores are in the job's buffers until the next layer is scored. */
int wnw__job_score(struct wnw__plan_job *j, const wnw_observation *obs, struct wnw__scored_layer *out);

/* ---- compress_count.c ---- */

/* Counts of all layers where they do not depend on scores. */
int wnw__job_count_layers(struct wnw__plan_job *j);
/* Counts of all layers, or of all their heads, from all scores. */
int wnw__job_count_model(struct wnw__plan_job *j);
/* Counts and protected entries of one layer's heads. */
int wnw__job_count_heads(struct wnw__plan_job *j, const struct wnw__scored_layer *l);

/* ---- compress_select.c ---- */

/* Everything of the layer stays; obs = what the content rule asked for, or NULL. */
int wnw__job_keep_layer(struct wnw__plan_job *j, int32_t il, const wnw_observation *obs);
/* Counts and selects; obs = what selector and content rule asked for, or NULL. */
int wnw__job_select_layer(struct wnw__plan_job *j, const struct wnw__scored_layer *l,
                          const wnw_observation *obs);

#endif
