/* SPDX-License-Identifier: MIT */
/* A policy's score over the share that is removed. */
#include "eval/results/curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const double eval_losses[EVAL_N_LOSSES] = {0.01, 0.05, 0.1, 0.2};

/* The removed share of a row: the one asked for, or the one achieved if that differs or no ratio was asked for. */
static double removed_by(const struct eval_row *row, const struct eval_run *run)
{
    const double asked = run->variants[row->variant].removed;
    return (isnan(asked) || row->off_target) && !isnan(row->removed) ? row->removed : asked;
}

static double mean_loss(const struct eval_block *b, const struct eval_row *row)
{
    struct eval_mean mean = {0};
    for (int32_t i = 0; i < b->n_strata; i++)
        if (b->strata[i].informative)
            eval_mean_add(&mean, eval_loss(row->cell[i].full, row->cell[i].mean));
    return eval_mean_value(&mean);
}

static void insert(struct eval_curve *c, int32_t row, double r, double score, double loss)
{
    int32_t i = c->n;
    if (c->n == EVAL_MAX_POINTS || isnan(r) || isnan(score))
        return;
    for (; i > 0 && c->r[i - 1] > r; i--) {
        c->row[i] = c->row[i - 1];
        c->r[i] = c->r[i - 1];
        c->score[i] = c->score[i - 1];
        c->loss[i] = c->loss[i - 1];
    }
    c->row[i] = row;
    c->r[i] = r;
    c->score[i] = score;
    c->loss[i] = loss;
    c->n++;
}

/* Areas and tolerances of a curve whose points are complete. */
static void measure(struct eval_curve *c)
{
    int32_t n_ratios = 0;
    bool losses = true;
    for (int32_t i = 0; i < c->n; i++) {
        n_ratios += c->r[i] > 0 && (i == 0 || c->r[i] > c->r[i - 1]);
        losses = losses && !isnan(c->loss[i]);
    }
    c->has_auc = n_ratios >= EVAL_LEAST_RATIOS && c->r[0] == 0.0;
    c->auc = c->has_auc ? eval_auc(c->r, c->score, (size_t)c->n, false) : NAN;
    c->auc_one = c->has_auc ? eval_auc(c->r, c->score, (size_t)c->n, true) : NAN;
    c->auc_rel = c->has_auc ? eval_retention(c->score[0], c->auc) : NAN;
    for (int i = 0; i < EVAL_N_LOSSES; i++)
        c->tolerance[i] =
            c->has_auc && losses ? eval_tolerance(c->r, c->loss, (size_t)c->n, eval_losses[i]) : NAN;
}

static bool same_policy(const struct eval_variant *a, const struct eval_variant *b)
{
    return strcmp(a->policy, b->policy) == 0 && strcmp(a->kv_type, b->kv_type) == 0 &&
           strcmp(a->more, b->more) == 0;
}

bool eval_curves_make(struct eval_curve **out, int32_t *n, const struct eval_tables *t,
                      const struct eval_block *b)
{
    const struct eval_run *run = t->run;
    *n = 0;
    *out = calloc((size_t)b->n_rows + 1, sizeof **out);
    for (int32_t i = 0, end; *out && i < b->n_rows; i = end) {
        const struct eval_variant *v = &run->variants[b->rows[i].variant];
        struct eval_curve c = {.first = i};
        for (end = i; end < b->n_rows && same_policy(v, &run->variants[b->rows[end].variant]); end++) {
            const struct eval_row *row = &b->rows[end];
            insert(&c, end, removed_by(row, run), row->macro.mean, mean_loss(b, row));
        }
        if (v->full)
            continue;
        if (c.n > 0 && c.r[0] > 0 && !isnan(b->rows[c.row[0]].macro.full))
            insert(&c, -1, 0.0, b->rows[c.row[0]].macro.full, 0.0);
        measure(&c);
        (*out)[(*n)++] = c;
    }
    return *out;
}
