/* SPDX-License-Identifier: MIT */
/*
 * The driver observe -> score -> budget -> select. It turns a policy and a source of observations into a
 * keep-plan and knows neither session nor model: tests feed it plain arrays.
 */
#ifndef WNW_COMPRESS_H
#define WNW_COMPRESS_H

#include "plan/source.h"
#include "winnow_method.h"

/* The most entries per head, on average, that certainly fit into a number of bytes per head. */
uint64_t wnw__compress_entries_in(uint64_t bytes, const struct wnw__entry_bytes *entry);

/* Adds the times of one compression to those of a whole read. The first warning stays, kv_bytes_before
 * becomes the larger of the two, protected entries are those of the one, and the caller counts the entries. */
void wnw__report_add(wnw_report *sum, const wnw_report *one);

struct wnw_blocks; /* winnow_method.h */

/* A head from which a recursive policy may drop entries, and the size to reach. */
struct wnw__due {
    int32_t n, n_settled; /* entries, and how many of them are settled */
    int32_t n_keep;       /* entries that shall be left of n */
    bool strict;          /* refuse a size below wnw__blocks_least, unless some entries are settled */
};
/* Sets the error E_RANGE: n_keep of n entries are fewer than the blocks of policy `name` leave at least. */
int wnw__blocks_refuse(const char *name, const struct wnw_blocks *b, int32_t n, int32_t n_keep);
/* Makes of p a recursive policy whose own size leaves n_keep of n entries, or as near as blocks allow. k, the
 * entries kept of each block that is not settled, becomes a whole number 1 .. L; sinks and L stay as they
 * are. The caller frees *out; it is NULL where there is no block to thin. A warning, or with `strict`
 * E_RANGE, says that the size is not reached. */
int wnw__policy_fix_size(wnw_policy **out, const wnw_policy *p, const struct wnw__due *due, char *warning);

struct wnw__plan_contents;

/* One policy applied to one source, layer by layer. */
struct wnw__draft;

/* Policy, source and report are borrowed until the draft is freed. size and report may be NULL. The report gets
 * warnings from the draft; kept_mean and the times are filled by wnw__plan_make_many, or the times alone by
 * wnw__draft_times. */
int wnw__draft_new(struct wnw__draft **out, const wnw_policy *policy, const wnw_size *size,
                   const struct wnw__plan_source *src, wnw_report *report);
void wnw__draft_free(struct wnw__draft *draft);
/* What stays of a layer: the n_keep[ih] entries of KV head ih with the ascending indices keep[ih]. */
struct wnw__kept_layer {
    const int32_t *const *keep;                /* [n_head_kv], borrowed until the next call */
    const int32_t *n_keep;                     /* [n_head_kv] */
    int32_t n_settled;                         /* number of kept entries of every head that are settled */
    const struct wnw__plan_contents *contents; /* [n_head_kv] what is written into kept entries, or NULL */
    bool averages;                             /* as in struct wnw_plan */
};
/* Observes, scores and selects in layer il. Layers come in ascending order, each once. out may be NULL.
 * E_UNSUPPORTED: the policy must see all layers before it selects in one. */
int wnw__draft_layer(struct wnw__draft *draft, int32_t il, struct wnw__kept_layer *out);
/* Adds the times that the draft took so far, in ms, to the report. */
void wnw__draft_times(const struct wnw__draft *draft, wnw_report *report);
/* Sets the report's protected entries to those of the layers that the draft has seen. */
void wnw__draft_protection(const struct wnw__draft *draft, wnw_report *report);

/* Plans n policies from one observation of each layer. sizes [n] and reports [n] may be NULL. The caller frees the
 * plans out[n]; on failure all are NULL. */
int wnw__plan_make_many(wnw_plan **out, const wnw_policy *const *policies, const wnw_size *sizes, int32_t n,
                        const struct wnw__plan_source *src, wnw_report *reports);
/* Plans one policy. size and report may be NULL. */
int wnw__plan_make(wnw_plan **out, const wnw_policy *policy, const wnw_size *size,
                   const struct wnw__plan_source *src, wnw_report *report);

#endif
