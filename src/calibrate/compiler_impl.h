/* SPDX-License-Identifier: MIT */
/*
 * The inside of calibration `compiler`:
 *
 *     compiler.c:        options, what the effort makes of them, the order of the work
 *     compiler_text.c:   which parts of the texts are prompts
 *     compiler_trials.c: tasks of one prompt: reading it, trying actions, comparing tables on held-out prompts
 *     compiler_learn.c:  tables from the rewards, and what held-out prompts say of them
 *     compiler_result.c: profile and report
 */
#ifndef WNW_CALIBRATE_COMPILER_IMPL_H
#define WNW_CALIBRATE_COMPILER_IMPL_H

#include "calibrate/calibrate.h"
#include "calibrate/risk_grid.h"
#include "calibrate/trial.h"
#include "winnow_batch.h"

#include <stdlib.h>

/* Options; 0 means as the effort says where the table of options says so. */
struct wnw__compiler_opts {
    int32_t items, held_out, length, next, head_trials, tau_trials, entropy_bins, ppl_bins, window,
        cell_prompts, accept;
    double floor;
};
enum wnw__compiler_accept { WNW_ACCEPT_CHECKED, WNW_ACCEPT_ALWAYS };

/* Actions of one table; `reference` is the number of the neutral one, 1. */
struct wnw__compiler_actions {
    int32_t n, reference;
    double value[WNW_CQL_ACTIONS]; /* [n] ascending */
};

/* What is done with one prompt. Each is a unit of work, and ends with the numbers that are listed. The first is done with
 * every prompt, those from WNW_TASK_HELD_HEADS on with held-out ones, the others with the prompts that are tried. */
enum wnw__compiler_task {
    WNW_TASK_PROMPT, /* entropy, perplexity, and the cost with the full cache */
    WNW_TASK_HEADS,  /* the cost of each trial of head weights */
    WNW_TASK_TAUS, /* the cost of each trial of thresholds; then [trial][layer] entries above its threshold */
    WNW_TASK_HELD_HEADS,    /* the cost with head weights of 1, and with the learned ones */
    WNW_TASK_HELD_TAUS,     /* a wnw__compiler_held */
    WNW_TASK_HELD_CONSTANT, /* the cost with the one threshold, and the entries per head that it keeps */
    WNW_N_TASK
};
/* Thresholds: the cost with the learned ones; with all 1; with no threshold and as many entries as the learned ones keep in
 * this prompt. Then the entries per head that each of these keeps; the share of layers where the learned ones keep fewer
 * than the budget has room for; the entries per head that each wnw__compiler_step keeps as the one threshold of all. */
enum wnw__compiler_held {
    WNW_HELD_LEARNED,
    WNW_HELD_ONE,
    WNW_HELD_NONE,
    WNW_HELD_KEPT,
    WNW_HELD_BOUND = 2 * WNW_HELD_KEPT,
    WNW_HELD_CURVE,
    WNW_COMPILER_STEPS = 241
};

/* A prompt and what is known of it. */
struct wnw__compiler_item {
    int32_t text;            /* its number among the texts */
    int32_t first, n_prompt; /* first token among those of all texts; tokens of the prompt, BOS included */
    int32_t entropy_bin, ppl_bin;
    bool kept;                 /* tried: chosen among the prompts of its bins */
    double *noted[WNW_N_TASK]; /* what each task ended with, for the current budget; NULL = not done */
};

/* Comparisons on held-out prompts: learned head weights with ones; learned thresholds with ones, with none, with one. */
enum wnw__compiler_over { WNW_HEADS_OVER_ONE, WNW_OVER_ONE, WNW_OVER_NONE, WNW_OVER_CONSTANT, WNW_N_OVER };

/* What held-out prompts and the two halves of the others say. */
struct wnw__compiler_checks {
    double split;             /* rank correlation of the slopes of head weights over the halves */
    bool compared;            /* head weights were compared on held-out prompts */
    int32_t n_changed;        /* learned weights that differ from 1, before the checks */
    bool no_signal, rejected; /* the checks made all weights 1 */
    struct wnw__compiler_gain {
        double mean, error; /* nats per token, and the standard error */
    } gain[WNW_N_OVER];
    double
        constant; /* the lowest one threshold that keeps as much as the learned ones on average over the prompts */
    bool tau_rejected;                            /* WNW_OVER_CONSTANT gains no more than its error */
    double kept_learned, kept_one, kept_constant; /* entries per head */
    double bound_layers,
        bound_prompts; /* shares where the learned ones keep fewer entries than there is room */
};

