/* SPDX-License-Identifier: MIT */
/*
 * What a part of a policy is. One part = one file = one const descriptor here, and one line in parts.def.
 *
 *   scorer        observation of one layer      -> score[n_head][n] or     src/score/
 *                                                  score[n_head_kv][n]
 *   aggregation   scores of a layer's heads     -> score[n_head_kv][n]     src/aggregate/
 *   layer budget  one count for the whole model -> one count per layer     src/budget/
 *   head budget   count of a layer, its scores  -> one count per KV head   src/budget/
 *   selector      scores and count of one head  -> kept entries            src/select/
 *   positions     kept entries                  -> their positions         src/positions/
 *   contents      kept entries, those that go   -> merges, pruned channels  src/contents/
 *
 * `details` of every descriptor is for docs/methods.md, in Markdown: the formulas in short with the paper's
 * letters, then what differs from the paper and from released code, then the cost in entries n, queries w and
 * head size d. Paragraphs are separated by "\n\n"; NULL = nothing to say.
 *
 * Parts are pure: same input, same output; no allocation, no state, no ggml. Entries are indices into a
 * head's list of cached entries, which is in ascending position. Only the driver (compress.c) knows the order
 * of the steps.
 */
#ifndef WNW_PART_H
#define WNW_PART_H

#include "base/err.h"
#include "winnow_method.h"

/* Consecutive blocks of `lag` entries behind `sink` protected ones. */
struct wnw__blocks {
    int32_t sink, lag;
};
/* Blocks of n entries that are thinned: all complete ones behind the sinks but the last. */
static inline int32_t wnw__blocks_thinned(const struct wnw__blocks *b, int32_t n)
{
    return n < b->sink || (n - b->sink) / b->lag < 2 ? 0 : (n - b->sink) / b->lag - 1;
}

/* How a real-valued count becomes whole. */
enum wnw__rounding {
    WNW_ROUND_EXACT, /* floor(x + 1e-6): 1000 * (1 - 0.9) is 100 */
    WNW_ROUND_TRUNC, /* floor(x), as kvpress does: 1000 * (1 - 0.9) is 99 */
};

/* Between whose entries of one position a part compares: they must be of the same token. After key
 * re-rotation heads with tokens of their own have other tokens under the same position; such a cache is
 * refused then. */
enum wnw__matches {
    WNW_MATCH_NONE,
    WNW_MATCH_HEADS,  /* of a layer */
    WNW_MATCH_LAYERS, /* of the model */
};

/* ---- Scorer: the public descriptor, and what only our own scorers can say ---- */

struct wnw__scorer {
    wnw_scorer pub;
    const char *layout; /* of its plans when every head gets the same count */
    /* Contradictions between options that single ranges cannot express. NULL = none. */
    int (*check)(const void *opts);
    /* Entries kept whatever their score where that depends on the size: `budget` entries per head on average
     * were asked for. NULL = pub.protect. */
    void (*protect_of)(const void *opts, int32_t n, int32_t budget, wnw_protected *out);
    /* Changes *out, which says what is kept of a head's entries in any case, by what the chat template wrote:
     * the prompt's first n_prefix tokens, of which the head holds n_here, as its first entries. NULL = the
     * template does not matter. */
    void (*protect_prefix)(const void *opts, int32_t n_prefix, int32_t n_here, wnw_protected *out);
    /* Blocks the scores belong to. NULL = scores of all entries can be compared. Entries before n_final are
     * settled: a sink as far as blocks are concerned. */
    void (*blocks)(const void *opts, struct wnw__blocks *out);
    /* Whether the method leaves layer il whole; such layers are not counted in a size. NULL = none. */
    bool (*skips)(const void *opts, int32_t il);
    /* Changes opts so that what is protected of n entries fits into n_keep; false if it cannot. NULL = the
     * driver's rule (wnw__protected_shrink) is enough. */
    bool (*shrink)(void *opts, int32_t n, int32_t n_keep);
    /* A prompt's budget that cannot hold what is protected is refused unless this is set: then it shrinks
     * that as a ratio does, with a warning, and already where nothing would be left to choose. */
    bool shrinks_for_budget;
    /* Something to gather over all layers before any layer is scored: obs->collected[collect_size(opts, n)],
     * zero at first, n = tokens read: one more than the last position. NULL or a size of 0 = nothing. Such a
     * scorer works at the end of a prompt only. */
    size_t (*collect_size)(const void *opts, int32_t n);
    void (*collect_needs)(const void *opts, wnw_needs *out);
    int (*collect)(const void *opts, const wnw_observation *obs, double *collected);
    /* A last step behind the head aggregation, in place: score[n_row][obs->n] of all KV heads, or of all
     * query heads for a selector that looks at those. scratch[obs->n]. NULL = none. */
    void (*finish)(const void *opts, const wnw_observation *obs, int32_t n_row, float *score, float *scratch);
    /* Head aggregation where the recipe names none. NULL = group_mean for scores of query heads, else direct. */
    const char *aggregation;
    bool prompt_only; /* its scores need a prompt's end: never while decoding */
    enum wnw__matches matches;
    /* Whether it takes n_past - position for the number of queries that an entry has seen, which is wrong for
     * entries with new positions. NULL = no. */
    bool (*counts_age)(const void *opts);
    bool like_attention; /* scores are attention probabilities or estimates of them, not negative */
    /* Row h of its scores takes the window's attention of query head h alone: that of heads which the
     * aggregation leaves out need not be computed. */
    bool window_by_head;
};

