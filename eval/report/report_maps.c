/* SPDX-License-Identifier: MIT */
/* Maps by depth and length as CSV: one line for every protocol, task, method, score and cell. */
#include "eval/report/report_impl.h"

#include "eval/results/heat.h"

/* The cells of one map. */
static void put_map(struct eval_doc *d, const struct eval_run *run, const struct eval_block *b, int32_t task,
                    int32_t variant, const struct eval_heat_score *score)
{
    const struct eval_variant *v = &run->variants[variant];
    const char *const texts[] = {b->mode, run->tasks[task], v->policy, v->size, v->kv_type, v->more, v->id};
    struct eval_heat h;
    if (!eval_heat_make(&h, run, task, variant, score->measure))
        d->no_memory = true;
    for (int32_t k = 0; k < h.n_depths * h.n_lengths; k++) {
        if (h.n[k] == 0)
            continue;
        eval_doc_csv(d, run->model);
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            eval_doc_put(d, ",");
            eval_doc_csv(d, texts[i]);
        }
        eval_doc_put(d, ",%s,%d,%g,%.10g,%d\n", eval_measure_name(score->measure), h.length[k % h.n_lengths],
                     h.depth[k / h.n_lengths], h.value[k], h.n[k]);
    }
    eval_heat_clear(&h);
}

static void put_block(struct eval_doc *d, const struct eval_run *run, const struct eval_block *b)
{
    for (int32_t task = 0; task < run->n_tasks; task++)
        for (int32_t i = 0; eval_heat_is_on_grid(run->tasks[task]) && i < b->n_rows; i++)
            for (int k = 0; k < EVAL_N_HEAT_SCORES; k++)
                put_map(d, run, b, task, b->rows[i].variant, &eval_heat_scores[k]);
}

void eval_report_maps(struct eval_doc *d, const struct eval_report *r)
{
    struct eval_doc lines = {0};
    for (int32_t i = 0; i < r->runs.n; i++)
        for (int32_t k = 0; k < r->tables[i].n; k++)
            if (r->tables[i].blocks[k].n_target == EVAL_ALL_LENGTHS)
                put_block(&lines, &r->runs.run[i], &r->tables[i].blocks[k]);
    if (lines.text.len > 0)
        eval_doc_put(d, "model,mode,task,policy,size,kv_type,more,config,score,length,depth,value,n\n%s",
                     lines.text.s);
    d->no_memory = d->no_memory || lines.no_memory;
    eval_doc_clear(&lines);
}
