/* SPDX-License-Identifier: MIT */
/*
 * winnow for authors of methods: what a policy is made of, and how a program adds a part of its own.
 *
 * A program that only runs models needs winnow.h alone. This header adds
 *   - parts and their options, what they may observe, and the descriptor of a scorer,
 *   - registries, with which recipes name parts of the program,
 *   - the catalogue of all presets and parts, for help and documentation,
 *   - what evicting entries does to the output of one head, for comparing selections.
 *
 * docs/adding-a-method.md and examples/own_method.c show the way. The conventions are those of winnow.h.
 */
#ifndef WINNOW_METHOD_H
#define WINNOW_METHOD_H

#include "winnow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Parts: what a policy is made of ---- */

typedef enum wnw_part_kind {
    WNW_PART_SCORER,
    WNW_PART_AGGREGATION, /* from scores of query heads to scores of KV heads */
    WNW_PART_LAYER_BUDGET,
    WNW_PART_HEAD_BUDGET,
    WNW_PART_SELECTOR,
    WNW_PART_POSITIONS, /* of the entries that are kept */
    WNW_PART_CONTENTS /* of the entries that are kept: as they are, or with values merged, channels pruned */
} wnw_part_kind;

typedef enum wnw_option_type { WNW_OPT_INT, WNW_OPT_REAL, WNW_OPT_BOOL, WNW_OPT_ENUM } wnw_option_type;

/* One typed option of a part. The framework parses it, checks the range and stores it at `offset` of the
 * options struct: int32_t for INT, BOOL and ENUM (index into choices), double for REAL. */
typedef struct wnw_option {
    const char *name; /* NULL ends a table */
    const char *help;
    wnw_option_type type;
    size_t offset;
    double def, min, max;
    const char *const *choices; /* ENUM: NULL-terminated */
} wnw_option;

/* Observations a part may ask for. */
enum {
    WNW_NEED_WINDOW_ATTN = 1u << 0, /* attention of the last `window` queries */
    WNW_NEED_KEYS = 1u << 1,        /* cached keys, after RoPE */
    WNW_NEED_VALUES = 1u << 2,      /* cached values */
    WNW_NEED_ATTN_SUM = 1u << 3,    /* what every entry received from all queries since it was read: sum */
    WNW_NEED_ATTN_MAX = 1u << 4,    /* the same, maximum */
    WNW_NEED_PROJ_NORM = 1u << 5,   /* norms of the values behind the output projection */
    WNW_NEED_QUERY_STATS = 1u << 6, /* mean and covariance of the queries before RoPE */
    WNW_NEED_QUERIES = 1u << 7, /* every prompt query, after RoPE: as large as the prompt's hidden states */
    WNW_NEED_PERPLEXITY = 1u << 8,  /* of the last `window` prompt tokens */
    WNW_NEED_SECOND_PASS = 1u << 9, /* attention of tokens that are fed once more, see `second_pass` */
    WNW_NEED_PROFILE = 1u << 10,    /* calibration results of the kinds in `profiles` */
};

/* Which tokens a second pass feeds. */
typedef enum wnw_second_pass {
    WNW_PASS_CONTEXT, /* what was read, once more, behind itself (KVCompose, task-agnostic) */
    WNW_PASS_TASK,    /* the tasks of wnw_session_set_tasks, each on what was read */
    /* An instruction to repeat, then the text behind the chat header, chunk by chunk (KVzip); the softmax
     * sees the header, the chunk and what is fed. Where no header is known: the text's first 4 tokens in its
     * place. */
    WNW_PASS_REPEAT,
    WNW_PASS_REPEAT_SINKS, /* the same with the 4 tokens in any case (kvpress' KVzip) */
    WNW_PASS_REPEAT_ALL,   /* the same, and the header is text like any other */
    /* CONTEXT, and behind that second copy each of the tasks, but for those that what was read ends with
     * (KVCompose, task-aware). */
    WNW_PASS_BOTH,
} wnw_second_pass;

/* Norms of a value v behind the output projection W_O of query head h, averaged over the group. */
typedef enum wnw_proj_norm {
    WNW_PROJ_L1,     /* mean of ||v W_O^h||_1: one output projection per entry and query head */
    WNW_PROJ_L2,     /* root mean square of ||v W_O^h||_2, by a d x d matrix: about a hundredth of the work */
    WNW_PROJ_SKETCH, /* L1 over a fixed random sample of the output columns, scaled up */
} wnw_proj_norm;
#define WNW_N_PROJ_NORMS 3

typedef struct wnw_needs {
    uint32_t flags;
    int32_t window;      /* queries observed at the end of the prompt; the largest asked for wins */
    int32_t skip;        /* QUERY_STATS: first positions that are left out; policies of one run must agree */
    int32_t second_pass; /* SECOND_PASS: wnw_second_pass; policies that are planned at once must agree */
    uint32_t profiles;   /* PROFILE: bit set of wnw_profile_kind without which it cannot work */
    uint32_t profiles_optional; /* PROFILE: kinds that improve it; where one is missing it says so and works
                                   with neutral values */
} wnw_needs;

