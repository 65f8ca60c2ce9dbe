/* SPDX-License-Identifier: MIT */
/* One cell of a table: a method on the samples of one task at one length. */
#include "eval/results/table_impl.h"

#include <math.h>

/* Whether the full cache answered the sample of line i as well. */
static bool has_partner(const struct eval_run *run, const struct eval_stratum *s, size_t i, int32_t baseline)
{
    const struct eval_result *r = &run->results[i];
    size_t k = i;
    while (k > s->begin && run->results[k - 1].index == r->index && run->results[k - 1].turn == r->turn)
        k--;
    for (; k < s->end && run->results[k].index == r->index && run->results[k].turn == r->turn; k++)
        if (run->results[k].variant == baseline)
            return true;
    return false;
}

/* Means over the lines of a variant that count. */
static void add_means(struct eval_cell *c, const struct eval_run *run, const struct eval_stratum *s,
                      int32_t variant, int32_t baseline)
{
    double sum[EVAL_N_MEASURES] = {0};
    size_t n[EVAL_N_MEASURES] = {0};
    c->binary = true;
    for (size_t i = s->begin; i < s->end; i++) {
        const struct eval_result *r = &run->results[i];
        if (r->variant != variant || !eval_stratum_has(s, r) ||
            (baseline >= 0 && !has_partner(run, s, i, baseline)))
            continue;
        c->n++;
        c->binary = c->binary && (r->m[EVAL_M_SCORE] == 0.0 || r->m[EVAL_M_SCORE] == 1.0);
        for (int m = 0; m < EVAL_N_MEASURES; m++) {
            sum[m] += isnan(r->m[m]) ? 0.0 : r->m[m];
            n[m] += isnan(r->m[m]) ? 0 : 1;
        }
    }
    for (int m = 0; m < EVAL_N_MEASURES; m++)
        c->m[m] = n[m] > 0 ? sum[m] / (double)n[m] : NAN;
    c->mean = 100.0 * c->m[EVAL_M_SCORE];
    c->n_right = (int64_t)(sum[EVAL_M_SCORE] + 0.5);
    c->n_first = (int64_t)n[EVAL_M_FGT];
    c->n_first_same = (int64_t)(sum[EVAL_M_FGT] + 0.5);
    eval_cell_set_shares(c);
}

void eval_cell_set_shares(struct eval_cell *c)
{
    const struct eval_interval w = eval_wilson(c->n_right, (int64_t)c->n);
    c->wilson = (struct eval_interval){100.0 * w.lo, 100.0 * w.hi};
    c->first = eval_wilson(c->n_first_same, c->n_first);
}

static void count_discordant(struct eval_cell *c, const struct eval_gather *g)
{
    for (size_t i = 0; i < g->n; i++) {
        c->discordant.lost += g->d[i] < 0;
        c->discordant.gained += g->d[i] > 0;
    }
    c->discordant.p = eval_sign_test(c->discordant.lost, c->discordant.gained);
}

struct eval_cell eval_cell_empty(void)
{
    struct eval_cell c = {.mean = NAN,
                          .full = NAN,
                          .delta = {.delta = NAN, .over = {NAN, NAN}, .spread = EVAL_SPREAD_FEW},
                          .wilson = {NAN, NAN},
                          .first = {NAN, NAN},
                          .discordant = {.p = NAN}};
    for (int m = 0; m < EVAL_N_MEASURES; m++)
        c.m[m] = NAN;
    return c;
}

bool eval_cell_make(struct eval_cell *c, const struct eval_run *run, const struct eval_stratum *s,
                    int32_t variant, int32_t baseline, bool interval)
{
    struct eval_gather g;
    *c = eval_cell_empty();
    add_means(c, run, s, variant, baseline);
    if (c->n == 0)
        return true;
    bool good = eval_gather_measure(&g, run, s, variant, baseline, EVAL_M_SCORE);
    c->n_clusters = g.n_clusters;
    c->full = baseline >= 0 && g.n > 0 ? g.sum_b : NAN;
    if (good && baseline >= 0 && variant != baseline) {
        count_discordant(c, &g);
        if (interval)
            good = eval_gather_interval(&c->delta, &g, run, run->tasks[s->task], s->n_target,
                                        run->variants[variant].id);
    }
    eval_gather_clear(&g);
    return good;
}

double eval_cell_retention(const struct eval_cell *c)
{
    return eval_retention(c->full, c->mean);
}

const char *eval_cell_verdict(const struct eval_cell *c)
{
    return isnan(c->delta.delta) ? "" : eval_verdict(&c->delta);
}