/* Logs of rewards: of head weights, from all prompts and from every second one each; of thresholds. */
enum wnw__compiler_log { WNW_LOG_HEADS, WNW_LOG_HALVES, WNW_LOG_TAUS = WNW_LOG_HALVES + 2, WNW_N_LOG };

enum { WNW_COMPILER_OWNED = 32 };

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
    double trial_ms, n_trial; /* time that trials of this run took, and their number */
    /* What is tried: [n_il][n_head_kv] actions, [n_layer][n_head_kv] weights, [n_layer] thresholds; [n_layer] counts. */
    uint8_t *action;
    float *try_weight;
    double *try_tau;
    int32_t *count;

    int32_t budget; /* the current one; 0 while prompts are read */
    struct wnw__bandit log[WNW_N_LOG];
    /* Scratch of what learns: choices, means and slopes of cells, and the trials of one prompt. */
    int32_t *choice;
    double *mean, *slope;
    struct wnw__bandit_trials trials;
    float *weight;     /* [n_layer][n_head_kv] */
    double *tau;       /* [n_il][entropy bins][perplexity bins] */
    uint8_t *tau_from; /* the same cells: a wnw__risk_from */
    struct wnw__compiler_checks checks;

    void *owned[WNW_COMPILER_OWNED]; /* see wnw__compiler_own */
    int n_owned;
    bool short_of_memory;
};

/* Zeros that live as long as w. NULL, and short_of_memory, where there is no memory for them. */
static inline void *wnw__compiler_own(struct wnw__compiling *w, size_t n, size_t size)
{
    void *made = w->n_owned < WNW_COMPILER_OWNED ? calloc(n, size) : NULL;
    if (made)
        w->owned[w->n_owned++] = made;
    else
        w->short_of_memory = true;
    return made;
}

static inline int32_t wnw__compiler_n_items(const struct wnw__compiling *w)
{
    return w->o.items + w->o.held_out;
}

/* ---- compiler_text.c ---- */

/* Lays the prompts out over the texts, in proportion to their tokens: in each the items first, held-out ones after
 * them, evenly, so that none shares a token with another, and tells the settings how many each has. lengths[n_lengths] are
 * taken in turn. E_RANGE: the texts are too short. */
int wnw__compiler_lay_out(struct wnw__compiling *w, const int32_t *lengths, int32_t n_lengths);
/* The prompt of an item and what follows it; borrowed until the next call. */
struct wnw__trial_text wnw__compiler_text(struct wnw__compiling *w, const struct wnw__compiler_item *item);

/* ---- compiler_trials.c ---- */

/* The cost of all units, in tokens. */
int64_t wnw__compiler_cost(const struct wnw__compiling *w);
/* Does the task with all its prompts; afterwards they have `noted`. Costs are mean negative log-likelihoods, in nats. */
int wnw__compiler_do(struct wnw__compiling *w, enum wnw__compiler_task task);
/* Draws the actions of a trial into action[n]: each alike, the same in every run of this seed. */
void wnw__compiler_draw(const struct wnw__compiling *w, enum wnw__compiler_task task, int32_t item,
                        int32_t trial, int32_t n, uint8_t *action);
/* The thresholds that are tried for all layers at once: 1/16 to 16, each above the one before by the same factor. */
double wnw__compiler_step(int32_t i);

/* ---- compiler_learn.c ---- */

/* Cuts the risks of the items into bins and chooses which are tried. */
int wnw__compiler_bins(struct wnw__compiling *w);
/* Tries head weights and learns from the rewards. All become 1, unless accept=always, where the halves of the items disagree
 * about them, or where the learned ones are no better on held-out prompts. */
int wnw__compiler_learn_heads(struct wnw__compiling *w);
/* Tries thresholds and learns them, compares them on held-out prompts, finds the one threshold, and sums up. */
int wnw__compiler_learn_thresholds(struct wnw__compiling *w);
/* Whether the profile has the one threshold in every cell in place of the learned ones. */
bool wnw__compiler_is_constant(const struct wnw__compiling *w);
/* Whether any head weight differs from 1. */
bool wnw__compiler_has_weights(const struct wnw__compiling *w);

/* ---- compiler_result.c ---- */

/* Adds profile and report of the current budget. */
int wnw__compiler_write(struct wnw__compiling *w);

#endif
