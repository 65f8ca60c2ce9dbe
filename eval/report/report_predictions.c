/* SPDX-License-Identifier: MIT */
/* For tasks without scores, or with scores that cannot distinguish methods: how the predictions of the full cache's answer, or of a
 * text, change. */
#include "eval/report/report_impl.h"

#include "app/json.h"

#include <math.h>

/* The number of an estimate and the bounds of its interval, NaN where there is none. */
static json_t *estimate_json(double mean, struct eval_interval over)
{
    return json_pack("[o,o,o]", app_json_number(mean), app_json_number(over.lo), app_json_number(over.hi));
}

/* A measure of a variant, or what it is more than that of `other`, with its interval. In nats per token it becomes a perplexity, and
 * their difference a ratio. */
static json_t *measured(const struct eval_run *run, const struct eval_stratum *s, int32_t variant,
                        int32_t other, enum eval_measure m)
{
    struct eval_gather g;
    struct eval_paired p = {.delta = NAN, .over = {NAN, NAN}};
    const bool good = eval_gather(&g, &(struct eval_compared){run, s, 1, NULL, variant, other, m}) &&
                      (g.n == 0 || eval_gather_interval(&p, &g, run, run->tasks[s->task], s->n_target,
                                                        run->variants[variant].id));
    eval_gather_clear(&g);
    if (m == EVAL_M_NLL)
        p = (struct eval_paired){.delta = exp(p.delta), .over = {exp(p.over.lo), exp(p.over.hi)}};
    return good ? estimate_json(p.delta, p.over) : NULL;
}

/* A row; texts have no question and no answer. */
static json_t *row_json(const struct eval_tables *t, const struct eval_block *b, int32_t row, int32_t k)
{
    static const struct eval_interval none = {NAN, NAN};
    const struct eval_stratum *s = &b->strata[k];
    const struct eval_cell *c = &b->rows[row].cell[k];
    const int32_t variant = b->rows[row].variant;
    json_t *o =
        json_pack("{s:o,s:I}", "config", app_json_text(t->run->variants[variant].id), "n", (json_int_t)c->n);
    app_json_set(&o, "kl",
                 s->scored ? estimate_json(c->m[EVAL_M_KL], none)
                           : measured(t->run, s, variant, -1, EVAL_M_KL));
    if (s->scored)
        return o;
    app_json_set(&o, "perplexity", measured(t->run, s, variant, -1, EVAL_M_NLL));
    app_json_set(&o, "over_full",
                 b->baseline >= 0 && variant != b->baseline
                     ? measured(t->run, s, variant, b->baseline, EVAL_M_NLL)
                     : estimate_json(NAN, none));
    return o;
}

json_t *eval_predictions_json(const struct eval_tables *t, const struct eval_block *b)
{
    json_t *list = json_array();
    for (int32_t k = 0; k < b->n_strata; k++) {
        if (b->strata[k].informative)
            continue;
        json_t *rows = json_array();
        for (int32_t i = 0; i < b->n_rows; i++)
            app_json_append(&rows, row_json(t, b, i, k));
        app_json_append(&list,
                        json_pack("{s:o,s:b,s:o}", "task", app_json_text(t->run->tasks[b->strata[k].task]),
                                  "scored", (int)b->strata[k].scored, "rows", rows));
    }
    return list;
}
