/* SPDX-License-Identifier: MIT */
/* The numbers of the perturbation study: what policies change of one token in every head, layer and state, over many
 * texts, and what that says about a method next to its base. */
#ifndef WNW_PERTURB_NUMBERS_H
#define WNW_PERTURB_NUMBERS_H

#include "eval/base/stats.h"
#include "study/perturb.h"

#include <stdbool.h>

/* What is measured of the outputs of attention with a plan in one layer alone, and of hidden states with it in all
 * layers; a unit of the last two is a layer. */
enum perturb_level { PERTURB_HEADS, PERTURB_GROUPS, PERTURB_LAYERS, PERTURB_STATES, PERTURB_N_LEVELS };
/* "heads", "groups", "layers", "states": the names of the levels in records. */
const char *perturb_level_name(enum perturb_level level);

/* Numbers of a query head for a size, where entries are chosen by the token's own attention (struct wnw__perturb_bound). */
enum perturb_bound {
    PERTURB_B_SIGMA, /* attention on stage 1 */
    PERTURB_B_CHANGE,
    PERTURB_B_THETA_HAT,
    PERTURB_B_THETA_HAT_ATTENTION,
    PERTURB_B_THETA_RELAX,
    PERTURB_N_BOUNDS
};
const char *perturb_bound_name(enum perturb_bound bound);

/* All records of a study. The first policy is the base that others are compared with. */
struct perturb_numbers {
    int32_t n_layer, n_head, n_head_kv;
    int32_t n_policies, n_sizes, n_texts, cap_texts;
    bool *sliding; /* [n_layer] layers that no policy touches; owned like all below */
    /* [cap_texts][n_sizes][n_policies][units]: mean absolute or L1 changes of each text; n_texts are filled. */
    double *change[PERTURB_N_LEVELS];
    double *bound[PERTURB_N_BOUNDS]; /* [cap_texts][n_sizes][n_layer x n_head] */
    /* [cap_texts][n_sizes][n_policies][n_layer x n_head]: the token's attention on what the policy's own first stage took; NaN where the
     * policy has none. */
    double *first;
    double *kept; /* [n_sizes][n_policies] sum over the texts of the share of entries that stay */
};

/* Makes a study without texts; the numbers above n_texts are set by the caller, who clears it in any case. false: out of memory. */
bool perturb_numbers_open(struct perturb_numbers *p);
/* Makes room for n_texts at least, with zeros where there was none. false: out of memory. */
bool perturb_numbers_reserve(struct perturb_numbers *p, int32_t n_texts);
void perturb_numbers_clear(struct perturb_numbers *p);
/* Units of a level: heads, KV heads or layers of all layers. */
int32_t perturb_level_units(const struct perturb_numbers *p, enum perturb_level level);
/* The numbers [units] of text i. */
double *perturb_changes(const struct perturb_numbers *p, enum perturb_level level, int32_t size,
                        int32_t policy, int32_t text);
/* The numbers [n_layer x n_head] of text i. */
double *perturb_bounds(const struct perturb_numbers *p, enum perturb_bound bound, int32_t size, int32_t text);
/* The attention [n_layer x n_head] on the policy's first stage in text i. */
double *perturb_first(const struct perturb_numbers *p, int32_t size, int32_t policy, int32_t text);
/* Whether a unit says anything: not of a sliding layer, except states. */
bool perturb_counts(const struct perturb_numbers *p, enum perturb_level level, int32_t unit);

/* Mean over the texts of one unit. */
double perturb_mean(const struct perturb_numbers *p, enum perturb_level level, int32_t size, int32_t policy,
                    int32_t unit);

/* 95 % intervals where texts are drawn again; NaN for fewer than EVAL_BOOT_LEAST texts. */
struct perturb_over {
    struct eval_interval lower;     /* of the share of units whose mean over the texts is below the base's */
    struct eval_interval change;    /* of the mean over units, less 1: 0.1 is a tenth more than the base's */
    struct eval_interval geometric; /* of the geometric mean over units */
};

/* Changes under both policies, [n_texts][n_units] each. */
struct perturb_pairs {
    const double *base, *other;
    int32_t n_texts, n_units;
};

/* Draws the texts EVAL_BOOT_ROUNDS times. false: out of memory. */
bool perturb_intervals(struct perturb_over *over, const struct perturb_pairs *p, struct eval_random *r);

/* A policy next to the base. */
struct perturb_beside_base {
    double base, other;         /* means over texts and units */
    double geo_base, geo_other; /* geometric means over units of the same, where both are above 0 */
    int32_t n_lower, n; /* units whose mean over the texts is smaller than the base's; units that count */
    struct perturb_over over;
};
/* false: out of memory. */
bool perturb_beside(struct perturb_beside_base *out, const struct perturb_numbers *p,
                    enum perturb_level level, int32_t size, int32_t policy, uint64_t seed);

/* A policy's first stage at a size: how much of the token's attention it reached, and what the policy did there. */
enum { PERTURB_N_STRATA = 4 };
extern const double perturb_strata[PERTURB_N_STRATA + 1]; /* edges: shares above one and up to the next */
struct perturb_stratum {
    int64_t n, n_lower; /* texts x heads that count; of them where the change is lower than the base's */
    double base, other; /* mean changes of heads */
    double ratio;       /* geometric mean of other / base, where both are above 0 */
};
struct perturb_stage {
    int64_t n;                    /* texts x heads with a first stage; 0 = the policy has none */
    double holds, holds_behind_0; /* share with more than half of the attention in it; but for layer 0 */
    struct perturb_stratum of[PERTURB_N_STRATA];
};
struct perturb_stage perturb_stage(const struct perturb_numbers *p, int32_t size, int32_t policy);

/* What the bounds say at a size, over all texts and heads that count. */
struct perturb_tightness {
    double holds, holds_behind_0; /* share with more than half of the attention in stage 1; but for layer 0 */
    double mean[PERTURB_N_BOUNDS]; /* over those; NaN where there are none */
};
struct perturb_tightness perturb_tightness(const struct perturb_numbers *p, int32_t size);

#endif
