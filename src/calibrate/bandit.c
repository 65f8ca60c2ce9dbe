/* SPDX-License-Identifier: MIT */
#include "calibrate/bandit.h"

#include "calibrate/cql.h"

#include <math.h>
#include <stdlib.h>

int wnw__bandit_init(struct wnw__bandit *b, int32_t n_cell, int32_t n_action, int32_t reference)
{
    const size_t n = (size_t)n_cell * (size_t)n_action;
    *b = (struct wnw__bandit){.n_cell = n_cell, .n_action = n_action, .reference = reference};
    b->n = calloc(n, sizeof *b->n);
    b->sum = calloc(n, sizeof *b->sum);
    b->n_pair = calloc(n, sizeof *b->n_pair);
    b->gain = calloc(n, sizeof *b->gain);
    b->gain_sq = calloc(n, sizeof *b->gain_sq);
    b->n_prompt = calloc((size_t)n_cell, sizeof *b->n_prompt);
    if (b->n && b->sum && b->n_prompt && b->n_pair && b->gain && b->gain_sq)
        return WNW_OK;
    wnw__bandit_free(b);
    return wnw__fail(WNW_E_NOMEM, "no memory for the rewards of %d cells", (int)n_cell);
}

void wnw__bandit_free(struct wnw__bandit *b)
{
    free(b->n);
    free(b->sum);
    free(b->n_prompt);
    free(b->n_pair);
    free(b->gain);
    free(b->gain_sq);
    *b = (struct wnw__bandit){0};
}

/* Notes the paired gains of one cell, whose rewards in this prompt are n[n_action] and sum[n_action]. */
static void add_pairs(struct wnw__bandit *b, int32_t cell, const int64_t *n, const double *sum)
{
    const int32_t ref = b->reference;
    for (int32_t a = 0; a < b->n_action && n[ref] > 0; a++) {
        const int64_t i = (int64_t)cell * b->n_action + a;
        if (n[a] == 0)
            continue;
        const double d = sum[a] / (double)n[a] - sum[ref] / (double)n[ref];
        b->n_pair[i]++;
        b->gain[i] += d;
        b->gain_sq[i] += d * d;
    }
}

/* Credits the trials to the cell of one slot; mean is that of all trials. */
static void add_slot(struct wnw__bandit *b, const struct wnw__bandit_trials *t, int32_t slot, double mean)
{
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
    for (int32_t a = 0; a < b->n_action; a++) {
        b->n[(int64_t)t->cell[slot] * b->n_action + a] += n[a];
        b->sum[(int64_t)t->cell[slot] * b->n_action + a] += sum[a];
    }
    b->n_prompt[t->cell[slot]] += t->n_trial > 0;
    add_pairs(b, t->cell[slot], n, sum);
}

void wnw__bandit_add(struct wnw__bandit *b, const struct wnw__bandit_trials *t)
{
    double mean = 0;
    for (int32_t k = 0; k < t->n_trial; k++)
        mean += t->reward[k] / t->n_trial;
    for (int32_t slot = 0; slot < t->n_slot; slot++)
        add_slot(b, t, slot, mean);
}

int wnw__bandit_gather(struct wnw__bandit *out, const struct wnw__bandit *b, const int32_t *to, int32_t n_to)
{
    WNW_TRY(wnw__bandit_init(out, n_to, b->n_action, b->reference));
    for (int32_t c = 0; c < b->n_cell; c++) {
        out->n_prompt[to[c]] += b->n_prompt[c];
        for (int32_t a = 0; a < b->n_action; a++) {
            const int64_t from = (int64_t)c * b->n_action + a, at = (int64_t)to[c] * b->n_action + a;
            out->n[at] += b->n[from];
            out->sum[at] += b->sum[from];
            out->n_pair[at] += b->n_pair[from];
            out->gain[at] += b->gain[from];
            out->gain_sq[at] += b->gain_sq[from];
        }
    }
    out->n_all = b->n_all;
    out->sum_all = b->sum_all;
    out->sq_all = b->sq_all;
    return WNW_OK;
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
    const int64_t i = (int64_t)cell * b->n_action + action;
    return b->n[i] > 0 ? b->sum[i] / (double)b->n[i] : 0;
}

double wnw__bandit_slope(const struct wnw__bandit *b, int32_t cell)
{
    return wnw__bandit_mean(b, cell, b->n_action - 1) - wnw__bandit_mean(b, cell, 0);
}

/* Whether action a beats the reference in the cell by more than chance explains. */
static bool passes(const struct wnw__bandit *b, const struct wnw__bandit_rule *rule, int32_t cell, int32_t a)
{
    const int64_t i = (int64_t)cell * b->n_action + a, n = b->n_pair[i];
    if (b->n[i] < rule->guard_n || n < 2)
        return false;
    const double mean = b->gain[i] / (double)n;
    const double square = (b->gain_sq[i] - (double)n * mean * mean) / (double)(n - 1);
    return mean > rule->guard * sqrt((square > 0 ? square : 0) / (double)n);
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

void wnw__bandit_choose(const struct wnw__bandit *b, const struct wnw__bandit_rule *rule, int32_t *choice)
{
    const double sigma = wnw__bandit_sigma(b);
    double alike[WNW_CQL_ACTIONS];
    for (int32_t a = 0; a < b->n_action; a++)
        alike[a] = 1.0 / b->n_action;
    for (int32_t c = 0; c < b->n_cell; c++) {
        const int64_t row = (int64_t)c * b->n_action;
        double mean[WNW_CQL_ACTIONS], q[WNW_CQL_ACTIONS];
        for (int32_t a = 0; a < b->n_action; a++)
            mean[a] = (rule->mean ? rule->mean[row + a] : wnw__bandit_mean(b, c, a)) / sigma;
        const struct wnw__cql_state state = {
            .n_action = b->n_action, .n = b->n + row, .mean = mean, .drawn = alike};
        choice[c] = -1;
        if (!wnw__cql_solve(&state, rule->conservatism, q))
            continue;
        choice[c] = best_of(rule, q, b->n_action);
        if (choice[c] != b->reference && !passes(b, rule, c, choice[c]))
            choice[c] = b->reference;
    }
}
