/* SPDX-License-Identifier: MIT */
/*
 * The driver observe -> score -> budget -> select. It turns a policy and a source of observations into a
 * keep-plan and knows neither session nor model: tests feed it plain arrays.
 */
#ifndef WNW_COMPRESS_H
#define WNW_COMPRESS_H

#include "base/err.h"
#include "winnow_method.h"

/* Where observations come from. */
struct wnw__plan_source {
    int32_t n_layer, n_head, n_head_kv, n_embd_head;
    int32_t n_past;             /* tokens read */
    int32_t n_prefix;           /* first positions that are the chat template's */
    int32_t ratio_base;         /* entries that a ratio counts; 0 = those that are there */
    size_t entry_bytes;         /* of one key plus one value */
    const wnw_profile *profile; /* NULL = none */
    void *user;
    /* Layers that policies leave alone (sliding window). NULL = none. */
    bool (*is_skipped)(const struct wnw__plan_source *src, int32_t il);
    /* Entries and positions of one head, cheap. */
    int32_t (*n_entry)(const struct wnw__plan_source *src, int32_t il, int32_t ih);
    const int32_t *(*positions)(const struct wnw__plan_source *src, int32_t il, int32_t ih);
    /* First entries of every head of layer il that were settled before. NULL = 0. */
    int32_t (*n_final)(const struct wnw__plan_source *src, int32_t il);
    /* Whether entries of one position are of different tokens, in heads of layer il, or with il = -1
     * anywhere. NULL = nowhere. */
    bool (*is_mixed)(const struct wnw__plan_source *src, int32_t il);
    /* Entries at positions below it have got them anew. */
    int32_t n_moved;
    /* Perplexity of the last `window` tokens. NULL = cannot be asked. */
    int (*perplexity)(const struct wnw__plan_source *src, int32_t window, double *out);
    /* Feeds the tokens of a second pass (wnw_second_pass), once and before any layer is observed; may write a
     * sentence to warning[256]. NULL = observe has its results without it. */
    int (*second_pass)(const struct wnw__plan_source *src, int32_t kind, char *warning);
    /* Says before observe which query heads' window attention it must compute, used[n_head]; borrowed until
     * it returns, once. Rows of the others are 0 then. NULL = it computes all of them. */
    void (*want_heads)(const struct wnw__plan_source *src, const bool *used);
    /* Fills *obs for layer il with what `needs` asks for; the driver fills n_prefix, budget, collected,
     * profile, perplexity and n_final. Borrowed until the next call. */
    int (*observe)(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs,
                   wnw_observation *obs);
    /* Called after layer il is done; return false to cancel. NULL = none. */
    bool (*progress)(const struct wnw__plan_source *src, int32_t il);
};

/* Adds the times of one compression to those of a whole read; the first warning stays, and the most bytes.
 * Entries are counted by the caller. */
void wnw__report_add(wnw_report *sum, const wnw_report *one);

/* Entries of a head that a recursive policy may thin, and the size for them. */
struct wnw__due {
    int32_t n, n_final; /* entries, of which so many are settled */
    int32_t n_keep;     /* to be left of n */
    bool strict; /* refuse a size that cannot hold what is never touched, unless something is settled */
};
/* A recursive policy whose own size leaves n_keep of n entries, or as near as blocks allow: k of those that
 * are not settled becomes whole, 0 .. L; sinks and L stay as they are. *out is NULL where there is no block
 * to thin. A warning says where the size is not reached; E_RANGE with `strict`. */
int wnw__policy_fix_size(wnw_policy **out, const wnw_policy *p, const struct wnw__due *due, char *warning);

struct wnw__plan_contents;

/* One policy applied to one source, layer by layer. */
struct wnw__plan_job;

/* size may be NULL. report: kept_mean, warning, observe_ms, score_ms, select_ms are filled by finish. */
int wnw__plan_job_new(struct wnw__plan_job **out, const wnw_policy *policy, const wnw_size *size,
                      const struct wnw__plan_source *src, wnw_report *report);
void wnw__plan_job_free(struct wnw__plan_job *job);
/* Observes and scores layer il, and where the policy is layer-local selects: afterwards *n_keep[ih] entries
 * keep[ih][] of it stay (ascending indices). Layers in ascending order, each once. out may be NULL. */
struct wnw__kept_layer {
    const int32_t *const *keep;                /* [n_head_kv]; borrowed until the next call */
    const int32_t *n_keep;                     /* [n_head_kv] */
    int32_t n_final;                           /* of which so many are settled */
    const struct wnw__plan_contents *contents; /* [n_head_kv] what is written into them, or NULL */
    bool averages;
};
int wnw__plan_job_layer(struct wnw__plan_job *job, int32_t il, struct wnw__kept_layer *out);
/* Adds the time that the job took so far. */
void wnw__plan_job_times(const struct wnw__plan_job *job, wnw_report *report);

/* All at once, n policies from one look at each layer. sizes [n] or NULL; reports [n]. */
int wnw__plan_make_many(wnw_plan **out, const wnw_policy *const *policies, const wnw_size *sizes, int32_t n,
                        const struct wnw__plan_source *src, wnw_report *reports);
/* One policy. size and report may be NULL. */
int wnw__plan_make(wnw_plan **out, const wnw_policy *policy, const wnw_size *size,
                   const struct wnw__plan_source *src, wnw_report *report);

#endif