/* What the forward pass saw of one layer. Everything is float32 and borrowed until the score function
 * returns. Entries are cache entries in ascending position; with a cache that was never compressed entry i is
 * position i. Rows are rectangular: head ih has n_entry[ih] <= n entries, the rest is padding whose score is
 * ignored. Pointers are NULL unless asked for. */
typedef struct wnw_observation wnw_observation;
struct wnw_observation {
    int32_t il, n_layer; /* layer, and how many the model has */
    int32_t n_head,
        n_head_kv;          /* query heads; KV heads. Query head h reads KV head h / (n_head / n_head_kv) */
    int32_t n_embd_head;    /* d */
    int32_t n;              /* entries per head */
    int32_t n_past;         /* tokens read so far (the next token's position) */
    const int32_t *n_entry; /* [n_head_kv] */
    const int32_t *pos; /* [n_head_kv][n], positions; -1 in padding. Those in the text, and the same token has
                           the same in every head, unless an earlier compression gave new ones (+rerotate) */
    double budget;      /* entries per KV head asked for, on average over the layers, before rounding;
                           n where no size is given */
    int32_t n_final;    /* first entries of every head that a recursive policy has settled before */
    int32_t n_prefix;   /* first tokens read that the chat template wrote; 0 = none, or not known */
    int32_t n_question; /* last tokens read that are the question; 0 = not known */
    float attn_scale;   /* logit = attn_scale x query . key */

    int32_t n_window; /* queries in window_attn: the asked window, or fewer when the prompt is shorter */
    /* [n_head][n_window][n]: softmax over all visible entries, 0 where causality forbids. Query row w belongs
     * to position n_past - n_window + w. */
    const float *window_attn;
    const float *window_queries; /* [n_head][n_window][d] after RoPE: the queries of window_attn */
    /* Keys / values of KV head ih, [n][d]. Borrowed until the same function is called for another head. */
    const float *(*keys)(const wnw_observation *obs, int32_t ih);
    const float *(*values)(const wnw_observation *obs, int32_t ih);
    /* The same for entries first .. first + count - 1 only, [count][d]; shares memory with keys and values. */
    const float *(*key_rows)(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count);
    const float *(*value_rows)(const wnw_observation *obs, int32_t ih, int32_t first, int32_t count);

    /* [n_head][n]: attention probability that query head h gave to an entry, summed (or its maximum) over the
     * queries of all tokens since the entry was read, its own included. Entries present when a query was read
     * share its softmax. */
    const float *attn_sum, *attn_max;
    /* The same over the n_pass2 queries of the second pass. Rows are not renormalised. */
    const float *pass2_sum, *pass2_max;
    int32_t n_pass2;

    /* [n_head_kv][n]; NULL without memory (the error is set). Kept with the entries, so that each is computed
     * once. A bias of the projection and norms behind it are no part of it. */
    const float *(*proj_norm)(const wnw_observation *obs, wnw_proj_norm kind);
    /* The same for every query head by itself, [n_head][n]: the norm behind its own slice of the projection.
     * Borrowed until the observation ends. NULL after a failure, with the error set. */
    const float *(*head_proj_norm)(const wnw_observation *obs, wnw_proj_norm kind);

    /* Queries before RoPE (behind the query norm, if the model has one) of positions >= needs.skip: mean
     * [n_head][d], covariance [n_head][d][d] divided by their number n_query_stats. Of everything read since
     * the policy was declared, decoded tokens too; zeros where that is nothing. */
    const float *query_mean, *query_cov;
    int64_t n_query_stats;
    /* [n_queries][n_head][d] after RoPE, of positions n_past - n_queries .. n_past - 1. */
    const float *queries;
    int32_t n_queries;

    /* RoPE: the first n_rot elements of a head turn in pairs by position x rope_theta[pair], [n_rot / 2].
     * Pair i is (i, i + n_rot / 2) with rope_neox, else (2 i, 2 i + 1). */
    const float *rope_theta;
    int32_t n_rot;
    bool rope_neox;

    /* [n_head]: scores of query heads that are false here will not be used. NULL = all are. */
    const bool *query_head_used;

    const double *collected;    /* what the scorer gathered over all layers before; own scorers only */
    const wnw_profile *profile; /* NULL = none */
    double perplexity;          /* of the last tokens; 0 unless asked for */
    void *source;               /* private to whoever filled the struct */
};

/* Entries that are kept whatever their score. */
typedef struct wnw_protected {
    int32_t n_first; /* sinks */
    int32_t n_last;  /* most recent */
} wnw_protected;

/* A scorer: observations of one layer -> score[n_head_kv][n], or score[n_head][n] with `per_query_head`,
 * higher = keep. Pure: same input, same output; no allocation (scratch is given); thread-safe. */
