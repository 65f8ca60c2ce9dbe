/* SPDX-License-Identifier: MIT */
/* The summary as CSV: one line for every protocol, length, method and task, one for the
 * mean of each domain or bucket and one for the mean of all. */
#include "eval/report/report_impl.h"

#include <math.h>
#include <stdio.h>

/* Adds a number with all its digits; nothing for NaN. */
static void put_value(struct eval_doc *d, double value)
{
    if (isnan(value))
        eval_doc_put(d, ",");
    else
        eval_doc_put(d, ",%.10g", value);
}

static void put_text(struct eval_doc *d, const char *text)
{
    eval_doc_put(d, ",");
    eval_doc_csv(d, text);
}

static void put_cell(struct eval_doc *d, const struct eval_cell *c)
{
    const bool binary = c->binary && c->n > 0;
    const bool pairs = binary && !isnan(c->delta.delta);
    const double values[] = {c->mean,
                             c->full,
                             c->delta.delta,
                             c->delta.over.lo,
                             c->delta.over.hi,
                             eval_cell_retention(c),
                             binary ? c->wilson.lo : NAN,
                             binary ? c->wilson.hi : NAN,
                             pairs ? (double)c->discordant.lost : NAN,
                             pairs ? (double)c->discordant.gained : NAN,
                             pairs ? c->discordant.p : NAN};
    eval_doc_put(d, ",%zu", c->n);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        put_value(d, values[i]);
    eval_doc_put(d, ",%s", eval_cell_verdict(c));
    for (int m = EVAL_M_PARTIAL; m < EVAL_N_MEASURES; m++)
        put_value(d, c->m[m]);
    put_value(d, c->first.lo);
    put_value(d, c->first.hi);
    eval_doc_put(d, ",%zu", c->n_clusters);
}

/* A cell of a row: of a task, or of a mean, which has no task; its name begins with "macro". */
static void put_line(struct eval_doc *d, const struct eval_run *run, const struct eval_block *b,
                     const struct eval_row *row, const char *task, const char *name, bool informative,
                     const struct eval_cell *cell)
{
    const struct eval_variant *v = &run->variants[row->variant];
    eval_doc_csv(d, run->model);
    put_text(d, b->mode);
    if (b->n_target == EVAL_ALL_LENGTHS)
        eval_doc_put(d, ",all");
    else
        eval_doc_put(d, ",%d", b->n_target);
    put_text(d, name);
    eval_doc_put(d, ",%d", informative);
    put_text(d, v->policy);
    put_text(d, v->size);
    put_text(d, v->kv_type);
    put_text(d, v->more);
    put_text(d, v->id);
    put_cell(d, cell);
    eval_doc_put(d, ",");
    eval_stand_ins_csv(d, run->info, task);
    eval_doc_put(d, "\n");
}

static void put_row(struct eval_doc *d, const struct eval_run *run, const struct eval_block *b,
                    const struct eval_row *row)
{
    for (int32_t s = 0; s < b->n_strata && b->n_target != EVAL_ALL_LENGTHS; s++) {
        const char *task = run->tasks[b->strata[s].task];
        put_line(d, run, b, row, task, task, b->strata[s].informative, &row->cell[s]);
    }
    for (enum eval_by by = EVAL_BY_DOMAIN; by < EVAL_N_BY; by++)
        for (int32_t i = 0; i < eval_by_n(b, by); i++) {
            char name[48];
            snprintf(name, sizeof name, "macro:%s", eval_by_name(run, b, by, i));
            put_line(d, run, b, row, NULL, name, true, eval_by_cell(row, by, i));
        }
    put_line(d, run, b, row, NULL, "macro", b->n_informative > 0, &row->macro);
}

void eval_report_csv(struct eval_doc *d, const struct eval_report *r)
{
    eval_doc_put(
        d, "model,mode,N,task,informative,policy,size,kv_type,more,config,n,mean,full,delta,lo,hi,retention,"
           "wilson_lo,wilson_hi,lost,gained,p,verdict");
    for (enum eval_measure m = EVAL_M_PARTIAL; m < EVAL_N_MEASURES; m++)
        eval_doc_put(d, ",%s", eval_measure_name(m));
    eval_doc_put(d, ",fgt_lo,fgt_hi,clusters,stand_ins\n");
    for (int32_t i = 0; i < r->runs.n; i++)
        for (int32_t k = 0; k < r->tables[i].n; k++) {
            const struct eval_block *b = &r->tables[i].blocks[k];
            for (int32_t row = 0; row < b->n_rows; row++)
                put_row(d, &r->runs.run[i], b, &b->rows[row]);
        }
}
