/* SPDX-License-Identifier: MIT */
/*
 * The inside of the driver. A draft is a keep-plan in the making: one policy at work on one source. Each file has one subject:
 *
 *     compress.c:         walks the layers, several drafts in step
 *     compress_bytes.c:   plans again until what is allocated is the size in bytes
 *     compress_draft.c:   what a draft needs to know and to hold before it observes any layer
 *     compress_size.c:    the average number of entries that the given size comes to
 *     compress_protect.c: entries that stay regardless of their score, made to fit into the size
 *     compress_observe.c: what a draft needs of a layer, and the observation as it sees it
 *     compress_score.c:   scores of a layer
 *     compress_count.c:   how many entries layers and heads keep
 *     compress_select.c:  which entries heads keep, and what is written into them
 */
#ifndef WNW_COMPRESS_IMPL_H
#define WNW_COMPRESS_IMPL_H

#include "plan/compress.h"
#include "plan/plan.h"
#include "policy/policy.h"

/* The cache as the draft finds it. */
struct wnw__draft_cache {
    int32_t *n_entry; /* [n_layer][n_head_kv] */
    int32_t *rank;    /* [n_layer] its number among the layers that take part; -1 = takes no part */
    int32_t *il;      /* [n_part] the layer with that number, the inverse of `rank` */
    int32_t n_part;   /* number of layers that take part */
    int32_t n_max;    /* entries of the longest head of these layers */
    int32_t n_min;    /* entries of the shortest head of these layers */
    int64_t n_sum;    /* entries of all heads of these layers */
    int32_t row;      /* entries of the longest head of all layers, plus 1 */
};

/* Which rule the size comes to. */
enum wnw__size_rule {
    WNW_SIZE_RULE_ALL,      /* everything stays */
    WNW_SIZE_RULE_SELECTOR, /* no size was given: a recursive selector has its own */
    WNW_SIZE_RULE_HEADS, /* no size was given, or one that all entries fit into: a head budget has its own */
    WNW_SIZE_RULE_MEAN,  /* `budget` entries stay on average */
};
struct wnw__draft_size {
    enum wnw__size_rule rule;
    int32_t budget;  /* average entries per layer and head; n_max unless the rule is MEAN */
    double mean;     /* the budget before rounding */
    double ratio;    /* fraction to remove where all heads are equally long; 0 otherwise */
    bool may_shrink; /* whether protected entries shrink to the size; otherwise the size is refused */
    int32_t room;    /* of that many entries, protected ones must leave room for others; 0 = need not */
};

/* Scores of a layer, and facts that the steps after scoring need. */
struct wnw__scored_layer {
    int32_t il, i;          /* layer of the model; its number among layers that take part */
    int32_t row, n_settled; /* elements per row of score; settled entries of every head */
    const int32_t *n_entry; /* [n_head_kv] */
    float *score;           /* [n_head_kv][row] */
    float *head_score;      /* [n_head][row] if the selector looks at query heads, or NULL */
};

/* A buffer of cap floats that grows by wnw__draft_reserve. */
struct wnw__floats {
    float *x;
    size_t cap;
};

/* What stays of the current layer. */
struct wnw__draft_kept {
    int32_t *keep;              /* [n_head_kv][cache.row] indices; NULL = everything stays as it is */
    const int32_t **keep_heads; /* [n_head_kv] into keep */
    int32_t *n_keep, *n_safe;   /* [n_head_kv] */
    wnw_protected *prot;        /* [n_head_kv] */
    int32_t n_settled;          /* settled entries of every head after selecting */
    wnw_merge *merges;          /* [cache.row] of one head */
    int32_t *channels;          /* [n_embd_head] of one head */
};

struct wnw__draft {
    const struct wnw__plan_source *src;
    const wnw_policy *policy;
    const wnw_scorer *scorer;
    const wnw_aggregation *aggregation;
    const wnw_selector *selector;
    const wnw_contents *contents;
    const wnw_profile *profile; /* the source's, or `without` */
    wnw_profile *without;       /* the source's without a table that does not serve; NULL = it serves */
    void *scorer_opts;          /* an owned copy, because a small size may shrink the blocks in it */
    wnw_report *report, unused_report;
    double observe_ms, score_ms, work_ms; /* work_ms: scores, budgets and selection */

