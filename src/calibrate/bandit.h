/* SPDX-License-Identifier: MIT */
/*
 * A contextual bandit: rewards of logged actions, kept for every cell (state), and the action that is best in each. CompilerKV
 * (arXiv 2602.08686) has two: cells of head weights are KV heads, and those of thresholds are layers with a pair of bins.
 *
 * A trial of a prompt draws an action in many slots at once and has one reward for all of them (a factorial design), so that
 * the other slots' actions average out. The mean over a prompt's trials is taken off every reward.
 */
#ifndef WNW_CALIBRATE_BANDIT_H
#define WNW_CALIBRATE_BANDIT_H

#include "base/err.h"

/* ---- Conservative Q-learning in a problem of one step: CompilerKV's eq. 4 with the discrete form of CQL (arXiv 2006.04779) ---- */

/* The most actions of a state. */
enum { WNW_CQL_ACTIONS = 16 };

/* What the log says about one state. */
struct wnw__cql_state {
    int32_t n_action;             /* 1 .. WNW_CQL_ACTIONS */
    int64_t n[WNW_CQL_ACTIONS];   /* how often each action was logged */
    double mean[WNW_CQL_ACTIONS]; /* mean reward of each; not read where n is 0 */
};

/* Fills q[n_action] with the minimum of
 *
 *     J(q) = 1/2 sum_a p_a (q_a - mean_a)^2 + weight (ln sum_a exp q_a - sum_a q_a / k),   p_a = n_a / sum n
 *
 * over the k actions that were logged; the others get -INFINITY. weight >= 0; 0 gives the means. That chance logged an
 * action rarely says nothing against it. No second derivative is above 1 + weight / 2, so gradient steps of its inverse never
 * raise J. They end where every element of the gradient is below 1e-9. Returns false where no action was logged. */
bool wnw__cql_solve(const struct wnw__cql_state *s, double weight, double *q);

/* ---- The log ---- */

/* What the log says of one action in one cell. */
struct wnw__bandit_action {
    int64_t n;      /* rewards credited */
    double sum;     /* of them */
    int64_t n_pair; /* prompts that tried this action and the reference */
    double gain,
        gain_sq; /* sum over these prompts of the action's mean reward minus the reference's; of squares */
};
struct wnw__bandit {
    int32_t n_cell, n_action;
    int32_t reference;             /* the neutral action, which others must beat */
    struct wnw__bandit_action *of; /* [n_cell][n_action] */
    int64_t *n_prompt;             /* [n_cell] prompts that were credited to it */
    /* Over all cells. */
    int64_t n_all;
    double sum_all, sq_all;
};

/* Makes an empty log; n_action is at most WNW_CQL_ACTIONS. E_NOMEM. */
int wnw__bandit_init(struct wnw__bandit *b, int32_t n_cell, int32_t n_action, int32_t reference);
void wnw__bandit_free(struct wnw__bandit *b);

/* The trials of one prompt. */
struct wnw__bandit_trials {
    int32_t n_trial, n_slot;
    int32_t *cell;   /* [n_slot] the cell that a slot's action belongs to; each cell at most once */
    uint8_t *action; /* [n_trial][n_slot] */
    double *reward;  /* [n_trial] */
    double *penalty; /* [n_trial][n_slot] taken off the slot's own reward; NULL = none */
};
/* Credits every trial's reward, less the mean over the trials and less the slot's penalty, to the cells of
 * its slots. */
void wnw__bandit_add(struct wnw__bandit *b, const struct wnw__bandit_trials *t);

/* Standard deviation of all credited rewards; 1 where it is below 1e-12. */
double wnw__bandit_sigma(const struct wnw__bandit *b);
/* Mean reward of the action in the cell, 0 where it was not tried. */
double wnw__bandit_mean(const struct wnw__bandit *b, int32_t cell, int32_t action);
/* Mean reward of the last action minus that of the first: what the cell gains from large values. */
double wnw__bandit_slope(const struct wnw__bandit *b, int32_t cell);

/* Which of several actions wins whose values differ by less than 1e-6. */
enum wnw__bandit_tie {
    WNW_TIE_NEUTRAL, /* the one nearest to 1, then the lower one */
    WNW_TIE_LOW,     /* the lowest */
};
struct wnw__bandit_rule {
    const double *value; /* [n_action] the actions, ascending */
    const double *mean;  /* [n_cell][n_action] instead of a cell's own means; NULL = those */
    double conservatism; /* weight of CQL's penalty, which knows that actions were drawn alike */
    double guard;        /* standard errors by which an action must beat the reference */
    int64_t guard_n;     /* rewards that it must have at least */
    enum wnw__bandit_tie tie;
};
/* The best action of n cells from `first` on, which are taken as one, -1 where they have no rewards: the largest value that
 * conservative Q-learning gives on rewards in units of wnw__bandit_sigma, or the reference where that action's paired gain
 * does not pass the guard. Prompts that are in several of the cells count as often. */
int32_t wnw__bandit_best(const struct wnw__bandit *b, const struct wnw__bandit_rule *rule, int32_t first,
                         int32_t n);

#endif
