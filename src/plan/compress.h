/* SPDX-License-Identifier: MIT */
/*
 * The driver observe -> score -> budget -> select. It turns a policy and a source of observations into a
 * keep-plan and knows neither session nor model: tests feed it plain arrays.
 */
#ifndef WNW_COMPRESS_H
#define WNW_COMPRESS_H

#include "base/err.h"
#include "winnow_method.h"

/* Bytes of one key plus one value of one KV head. */
struct wnw__entry_bytes {
    size_t each;
    /* In a quantised cache with a tail, the most entries of a head that are stored in f16, and their bytes. */
    int32_t n_exact;
    size_t exact;
};
/* The most entries per head, on average, that certainly fit into a number of bytes per head. */
uint64_t wnw__compress_entries_in(uint64_t bytes, const struct wnw__entry_bytes *entry);

/* Where observations come from. All callbacks get the source itself; the driver calls them on one thread. */
struct wnw__plan_source {
    int32_t n_layer, n_head, n_head_kv, n_embd_head;
    int32_t n_past;     /* tokens read */
    int32_t n_prefix;   /* number of first positions that the chat template wrote */
    int32_t ratio_base; /* entries per head that a ratio counts; 0 = the entries there */
    struct wnw__entry_bytes entry_bytes;
    const wnw_profile *profile; /* NULL = none */
    void *user;
    /* Whether policies leave layer il alone (sliding window). NULL = they leave none alone. */
    bool (*is_skipped)(const struct wnw__plan_source *src, int32_t il);
    /* Number of entries of one head, and their positions, ascending and borrowed. Both calls are cheap. */
    int32_t (*n_entry)(const struct wnw__plan_source *src, int32_t il, int32_t ih);
    const int32_t *(*positions)(const struct wnw__plan_source *src, int32_t il, int32_t ih);
    /* Number of first entries of every head of layer il that earlier compressions settled. NULL = 0. */
    int32_t (*n_final)(const struct wnw__plan_source *src, int32_t il);
    /* Whether heads hold different tokens at the same position: heads of layer il, or with il = -1 of any
     * layer. NULL = they do not. */
    bool (*is_mixed)(const struct wnw__plan_source *src, int32_t il);
    /* Positions below n_moved were assigned by renumbering, not by reading. */
    int32_t n_moved;
    /* Gives the perplexity of the last `window` tokens. NULL = the source does not know it. */
    int (*perplexity)(const struct wnw__plan_source *src, int32_t window, double *out);
    /* Feeds the tokens of a second pass (`kind` is a wnw_second_pass), once and before any layer is observed;
     * it may write a sentence to warning[256]. NULL = observe knows the results without this call. */
    int (*second_pass)(const struct wnw__plan_source *src, int32_t kind, char *warning);
    /* Tells the next call of observe which query heads' window attention it must compute, used[n_head],
     * borrowed until that call returns. Rows of the other heads are then 0. NULL = observe computes all
     * heads. */
    void (*want_heads)(const struct wnw__plan_source *src, const bool *used);
    /* Fills *obs for layer il with what `needs` asks for; the driver fills n_prefix, budget, gathered,
     * profile, perplexity and n_final. Its arrays are borrowed until the next call. */
    int (*observe)(const struct wnw__plan_source *src, int32_t il, const wnw_needs *needs,
                   wnw_observation *obs);
    /* Gets the scores of the n entries of a head, with its protected entries, after a layer was scored. NULL = no
     * callback. */
    int (*scored)(const struct wnw__plan_source *src, int32_t il, int32_t ih, const float *score, int32_t n,
                  wnw_protected prot);
    /* Called after layer il is done; it returns false to cancel. NULL = no callback. */
    bool (*progress)(const struct wnw__plan_source *src, int32_t il);
};

/* Adds the times of one compression to those of a whole read. The first warning stays, kv_bytes_before
 * becomes the larger of the two, and the caller counts the entries. */
void wnw__report_add(wnw_report *sum, const wnw_report *one);

/* The entries of a head that a recursive policy may thin, and the size for them. */
struct wnw__due {
    int32_t n, n_final; /* entries, and how many of them are settled */
    int32_t n_keep;     /* entries to be left of n */
    bool strict; /* a size too small for wnw__blocks_least is refused, unless some entries are settled */
};
/* E_RANGE with the sentence that n_keep of n entries hold less than the blocks of policy `name` leave at
 * least. */
int wnw__blocks_refuse(const char *name, const wnw_blocks *b, int32_t n, int32_t n_keep);
/* Makes of p a recursive policy whose own size leaves n_keep of n entries, or as near as blocks allow. k, the
 * entries kept of each block that is not settled, becomes a whole number 1 .. L; sinks and L stay as they
 * are. The caller frees *out; it is NULL where there is no block to thin. A warning, or with `strict`
 * E_RANGE, says that the size is not reached. */
int wnw__policy_fix_size(wnw_policy **out, const wnw_policy *p, const struct wnw__due *due, char *warning);

struct wnw__plan_contents;

/* One policy applied to one source, layer by layer. */
struct wnw__plan_job;

/* Policy, source and report are borrowed until the job is freed. size and report may be NULL. The report gets
 * warnings from the job; kept_mean and the times are filled by wnw__plan_make_many, or the times alone by
 * wnw__plan_job_times. */
int wnw__plan_job_new(struct wnw__plan_job **out, const wnw_policy *policy, const wnw_size *size,
                      const struct wnw__plan_source *src, wnw_report *report);
void wnw__plan_job_free(struct wnw__plan_job *job);
/* What stays of a layer: the n_keep[ih] entries of KV head ih with the ascending indices keep[ih]. */
struct wnw__kept_layer {
    const int32_t *const *keep;                /* [n_head_kv], borrowed until the next call */
    const int32_t *n_keep;                     /* [n_head_kv] */
    int32_t n_final;                           /* number of kept entries of every head that are settled */
    const struct wnw__plan_contents *contents; /* [n_head_kv] what is written into kept entries, or NULL */
    bool averages;                             /* see wnw_plan_averages */
};
/* Observes, scores and selects in layer il. Layers come in ascending order, each once. out may be NULL.
 * E_UNSUPPORTED: the policy must see all layers before it selects in one. */
int wnw__plan_job_layer(struct wnw__plan_job *job, int32_t il, struct wnw__kept_layer *out);
/* Adds the times that the job took so far, in ms, to the report. */
void wnw__plan_job_times(const struct wnw__plan_job *job, wnw_report *report);

/* Plans n policies from one look at each layer. sizes [n] and reports [n] may be NULL. The caller frees the
 * plans out[n]; on failure all are NULL. */
int wnw__plan_make_many(wnw_plan **out, const wnw_policy *const *policies, const wnw_size *sizes, int32_t n,
                        const struct wnw__plan_source *src, wnw_report *reports);
/* Plans one policy. size and report may be NULL. */
int wnw__plan_make(wnw_plan **out, const wnw_policy *policy, const wnw_size *size,
                   const struct wnw__plan_source *src, wnw_report *report);

#endif
