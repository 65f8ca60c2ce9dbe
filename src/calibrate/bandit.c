/* SPDX-License-Identifier: MIT */
#include "calibrate/bandit.h"

#include <math.h>
#include <stdlib.h>

/* ---- Conservative Q-learning ---- */

enum { MOST_STEPS = 1000000 };

bool wnw__cql_solve(const struct wnw__cql_state *s, double weight, double *q)
{
    double n = 0, k = 0, most = INFINITY;
    for (int32_t a = 0; a < s->n_action; a++) {
        n += (double)s->n[a];
        k += s->n[a] > 0;
        q[a] = s->n[a] > 0 ? s->mean[a] : -INFINITY;
    }
    for (int i = 0; n > 0 && i < MOST_STEPS && most >= 1e-9; i++) {
        double e[WNW_CQL_ACTIONS], top = -INFINITY, sum = 0;
        for (int32_t a = 0; a < s->n_action; a++)
            top = fmax(top, q[a]);
        for (int32_t a = 0; a < s->n_action; a++)
            sum += e[a] = exp(q[a] - top);
        most = 0;
        for (int32_t a = 0; a < s->n_action; a++) {
            if (s->n[a] == 0)
                continue;
            const double g = (double)s->n[a] / n * (q[a] - s->mean[a]) + weight * (e[a] / sum - 1 / k);
            q[a] -= g / (1 + weight / 2);
            most = fmax(most, fabs(g));
        }
    }
    return n > 0;
}

/* ---- The log ---- */

int wnw__bandit_init(struct wnw__bandit *b, int32_t n_cell, int32_t n_action, int32_t reference)
{
    *b = (struct wnw__bandit){.n_cell = n_cell, .n_action = n_action, .reference = reference};
    b->of = calloc((size_t)n_cell * (size_t)n_action, sizeof *b->of);
    b->n_prompt = calloc((size_t)n_cell, sizeof *b->n_prompt);
    if (b->of && b->n_prompt)
        return WNW_OK;
    wnw__bandit_free(b);
    return wnw__fail(WNW_E_NOMEM, "no memory for the rewards of %d cells", (int)n_cell);
}

void wnw__bandit_free(struct wnw__bandit *b)
{
    free(b->of);
    free(b->n_prompt);
    *b = (struct wnw__bandit){0};
}

/* Credits the trials to the cell of one slot; mean is that of all trials. */
static void add_slot(struct wnw__bandit *b, const struct wnw__bandit_trials *t, int32_t slot, double mean)
{
    struct wnw__bandit_action *of = b->of + (int64_t)t->cell[slot] * b->n_action;
    int64_t n[WNW_CQL_ACTIONS] = {0};
    double sum[WNW_CQL_ACTIONS] = {0};
    for (int32_t k = 0; k < t->n_trial; k++) {
        const int64_t at = (int64_t)k * t->n_slot + slot;
        const double r = t->reward[k] - mean - (t->penalty ? t->penalty[at] : 0);
        n[t->action[at]]++;
        sum[t->action[at]] += r;
        b->n_all++;
        b->sum_all += r;
        b->sq_all += r * r;
    }
    for (int32_t a = 0, ref = b->reference; a < b->n_action; a++) {
        of[a].n += n[a];
        of[a].sum += sum[a];
        if (n[a] == 0 || n[ref] == 0)
            continue;
        const double d = sum[a] / (double)n[a] - sum[ref] / (double)n[ref];
        of[a].n_pair++;
        of[a].gain += d;
        of[a].gain_sq += d * d;
    }
    b->n_prompt[t->cell[slot]] += t->n_trial > 0;
}

void wnw__bandit_add(struct wnw__bandit *b, const struct wnw__bandit_trials *t)
{
    double mean = 0;
    for (int32_t k = 0; k < t->n_trial; k++)
        mean += t->reward[k] / t->n_trial;
    for (int32_t slot = 0; slot < t->n_slot; slot++)
        add_slot(b, t, slot, mean);
}

double wnw__bandit_sigma(const struct wnw__bandit *b)
{
    if (b->n_all == 0)
        return 1;
    const double mean = b->sum_all / (double)b->n_all, square = b->sq_all / (double)b->n_all - mean * mean;
    const double sigma = square > 0 ? sqrt(square) : 0;
    return sigma < 1e-12 ? 1 : sigma;
}

double wnw__bandit_mean(const struct wnw__bandit *b, int32_t cell, int32_t action)
{
    const struct wnw__bandit_action *of = &b->of[(int64_t)cell * b->n_action + action];
    return of->n > 0 ? of->sum / (double)of->n : 0;
}

double wnw__bandit_slope(const struct wnw__bandit *b, int32_t cell)
{
    return wnw__bandit_mean(b, cell, b->n_action - 1) - wnw__bandit_mean(b, cell, 0);
}

/* ---- Choices ---- */

/* Whether an action beats the reference by more than chance explains. */
static bool passes(const struct wnw__bandit_action *of, const struct wnw__bandit_rule *rule)
{
    const double n = (double)of->n_pair, mean = of->gain / n;
    const double square = (of->gain_sq - n * mean * mean) / (n - 1);
    return of->n >= rule->guard_n && n >= 2 && mean > rule->guard * sqrt((square > 0 ? square : 0) / n);
}

/* Whether action a goes before action b where both are equally good. */
static bool goes_before(const struct wnw__bandit_rule *rule, int32_t a, int32_t b)
{
    const double x = rule->value[a], y = rule->value[b], nearer = fabs(x - 1) - fabs(y - 1);
    if (rule->tie == WNW_TIE_NEUTRAL && fabs(nearer) > 1e-9) /* 0.85 and 1.15 are as near */
        return nearer < 0;
    return x < y;
}

static int32_t best_of(const struct wnw__bandit_rule *rule, const double *q, int32_t n)
{
    double top = -INFINITY;
    int32_t best = -1;
    for (int32_t a = 0; a < n; a++)
        top = q[a] > top ? q[a] : top;
    for (int32_t a = 0; a < n; a++)
        if (top - q[a] < 1e-6 && (best < 0 || goes_before(rule, a, best)))
            best = a;
    return best;
}

int32_t wnw__bandit_best(const struct wnw__bandit *b, const struct wnw__bandit_rule *rule, int32_t first,
                         int32_t n)
{
    const double sigma = wnw__bandit_sigma(b);
    const double *mean = rule->mean && n == 1 ? rule->mean + (int64_t)first * b->n_action : NULL;
    struct wnw__bandit_action of[WNW_CQL_ACTIONS] = {{0}};
    struct wnw__cql_state state = {.n_action = b->n_action};
    double q[WNW_CQL_ACTIONS];
    for (int32_t i = 0; i < n * b->n_action; i++) {
        const struct wnw__bandit_action *from = &b->of[(int64_t)first * b->n_action + i];
        struct wnw__bandit_action *to = &of[i % b->n_action];
        to->n += from->n;
        to->sum += from->sum;
        to->n_pair += from->n_pair;
        to->gain += from->gain;
        to->gain_sq += from->gain_sq;
    }
    for (int32_t a = 0; a < b->n_action; a++) {
        state.n[a] = of[a].n;
        state.mean[a] = (mean ? mean[a] : of[a].sum / fmax((double)of[a].n, 1)) / sigma;
    }
    if (!wnw__cql_solve(&state, rule->conservatism, q))
        return -1;
    const int32_t best = best_of(rule, q, b->n_action);
    return best == b->reference || passes(&of[best], rule) ? best : b->reference;
}