/* ---- Head aggregation ---- */

struct wnw__aggregation {
    const char *name, *about, *paper, *details;
    const wnw_option *options;
    size_t options_size;
    bool of_query_heads; /* works on scores of query heads only */
    bool one_list;       /* every KV head gets the same score for the same token */
    /* NULL = it does not match positions. */
    enum wnw__matches (*matches)(const void *opts);
    /* What it wants to see besides (a profile). NULL = nothing. */
    void (*needs)(const void *opts, wnw_needs *out);
    /* Which query heads count: used[obs->n_head], all true at first. It is asked before the layer is
     * observed: il, the shapes and the profile are all that is there. NULL = all. */
    int (*choose)(const void *opts, const wnw_observation *obs, bool *used);
    /* float scratch elements. NULL = 0. */
    size_t (*scratch)(const void *opts, const wnw_observation *obs);
    /* head_score[n_row][obs->n], n_row = obs->n_head or obs->n_head_kv -> score[obs->n_head_kv][obs->n],
     * which do not overlap. NULL = the scorer's are it. */
    void (*aggregate)(const void *opts, const wnw_observation *obs, const float *head_score, int32_t n_row,
                      float *score, float *scratch);
};

/* ---- Layer budget ---- */

struct wnw__layer_problem {
    int32_t n_layer;     /* layers that take part */
    int32_t n;           /* entries of the longest head */
    int32_t n_protected; /* of which this many are kept whatever their score */
    int32_t budget;      /* average to reach; n_protected <= budget < n */
    double mean;         /* the same before rounding */
    double ratio; /* fraction to remove, where all heads hold n entries and a ratio was asked for; 0 else */
    enum wnw__rounding rounding;
    const int32_t *il;     /* [n_layer] which layers of the model they are */
    int32_t n_layer_model; /* layers of the model */
    int32_t n_head, n_head_kv;
    const wnw_profile *profile;
    double perplexity;

    /* Model scope only, NULL else: what is known after all layers were scored. */
    const float *const *score; /* [n_layer][n_head_kv][row[i]] */
    const int32_t *row;        /* [n_layer] entries per row of score, padding included */
    const int32_t *n_entry;    /* [n_layer][n_head_kv] */
    const wnw_protected *prot; /* [n_layer][n_head_kv], never more than n_entry or budget */
    const double *stat;        /* [n_layer][n_stat], what `measure` gave */
    const double *collected;   /* what `measure` gathered over the layers */
    const double *head_stat;   /* [n_layer][n_head_kv], what the head budget's `measure` gave; or NULL */
    float *scratch;            /* [sum of n_head_kv * row]; layer budgets only */
    double *work;              /* [n_layer] scratch */
};

/* The options struct of every layer budget begins with this. */
struct wnw__layer_opts {
    int32_t rounding; /* enum wnw__rounding, for every count of the policy */
};
#define WNW_OPTION_ROUNDING                                                                                 \
    {                                                                                                       \
        .name = "rounding", .help = "exact: floor(x + 1e-6); trunc: bare truncation, as kvpress does",      \
        .type = WNW_OPT_ENUM, .offset = offsetof(struct wnw__layer_opts, rounding), .def = WNW_ROUND_EXACT, \
        .choices = wnw__rounding_choices                                                                    \
    }
extern const char *const wnw__rounding_choices[];
/* Names of wnw_proj_norm, for an option table. */
extern const char *const wnw__proj_norm_choices[];