typedef struct wnw_scorer {
    const char *name;  /* [a-z0-9_-]+ */
    const char *about; /* one sentence */
    const char *paper; /* title or arXiv id, "" if none */
    const wnw_option *options;
    size_t options_size;
    /* What it wants to see. NULL = nothing. */
    void (*needs)(const void *opts, wnw_needs *out);
    /* Entries kept whatever their score, for n entries. NULL = none. */
    void (*protect)(const void *opts, int32_t n, wnw_protected *out);
    /* float scratch elements wanted for this observation. NULL = 0. */
    size_t (*scratch)(const void *opts, const wnw_observation *obs);
    /* Fills score[n_head_kv][n], or [n_head][n]. Returns WNW_OK or an error status. */
    int (*score)(const void *opts, const wnw_observation *obs, float *score, float *scratch);
    /* For documentation, in Markdown: formulas, deviations from the paper, cost. Paragraphs are separated by
     * "\n\n". NULL = none. */
    const char *details;
    /* It scores query heads; the policy's head aggregation (group_mean unless the recipe names another) makes
     * scores of KV heads of them. Row h belongs to KV head h / (n_head / n_head_kv) and has its entries. */
    bool per_query_head;
} wnw_scorer;

/* Parts from outside the library. A policy keeps pointers to the descriptors, which must outlive it; the
 * registry itself may be freed after parsing. */
int wnw_registry_new(wnw_registry **out);
void wnw_registry_free(wnw_registry *r);
/* E_ARG for a bad or taken name, or a descriptor without a score function. */
int wnw_registry_add_scorer(wnw_registry *r, const wnw_scorer *scorer);

/* What sessions must observe for this policy. */
wnw_needs wnw_policy_needs(const wnw_policy *p);

/* ---- Catalogue ---- */

/* One entry of the method list, for help and documentation. */
typedef struct wnw_method_info {
    const char *name;
    const char *kind;   /* "preset", "parity preset", "scorer", "head aggregation", "layer budget", "head
                           budget", "selector", "position rule", "content rule" */
    const char *about;  /* one sentence */
    const char *paper;  /* "" if none */
    const char *recipe; /* presets: the canonical form of their parts; else "" */
    const char *layout; /* "uniform", "layer", "composite" or "ragged": shape of the plans; "" for parts */
    uint32_t needs;     /* WNW_NEED_ flags of what it observes */
    uint32_t phases;    /* presets and scorers: bit set of the wnw_phase they work in; 0 for other parts */
    const wnw_option *options; /* NULL or a table that ends with name == NULL; presets: of their scorer */
    const char *details;       /* Markdown: formulas, deviations, cost; "" if none */
} wnw_method_info;

/* What a WNW_NEED_ flag stands for, by the number of its bit: "window attention", ...; NULL past the end. */
const char *wnw_need_name(int32_t bit);
/* Entry i of all presets and parts, in a fixed order. false past the end. Static. */
bool wnw_method_get(int32_t i, wnw_method_info *out);

/* ---- Perturbation: what evicting entries does to the output of one head ---- */

/* The output of one head for one query is o = sum_i A_i v_i W_O, A = softmax attention over all n entries.
 * With the entries that are not kept evicted, softmax is over the rest and o changes. Bounds of ||change||_1
 * after "CriticalKV" (arXiv 2502.03805) for an eviction in two stages; nu_i = ||v_i W_O||_1. */
typedef struct wnw_perturbation {
    double sigma;       /* attention on kept entries */
    double sigma_first; /* attention on entries of stage 1 */
    bool guaranteed;    /* sigma_first > 1/2 (assumption 3.4): more A nu in stage 2 means a lower theta_hat */
    double theta;       /* the bound itself (theorem 3.3) */
    double theta_hat;   /* what choosing stage 2 by A nu minimises (theorem 3.5); >= theta */
    double theta_relax; /* what choosing stage 2 by A minimises (theorem C.1); >= theta_hat if guaranteed */
} wnw_perturbation;

/* attn, nu, kept, first: [n]; first marks stage 1, NULL = all that is kept. E_ARG: attention is not a
 * distribution, nothing is kept, or stage 1 is empty or not kept. */
int wnw_perturb_bounds(wnw_perturbation *out, const float *attn, const float *nu, const bool *kept,
                       const bool *first, int32_t n);
/* The change itself, delta[d] = sum_i (A_i - A'_i) rows[i][d], and its L1 norm; either may be NULL. rows =
 * v_i W_O gives the change of the head's output; rows = v_i the change before the projection, which is
 * linear, so that changes of several heads can be projected and added. E_ARG as above. */
int wnw_perturb_output(double *l1, double *delta, const float *attn, const float *rows, const bool *kept,
                       int32_t n, int32_t d);
/* Attention on the k largest of attn[n]: above 1/2 the assumption of the two stages holds. */
double wnw_perturb_mass(const float *attn, int32_t n, int32_t k);

#ifdef __cplusplus
}
#endif
#endif /* WINNOW_METHOD_H */
