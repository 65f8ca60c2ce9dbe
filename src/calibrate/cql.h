/* SPDX-License-Identifier: MIT */
/*
 * Conservative Q-learning in a problem of one step: the values of one state's actions from logged rewards. The log drew
 * all actions alike, so that values are drawn towards each other, the more the fewer rewards an action has.
 * Source: CompilerKV (arXiv 2602.08686, eq. 4) with the discrete form of CQL (arXiv 2006.04779).
 */
#ifndef WNW_CALIBRATE_CQL_H
#define WNW_CALIBRATE_CQL_H

#include <stdbool.h>
#include <stdint.h>

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
 * action rarely says nothing against it. Newton steps, halved while they do not lower J, until every element of the
 * gradient is below 1e-9. Returns false, and only -INFINITY, where no action was logged. */
bool wnw__cql_solve(const struct wnw__cql_state *s, double weight, double *q);

#endif