struct wnw__layer_budget {
    const char *name, *about, *paper, *details;
    const wnw_option *options;
    size_t options_size;
    bool ragged; /* layers differ in length */
    enum wnw__matches matches;
    /* Counts depend on every layer's scores: allocate is called once all layers are scored. */
    bool model_scope;
    /* Whether a size counts what is chosen alone, and what the scorer protects comes on top. NULL = no. */
    bool (*counts_history)(const void *opts);
    /* What it wants to see besides. NULL = nothing. */
    void (*needs)(const void *opts, wnw_needs *out);
    /* Numbers of one layer, stat[n_stat], from its observation and its scores [n_head_kv][obs->n]; may add to
     * collected[collect_size(opts, n)] of the whole model, zero at first, n = tokens read. Model scope only;
     * NULL = none. scratch[n_head_kv * obs->n]. */
    int32_t n_stat;
    size_t (*collect_size)(const void *opts, int32_t n);
    int (*measure)(const void *opts, const wnw_observation *obs, const float *score, double *stat,
                   double *collected, float *scratch);
    /* n_keep[n_layer]: average entries per head of each layer, 0..n. An error status fails the plan. May
     * add a sentence to `warning` with wnw__warn. */
    int (*allocate)(const void *opts, const struct wnw__layer_problem *p, int32_t *n_keep, char *warning);
};

/* ---- Head budget ---- */

struct wnw__head_problem {
    int32_t n_head_kv;
    int32_t n;                 /* entries per row of score, padding included */
    const int32_t *n_entry;    /* [n_head_kv] */
    const float *score;        /* [n_head_kv][n] */
    const wnw_protected *prot; /* [n_head_kv], never more than budget or n_entry */
    int32_t budget;            /* average over the heads */
    enum wnw__rounding rounding;
};

struct wnw__head_budget {
    const char *name, *about, *paper, *details;
    const wnw_option *options;
    size_t options_size;
    bool ragged;   /* heads differ in length */
    bool competes; /* shares H times the average out over the H heads of a layer, as far as they hold it */
    /* Whether, under rules, a head that a prompt's compression has cut holds its count while decoding: the
     * oldest entries behind the protected first ones go, and all other heads grow. NULL = no. */
    bool (*slides)(const void *opts);
    /* Where no size is given its counts follow from its own rule: every budget it sees is then all there is,
     * and no layer budget is asked. */
    bool own_size;
    /* Adds to *out what it keeps whatever the score, besides what the scorer protects; budget: average
     * entries per head that were asked for, INT32_MAX = no size was given. NULL = nothing. */
    void (*protect)(const void *opts, int32_t budget, wnw_protected *out);
    /* What it wants to see besides (a profile). NULL = nothing. */
    void (*needs)(const void *opts, wnw_needs *out);
    /* n_keep[n_head_kv], protected entries <= n_keep <= n_entry; scratch[n_head_kv * n]. n_safe[n_head_kv],
     * zero at first: so many best scores of a head are sure of their place whatever the selector does. NULL
     * where allocate_model is given. */
    void (*allocate)(const void *opts, const struct wnw__head_problem *p, int32_t *n_keep, int32_t *n_safe,
                     float *scratch);
    /* Model scope, in place of layer budget and allocate: counts of all layers and heads at once,
     * n_keep[p->n_layer][n_head_kv]. scratch[n_layer * n_head_kv * n]. The layer budget must be `uniform`. */
    int (*allocate_model)(const void *opts, const struct wnw__layer_problem *p, int32_t *n_keep,
                          float *scratch, char *warning);
    /* Numbers of one layer, stat[n_head_kv], from its observation. With allocate_model only; NULL = none. */
    int (*measure)(const void *opts, const wnw_observation *obs, double *stat);
};

/* ---- Selector ---- */

struct wnw__select_problem {
    const float *score;        /* [n] of one head */
    int32_t n, n_keep;         /* 0 <= n_keep <= n */
    wnw_protected prot;        /* n_first + n_last <= n_keep */
    struct wnw__blocks blocks; /* of the scorer; lag 0 = none */
    int32_t n_final;           /* settled entries before the blocks */
    int32_t n_safe;            /* best scores that are kept in any case, <= n_keep - protected */
    int32_t ih;                /* this head */
    int32_t n_head_kv, row;    /* all heads of the layer: layer_score[n_head_kv][row], n_entry[n_head_kv] */
    const float *layer_score;
    const float *head_score; /* [obs->n_head][row] where of_query_heads says so, NULL else */
    const int32_t *n_entry;
    enum wnw__rounding rounding;
    double mean;                /* average size asked for, before rounding; 0 = the policy's own */
    const wnw_observation *obs; /* what `needs` asks for; NULL if nothing */
};

