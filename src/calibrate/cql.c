/* SPDX-License-Identifier: MIT */
#include "calibrate/cql.h"

#include <math.h>

enum { MOST_STEPS = 100 };

/* One state without the actions that were not logged. */
struct problem {
    int32_t n;
    double weight, drawn; /* drawn: the probability of each action, 1 / n */
    double p[WNW_CQL_ACTIONS], mean[WNW_CQL_ACTIONS];
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

/* Fills sm[n] with softmax(q) and returns ln sum exp q. */
static double softmax(const double *q, int32_t n, double *sm)
{
    double top = q[0], sum = 0;
    for (int32_t a = 1; a < n; a++)
        top = q[a] > top ? q[a] : top;
    for (int32_t a = 0; a < n; a++)
        sum += sm[a] = exp(q[a] - top);
    for (int32_t a = 0; a < n; a++)
        sm[a] /= sum;
    return top + log(sum);
}

static double objective(const struct problem *p, const double *q)
{
    double sm[WNW_CQL_ACTIONS], error = 0, logged = 0;
    const double all = softmax(q, p->n, sm);
    for (int32_t a = 0; a < p->n; a++) {
        error += p->p[a] * (q[a] - p->mean[a]) * (q[a] - p->mean[a]);
        logged += p->drawn * q[a];
    }
    return error / 2 + p->weight * (all - logged);
}

static void gradient(const struct problem *p, const double *q, double *sm, double *g)
{
    softmax(q, p->n, sm);
    for (int32_t a = 0; a < p->n; a++)
        g[a] = p->p[a] * (q[a] - p->mean[a]) + p->weight * (sm[a] - p->drawn);
}

/* Fills step[n] with H^-1 g, where H = diag(p + weight sm) - weight sm sm^T (Sherman and Morrison). */
static void newton_step(const struct problem *p, const double *sm, const double *g, double *step)
{
    double across = 0, own = 0;
    for (int32_t a = 0; a < p->n; a++) {
        const double d = p->p[a] + p->weight * sm[a];
        across += sm[a] * g[a] / d;
        own += sm[a] * sm[a] / d;
    }
    const double share = p->weight * across / (1 - p->weight * own);
    for (int32_t a = 0; a < p->n; a++)
        step[a] = (g[a] + share * sm[a]) / (p->p[a] + p->weight * sm[a]);
}

static double largest(const double *x, int32_t n)
{
    double most = 0;
    for (int32_t a = 0; a < n; a++)
        most = fabs(x[a]) > most ? fabs(x[a]) : most;
    return most;
}

/* Moves q against the step, by half of it as long as J would rise. Rounding alone may raise J a little. */
static void descend(const struct problem *p, const double *step, double *q)
{
    double next[WNW_CQL_ACTIONS];
    const double before = objective(p, q);
    for (double part = 1; part > 1e-12; part /= 2) {
        for (int32_t a = 0; a < p->n; a++)
            next[a] = q[a] - part * step[a];
        if (objective(p, next) <= before + 1e-12 * (1 + fabs(before)))
            break;
    }
    for (int32_t a = 0; a < p->n; a++)
        q[a] = next[a];
}

bool wnw__cql_solve(const struct wnw__cql_state *s, double weight, double *q)
{
    int32_t at[WNW_CQL_ACTIONS];
    double own[WNW_CQL_ACTIONS], sm[WNW_CQL_ACTIONS], g[WNW_CQL_ACTIONS], step[WNW_CQL_ACTIONS];
    const struct problem p = problem_of(s, weight, at);
    for (int32_t a = 0; a < s->n_action; a++)
        q[a] = -INFINITY;
    if (p.n == 0)
        return false;
    for (int32_t i = 0; i < p.n; i++)
        own[i] = p.mean[i];
    for (int i = 0; i < MOST_STEPS; i++) {
        gradient(&p, own, sm, g);
        if (largest(g, p.n) < 1e-9)
            break;
        newton_step(&p, sm, g, step);
        descend(&p, step, own);
    }
    for (int32_t i = 0; i < p.n; i++)
        q[at[i]] = own[i];
    return true;
}
