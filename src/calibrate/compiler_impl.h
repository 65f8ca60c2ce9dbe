/* SPDX-License-Identifier: MIT */
/*
 * The inside of calibration `compiler`:
 *
 *     compiler.c:        options, what the effort makes of them, the order of the work
 *     compiler_text.c:   which parts of the texts are prompts
 *     compiler_unit.c:   units of work on one prompt, and their costs
 *     compiler_trials.c: reading prompts, trying actions
 *     compiler_learn.c:  tables from the rewards
 *     compiler_hold.c:   comparing tables on held-out prompts
 *     compiler_check.c:  what that says
 *     compiler_result.c: profile and report
 */
#ifndef WNW_CALIBRATE_COMPILER_IMPL_H
#define WNW_CALIBRATE_COMPILER_IMPL_H

#include "calibrate/calibrate.h"
#include "calibrate/cql.h"
#include "calibrate/risk_grid.h"
#include "calibrate/trial.h"
#include "winnow_batch.h"

/* Options; 0 means as the effort says where the table of options says so. */
struct wnw__compiler_opts {
    int32_t items, held_out, length, next, head_trials, tau_trials, entropy_bins, ppl_bins, window, gate;
    int32_t accept, cell_prompts;
    double conservatism, penalty, guard, floor;
};
enum wnw__compiler_gate { WNW_COMPILER_ELASTIC, WNW_COMPILER_POOLED };
enum wnw__compiler_accept { WNW_ACCEPT_CHECKED, WNW_ACCEPT_ALWAYS };

/* Actions of one table; `reference` is the number of the neutral one, 1. */
struct wnw__compiler_actions {
    int32_t n, reference;
    double value[WNW_CQL_ACTIONS]; /* [n] ascending */
};

/* A prompt and what is known of it. */
struct wnw__compiler_item {
    int32_t text;            /* its number among the texts */
    int32_t first, n_prompt; /* first token among those of all texts; tokens of the prompt, BOS included */
    double entropy, ppl, nll_full;
    int32_t entropy_bin, ppl_bin;
    bool kept;             /* tried: chosen among the prompts of its bins */
    double *head_nll;      /* [head_trials] of the current budget; NULL = not tried */
    double *tau_nll;       /* [tau_trials] */
    int32_t *above;        /* [tau_trials][n_il] entries above the thresholds */
    double *head_held;     /* [WNW_HELD_HEADS] of a held-out prompt; NULL = not compared */
    double *tau_held;      /* [WNW_HELD_TAU] */
    double *constant_held; /* [WNW_HELD_CONSTANT] */
};

/* What is compared on held-out prompts: head weights that are all 1, and the learned ones. */
enum { WNW_HELD_ONES, WNW_HELD_LEARNED, WNW_HELD_HEADS };
/* Thresholds: learned; all 1; no threshold and as many entries as the learned ones keep in this prompt. Numbers from
 * KEPT on: the entries per head that the three keep; the share of layers where the learned ones change the count; the
 * entries per head that each of wnw__compiler_step keeps as the one threshold of all layers. */
enum { WNW_HELD_TAU_LEARNED, WNW_HELD_TAU_ONE, WNW_HELD_TAU_NONE, WNW_HELD_TAU_KEPT };
enum {
    WNW_COMPILER_STEPS = 241,
    WNW_HELD_TAU_BOUND = 2 * WNW_HELD_TAU_KEPT,
    WNW_HELD_TAU_CURVE,
    WNW_HELD_TAU = WNW_HELD_TAU_CURVE + WNW_COMPILER_STEPS
};
/* One threshold that keeps as much as the learned ones on average over the prompts: its cost, what it keeps. */
enum { WNW_HELD_CONSTANT_NLL, WNW_HELD_CONSTANT_KEPT, WNW_HELD_CONSTANT };

/* What held-out prompts and the two halves of the others say. Gains are in nats per token. */
struct wnw__compiler_checks {
    double split;  /* rank correlation of the slopes of head weights over the halves */
    bool compared; /* head weights were compared on held-out prompts */
    double gain, gain_error;
    int32_t n_changed;        /* learned weights that differ from 1, before the checks */
    bool no_signal, rejected; /* the checks made all weights 1 */
    double tau_gain_one, tau_error_one, tau_gain_none, tau_error_none; /* over thresholds 1, over none */
    double kept_learned, kept_one;                                     /* entries per head */
    double constant;                                                   /* the one threshold, see above */
    double tau_gain_constant, tau_error_constant, kept_constant;
    /* That gain is no standard error, so that the one threshold is written, unless accept=always. */
    bool tau_rejected;
    double bound_layers,
        bound_prompts; /* shares of layers, and of prompts in any of whose layers, the learned
                                           thresholds keep fewer entries than the budget has room for */
};

struct wnw__compiling {
    wnw_calibration *c;
    struct wnw__compiler_opts o; /* resolved */
    struct wnw__compiler_actions heads, taus;
    int32_t n_il, *il; /* layers without a sliding window; their numbers */
    struct wnw__risk_grid grid;
    double *entropy_edge, *ppl_edge;
    int32_t default_ppl_bin;

    int32_t bos; /* in front of every prompt; -1 = none */
    int32_t *tokens, n_tokens;
    struct wnw__compiler_item *items; /* [o.items + o.held_out], held-out ones last */
    int32_t *prompt;                  /* scratch for the tokens of one prompt and of what follows */
    wnw_engine *engine;
    double trial_ms; /* time that trials of this run took, and their number */
    int64_t n_trial;