    struct wnw__draft_cache cache;
    struct wnw__draft_size size;
    double perplexity;
    /* [n_layer][needs.lookahead][n_head][d] queries of tokens to come; NULL = none are needed */
    float *lookahead;
    int32_t n_lookahead;
    double *gathered[WNW_N_PART_KINDS]; /* what a part gathered over the layers; NULL = it gathers nothing */

    bool all_layers;                  /* whether all layers are scored before anything is selected */
    struct wnw__scored_layer *scored; /* [n_part] if all_layers */
    int32_t *layer_budget;            /* [n_part] */
    double *layer_work;               /* [n_part] scratch memory of the layer budget */
    int32_t *layer_length;            /* [n_part] the most that layers can keep per head */
    int32_t *counts; /* [n_part][n_head_kv] of a head budget over all layers, or NULL (yet) */

    struct wnw__floats score, head_score; /* of one layer, in the layout of wnw__scored_layer */
    struct wnw__floats note;    /* [2][cache.row] of one head: of all entries, then of those that stay */
    struct wnw__floats fitted;  /* biases and values of the kept entries of one head */
    struct wnw__floats scratch; /* used by one part after the other */
    bool *heads,
        *all_heads; /* [n_head] heads that this draft uses in the current layer; scratch of the walk */
    bool observes;  /* whether the draft observes the current layer */
    bool empties;   /* whether a layer seen so far loses all its entries */
    bool drops;     /* whether any head seen so far loses entries */
    wnw_protected min_protected; /* the fewest protected entries of those heads */
    wnw_needs needs;             /* what it needs of that layer */
    struct wnw__draft_kept kept;

    wnw_plan *plan;
};

/* ---- compress_draft.c ---- */

/* Whether the policy acts on layer il. */
static inline bool wnw__draft_takes_part(const struct wnw__draft *draft, int32_t il)
{
    return draft->cache.rank[il] >= 0;
}
/* Whether a head budget that looks at all layers says how much stays, without a size. */
static inline bool wnw__draft_own_counts(const struct wnw__draft *draft)
{
    return draft->size.rule == WNW_SIZE_RULE_HEADS && wnw__head_budget_of(draft->policy)->allocate_model;
}
/* Whether the selector notes something of the entries. */
static inline bool wnw__draft_notes(const struct wnw__draft *draft)
{
    return wnw__policy_part_needs(draft->policy, WNW_PART_SELECTOR).flags & WNW_NEED_NOTES;
}
/* [n_head_kv] entries of layer il. */
static inline const int32_t *wnw__draft_entries(const struct wnw__draft *draft, int32_t il)
{
    return draft->cache.n_entry + (int64_t)il * draft->src->shape.n_head_kv;
}
/* The positions of the entries of KV head ih of layer il; NULL where the layer has none. */
static inline const int32_t *wnw__draft_positions(const struct wnw__draft *draft, int32_t il, int32_t ih)
{
    const struct wnw__plan_layer l = draft->src->layer(draft->src, il);
    return l.pos ? l.pos + l.off[ih] : NULL;
}
/* Makes room for n floats; the old contents are lost. */
int wnw__draft_reserve(struct wnw__floats *f, size_t n);

/* ---- compress_size.c ---- */

/* Resolves the size, which may be NULL, to draft->size. */
int wnw__draft_resolve_size(struct wnw__draft *draft, const wnw_size *size);

/* ---- compress_protect.c ---- */

/* The protected entries of a head of n entries that holds everything that the chat template wrote. */
wnw_protected wnw__draft_protected(const struct wnw__draft *draft, int32_t n);
/* The protected entries of KV head ih of layer il with the entries it has. */
wnw_protected wnw__draft_protected_head(const struct wnw__draft *draft, int32_t il, int32_t ih);
/* Makes the protected entries fit into the size, with a warning, or refuses the size (E_RANGE). */
int wnw__draft_fit_protected(struct wnw__draft *draft);
/* Takes note of what is protected in the heads of a layer that do not keep everything, after they were counted. */
void wnw__draft_note_protected(struct wnw__draft *draft, const struct wnw__scored_layer *l);

