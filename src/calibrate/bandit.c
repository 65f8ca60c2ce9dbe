/* SPDX-License-Identifier: MIT */
#include "calibrate/bandit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Conservative Q-learning ---- */

enum { MOST_STEPS = 100 };

/* A state without the actions that were not logged. */
struct problem {
    int32_t n;
    double weight, drawn; /* drawn: the probability of each action, 1 / n */
    double p[WNW_CQL_ACTIONS], mean[WNW_CQL_ACTIONS];
};
/* A place q, and J, softmax(q) and the gradient there. */
struct place {
    double q[WNW_CQL_ACTIONS], sm[WNW_CQL_ACTIONS], g[WNW_CQL_ACTIONS], j;
};

/* Keeps the logged actions of s; at[i] is the number of the i-th of them. */
static struct problem problem_of(const struct wnw__cql_state *s, double weight, int32_t *at)
{
    struct problem p = {.weight = weight};
    int64_t sum = 0;
    for (int32_t a = 0; a < s->n_action; a++)
        sum += s->n[a];
    for (int32_t a = 0; a < s->n_action; a++) {
        if (s->n[a] == 0)
            continue;
        at[p.n] = a;
        p.p[p.n] = (double)s->n[a] / (double)sum;
        p.mean[p.n++] = s->mean[a];
    }
    p.drawn = 1.0 / p.n;
    return p;
}

/* Sets what belongs to here->q. */
static void look(const struct problem *p, struct place *here)
{
    double top = here->q[0], sum = 0, error = 0, drawn = 0;
    for (int32_t a = 1; a < p->n; a++)
        top = fmax(top, here->q[a]);
    for (int32_t a = 0; a < p->n; a++)
        sum += here->sm[a] = exp(here->q[a] - top);
    for (int32_t a = 0; a < p->n; a++) {
        const double off = here->q[a] - p->mean[a];
        here->sm[a] /= sum;
        here->g[a] = p->p[a] * off + p->weight * (here->sm[a] - p->drawn);
        error += p->p[a] * off * off;
        drawn += p->drawn * here->q[a];
    }
    here->j = error / 2 + p->weight * (top + log(sum) - drawn);
}

/* Fills step[n] with H^-1 g, where H = diag(p + weight sm) - weight sm sm^T (Sherman and Morrison), and returns the largest
 * element of the gradient. */
static double newton_step(const struct problem *p, const struct place *here, double *step)
{
    double across = 0, own = 0, most = 0;
    for (int32_t a = 0; a < p->n; a++) {
        const double d = p->p[a] + p->weight * here->sm[a];
        across += here->sm[a] * here->g[a] / d;
        own += here->sm[a] * here->sm[a] / d;
        most = fmax(most, fabs(here->g[a]));
    }
    const double share = p->weight * across / (1 - p->weight * own);
    for (int32_t a = 0; a < p->n; a++)
        step[a] = (here->g[a] + share * here->sm[a]) / (p->p[a] + p->weight * here->sm[a]);
    return most;
}

bool wnw__cql_solve(const struct wnw__cql_state *s, double weight, double *q)
{
    int32_t at[WNW_CQL_ACTIONS];
    double step[WNW_CQL_ACTIONS];
    struct place here, next;
    const struct problem p = problem_of(s, weight, at);
    for (int32_t a = 0; a < s->n_action; a++)
        q[a] = -INFINITY;
    if (p.n == 0)
        return false;
    memcpy(here.q, p.mean, sizeof here.q);
    look(&p, &here);
    for (int i = 0; i < MOST_STEPS && newton_step(&p, &here, step) >= 1e-9; i++) {
        /* Half of the step as long as J would rise; rounding alone may raise it a little. */
        const double most = here.j + 1e-12 * (1 + fabs(here.j));
        next.j = INFINITY;
        for (double part = 1; part > 1e-12 && next.j > most; part /= 2) {
            for (int32_t a = 0; a < p.n; a++)
                next.q[a] = here.q[a] - part * step[a];
            look(&p, &next);
        }
        here = next;
    }
    for (int32_t i = 0; i < p.n; i++)
        q[at[i]] = here.q[i];
    return true;
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