    int32_t budget; /* the current one */
    struct wnw__bandit head_log, half_log[2], tau_log;
    float *weight;     /* [n_layer][n_head_kv] */
    double *tau;       /* [n_il][entropy bins][perplexity bins] */
    uint8_t *tau_from; /* the same cells: a wnw__risk_from */
    struct wnw__compiler_checks checks;
};

static inline int32_t wnw__compiler_n_items(const struct wnw__compiling *w)
{
    return w->o.items + w->o.held_out;
}

/* ---- compiler_text.c ---- */

/* Lays the prompts out over the texts, in proportion to their tokens: in each the items first, held-out ones after
 * them, evenly, so that none shares a token with another, and tells the settings how many each has. lengths[n_lengths] are taken in turn. E_RANGE: the texts are too short. */
int wnw__compiler_lay_out(struct wnw__compiling *w, const int32_t *lengths, int32_t n_lengths);
/* The prompt of an item and what follows it; borrowed until the next call. */
struct wnw__trial_text wnw__compiler_text(struct wnw__compiling *w, const struct wnw__compiler_item *item);

/* ---- compiler_unit.c ---- */

/* The cost of all units, in tokens. */
int64_t wnw__compiler_cost(const struct wnw__compiling *w);

/* A unit of work on one prompt; `run` gets the prompt, read. Its name is made of what it does, the budget and the item. */
struct wnw__compiler_unit {
    struct wnw__compiling *w;
    int32_t item;
    const char *what;
    int32_t n_trial;
    int (*run)(const struct wnw__compiler_unit *, struct wnw__trial_prompt *, json_t **result);
};
/* Does the unit, and copies the n numbers at `key` of its result to *out, which it allocates; what was there is freed.
 * *result, where result is not NULL, is released with json_decref, also after a failure. */
int wnw__compiler_do(const struct wnw__compiler_unit *unit, const char *key, int32_t n, double **out,
                     json_t **result);
/* Runs a trial, and says how far the unit is: `done` trials of `total` after the prompt. */
int wnw__compiler_try(struct wnw__compiling *w, const struct wnw__trial_prompt *p, const wnw_plan *plan,
                      int32_t done, int32_t total, double *nll);

/* What a trial is made of; at first weights of 1 and thresholds of 0. */
struct wnw__compiler_draft {
    uint8_t *action; /* [n_il][n_head_kv] */
    float *weight;   /* [n_layer][n_head_kv] */
    double *tau;     /* [n_layer] */
};
int wnw__compiler_draft_new(struct wnw__compiler_draft *d, const struct wnw__compiling *w);
void wnw__compiler_draft_free(struct wnw__compiler_draft *d);

/* ---- compiler_trials.c ---- */

/* Reads every prompt once: risk, and the likelihood of what follows. */
int wnw__compiler_features(struct wnw__compiling *w);
/* Draws the actions of a trial into action[n]: each alike, the same in every run of this seed. */
enum wnw__compiler_pass { WNW_PASS_HEADS = 1, WNW_PASS_THRESHOLDS };
void wnw__compiler_draw(const struct wnw__compiling *w, enum wnw__compiler_pass pass, int32_t item,
                        int32_t trial, int32_t n, uint8_t *action);
/* Tries head weights, or thresholds with the weights that were learned, on every kept prompt. */
int wnw__compiler_try_heads(struct wnw__compiling *w);
int wnw__compiler_try_thresholds(struct wnw__compiling *w);
/* What an item pays for entries above and below what the budget leaves in a layer: [n_il] of one trial. */
void wnw__compiler_penalty(const struct wnw__compiling *w, const struct wnw__compiler_item *item,
                           int32_t trial, double *penalty);

/* ---- compiler_learn.c ---- */

/* Cuts the risks of the items into bins and chooses which are tried. */
int wnw__compiler_bins(struct wnw__compiling *w);
int wnw__compiler_learn_heads(struct wnw__compiling *w);
int wnw__compiler_learn_thresholds(struct wnw__compiling *w);

/* ---- compiler_hold.c ---- */

/* Compares on every held-out prompt; afterwards items have head_held or tau_held. */
int wnw__compiler_hold_heads(struct wnw__compiling *w);
int wnw__compiler_hold_thresholds(struct wnw__compiling *w);
/* The thresholds that are tried for all layers at once: 1/16 to 16, each above the one before by the same factor. */
double wnw__compiler_step(int32_t i);
/* Finds checks.constant from what every held-out prompt keeps at each step, and compares it. With gate=pooled every
 * threshold keeps as much, and it is the mean of the learned ones. */
int wnw__compiler_hold_constant(struct wnw__compiling *w);

/* ---- compiler_check.c ---- */

/* Whether the halves of the items agree about head weights; else all become 1 (unless accept=always). */
int wnw__compiler_check_halves(struct wnw__compiling *w);
/* Whether the learned head weights are better on held-out prompts; else all become 1. */
void wnw__compiler_check_heads(struct wnw__compiling *w);
/* Sums up what held-out prompts say of the thresholds, and whether these are better than one for all prompts. */
void wnw__compiler_check_thresholds(struct wnw__compiling *w);
/* Whether the profile has the one threshold in every cell in place of the learned ones. */
bool wnw__compiler_is_constant(const struct wnw__compiling *w);
/* Whether any head weight differs from 1. */
bool wnw__compiler_has_weights(const struct wnw__compiling *w);

/* ---- compiler_result.c ---- */

/* Adds profile and report of the current budget. */
int wnw__compiler_write(struct wnw__compiling *w);

#endif