struct wnw__selector {
    const char *name, *about, *paper, *details;
    const wnw_option *options;
    size_t options_size;
    bool by_block;       /* works on a scorer's blocks, with the same count in every head and layer */
    bool attention_only; /* compares scores with attention: only scorers whose scores are like it */
    enum wnw__matches matches;
    /* Whether it looks at the scores of query heads too, which only scorers that have them and aggregations
     * of whole groups go with. NULL = no. */
    bool (*of_query_heads)(const void *opts);
    /* What it wants to see while it selects. NULL = nothing. */
    void (*needs)(const void *opts, wnw_needs *out);
    /* Adds a sentence to `warning` where `budget` entries per head, of which prot are protected, leave the
     * method nothing of its own to do. NULL = never. */
    void (*advise)(const void *opts, const wnw_protected *prot, int32_t budget, enum wnw__rounding rounding,
                   char *warning);
    /* Entries to keep of n where no size is given. NULL = the selector has no size of its own. */
    int32_t (*own_size)(const void *opts, const struct wnw__blocks *blocks, int32_t n,
                        enum wnw__rounding rounding);
    /* Changes opts so that own_size of n entries is the largest that is at most n_keep. NULL as own_size. */
    void (*fix_size)(void *opts, const struct wnw__blocks *blocks, int32_t n, int32_t n_keep);
    /* Of n entries in blocks: how many come before the ones it will look at again. NULL = none (not
     * recursive). */
    int32_t (*settled)(const void *opts, const struct wnw__blocks *blocks, int32_t n, int32_t n_keep);
    /* float scratch elements for n entries. NULL = 0. */
    size_t (*scratch)(const void *opts, int32_t n);
    /* Writes kept entries, ascending, to keep[n]; returns how many: n_keep, but for selectors whose unit is
     * not a single entry. Negative = an error status. */
    int32_t (*select)(const void *opts, const struct wnw__select_problem *p, int32_t *keep, float *scratch);
};

/* ---- Positions ---- */

struct wnw__positions {
    const char *name, *about, *paper, *details;
    const wnw_option *options;
    size_t options_size;
    /* Kept entries get the positions 0 .. n - 1 in their order. All heads of all layers must keep the same
     * count. */
    bool rerotate;
};

/* ---- Contents ---- */

struct wnw__contents_problem {
    const wnw_observation *obs; /* what `needs` asks for */
    int32_t ih;                 /* this head */
    const int32_t *keep;        /* [n_keep] entries that stay, ascending */
    int32_t n_keep, n;          /* of n entries */
};

/* What is written into the entries that stay, as data of the plan: the cache itself is changed when the plan
 * is applied (src/session/rewrite.c). */
struct wnw__contents {
    const char *name, *about, *paper, *details;
    const wnw_option *options;
    size_t options_size;
    bool whole;       /* has work to do where everything stays, too */
    bool prompt_only; /* belongs to the end of a prompt: not by chunk, never while decoding */
    bool averages;    /* a value that took others in is divided by 1 + the sum of their weights */
    void (*needs)(const void *opts, wnw_needs *out);
    /* float scratch elements. NULL = 0. */
    size_t (*scratch)(const void *opts, const wnw_observation *obs);
    /* Merges of the head with entries in place of positions, ascending `from`, at most one for each entry
     * that goes: out[n - n_keep]; returns how many. NULL = none. */
    int32_t (*merge)(const void *opts, const struct wnw__contents_problem *p, wnw_merge *out, float *scratch);
    /* Key channels that become 0 in all but the last *n_spared entries, ascending: out[d]; returns how many.
     * NULL = none. */
    int32_t (*prune)(const void *opts, const struct wnw__contents_problem *p, int32_t *out, int32_t *n_spared,
                     float *scratch);
};

static inline bool wnw__contents_works(const struct wnw__contents *c)
{
    return c->merge || c->prune;
}

/* ---- The lists ---- */

/* A part of any kind, seen through what all kinds have in common. */
struct wnw__part {
    wnw_part_kind kind;
    const char *name, *about, *paper, *details;
    const wnw_option *options;
    size_t options_size;
    const wnw_scorer *scorer;      /* scorers only */
    const struct wnw__scorer *own; /* our scorers only */
    const struct wnw__aggregation *aggregation;
    const struct wnw__layer_budget *layer;
    const struct wnw__head_budget *head;
    const struct wnw__selector *selector;
    const struct wnw__positions *positions;
    const struct wnw__contents *contents;
};

/* Part i of all kinds in a fixed order; false past the end. */
bool wnw__part_get(int32_t i, struct wnw__part *out);
/* By name; false if there is none. */
bool wnw__part_find(struct wnw__part *out, const char *name, size_t len);
/* A scorer from outside as a part. */
struct wnw__part wnw__part_of_scorer(const wnw_scorer *scorer);
const char *wnw__part_kind_name(wnw_part_kind kind);
#endif