/* ---- compress_observe.c ---- */

/* What the draft needs of a layer. It may gather before any layer is scored. Scoring and selecting have needs of
 * their own. A layer that stays whole is observed for the content rule alone. */
wnw_needs wnw__draft_gather_needs(const struct wnw__draft *draft);
wnw_needs wnw__draft_score_needs(const struct wnw__draft *draft);
wnw_needs wnw__draft_select_needs(const struct wnw__draft *draft);
wnw_needs wnw__draft_contents_needs(const struct wnw__draft *draft);
/* Sets used[n_head] for query heads whose window attention the draft reads when it scores layer il. */
int wnw__draft_window_heads(struct wnw__draft *draft, int32_t il, bool *used);
/* Sets *obs to the observation `seen`, which all drafts share, with the facts that are this draft's own. E_NOT_OBSERVED: the
 * policy needs something that `seen` lacks. */
int wnw__draft_adapt(const struct wnw__draft *draft, const wnw_observation *seen, const wnw_needs *needs,
                     wnw_observation *obs);
/* Lets the part of kind k gather what it sees of a layer, if it is a part that gathers. */
int wnw__draft_gather(struct wnw__draft *draft, int32_t k, const wnw_observation *obs);

/* ---- compress_score.c ---- */

/* Scores one layer as the policy says, with scorer_opts in place of the policy's. score is [n_head_kv][n] with n of obs;
 * room is scratch of wnw__score_room(..) floats. */
size_t wnw__score_room(const struct wnw_policy *p, const void *scorer_opts, const wnw_observation *obs);
int wnw__score(const struct wnw_policy *p, const void *scorer_opts, const wnw_observation *obs, float *score,
               float *room);
/* The scores [n_head][n] of query heads, which the last wnw__score of this observation left in its room. */
const float *wnw__score_rows(const wnw_observation *obs, const float *room);
/* Scores a layer. The scores in *out lie in the draft's buffers until the next layer is scored. */
int wnw__draft_score(struct wnw__draft *draft, const wnw_observation *obs, struct wnw__scored_layer *out);

/* ---- compress_count.c ---- */

/* Sets the counts of all layers where they do not depend on scores. */
int wnw__draft_count_layers(struct wnw__draft *draft);
/* Sets the counts of all layers, or of all their heads: from the scores of all layers, or before any is scored
 * for a head budget that looks at none. */
int wnw__draft_count_model(struct wnw__draft *draft);
/* Sets the counts and protected entries of one layer's heads. */
int wnw__draft_count_heads(struct wnw__draft *draft, const struct wnw__scored_layer *l);

/* ---- compress_select.c ---- */

/* Keeps every entry of the layer; obs = what the content rule asked for, or NULL. */
int wnw__draft_keep_layer(struct wnw__draft *draft, int32_t il, const wnw_observation *obs);
/* Counts and selects in a layer; obs = what selector and content rule asked for, or NULL. */
int wnw__draft_select_layer(struct wnw__draft *draft, const struct wnw__scored_layer *l,
                            const wnw_observation *obs);

/* ---- compress.c ---- */

/* Observes, scores and selects in all layers for drafts of one source; again: its second pass was fed before. */
int wnw__draft_walk(struct wnw__draft **drafts, int32_t n, const struct wnw__plan_source *src, bool again);
/* The plan of a draft that has walked over all layers, with its report. */
wnw_plan *wnw__draft_finish(struct wnw__draft *draft);
/* Plans a policy once more from the same source, whose second pass was fed before. Policies that look at tokens to come are not
 * planned again, because these depend on the size. */
int wnw__plan_again(wnw_plan **out, const wnw_policy *policy, const wnw_size *size,
                    const struct wnw__plan_source *src, wnw_report *report);
/* Replaces a plan for a size in bytes, where the source knows what is allocated, by one that is allocated in no more bytes and in nearly
 * as many; it stays where no plan fits, as where heads hold fewer entries than the block that they grow by. Other sizes stay as they
 * are. */
int wnw__plan_fit_bytes(wnw_plan **plan, const wnw_policy *policy, const wnw_size *size,
                        const struct wnw__plan_source *src, wnw_report *report);

#endif
