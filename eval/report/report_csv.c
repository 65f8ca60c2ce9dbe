/* SPDX-License-Identifier: MIT */
/* Two forms as CSV. The summary: one line for every protocol, length, method and task, one for the
 * mean of each domain or bucket and one for the mean of all. */
#include "eval/report/report_impl.h"
#include "eval/results/map.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds texts with commas after them. */
static void put_texts(struct eval_doc *d, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        eval_doc_csv(d, list[i]);
        eval_doc_put(d, ",");
    }
}

/* Adds the numbers of a cell with all their digits and commas after them; nothing for NaN. */
static void put_cell(struct eval_doc *d, const struct eval_cell *c)
{
    struct eval_cell_field fields[EVAL_MAX_CELL_FIELDS];
    const int n = eval_cell_fields(fields, c);
    for (int i = 0; i < n; i++)
        if (fields[i].text)
            eval_doc_put(d, "%s,", fields[i].text);
        else if (isnan(fields[i].value))
            eval_doc_put(d, ",");
        else
            eval_doc_put(d, "%.10g,", fields[i].value);
}

/* Whether a list "(a, b)" has the name. */
static bool lists(const char *list, const char *name)
{
    const size_t len = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += len)
        if ((at[-1] == '(' || at[-1] == ' ') && (at[len] == ',' || at[len] == ')'))
            return true;
    return false;
}

/* Adds what stood in for data of a task, without the names of tasks; of any task if it is NULL. */
void eval_stand_ins_csv(struct eval_doc *d, const json_t *info, const char *task)
{
    const json_t *list = json_object_get(info, "stand_ins");
    struct app_text all = {0};
    bool good = app_text_add(&all, "", 0);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        const char *names = text ? strrchr(text, '(') : NULL;
        if (!names || names - text < 2 || (task && !lists(names, task)))
            continue;
        good = good && app_text_add(&all, "; ", all.len > 0 ? 2 : 0) &&
               app_text_add_utf8(&all, text, (size_t)(names - text) - 1);
    }
    if (good)
        eval_doc_csv(d, all.s);
    d->no_memory = d->no_memory || !good;
    free(all.s);
}

/* A row of a table. */
struct place {
    const struct eval_run *run;
    const struct eval_block *b;
    const struct eval_row *row;
};

/* A cell of a row: of a task, or of a mean, which has no task; its name begins with "macro". */
static void put_line(struct eval_doc *d, const struct place *p, const char *task, const char *name,
                     bool informative, const struct eval_cell *cell)
{
    const struct eval_variant *v = &p->run->variants[p->row->variant];
    char length[16] = "all";
    if (p->b->n_target != EVAL_ALL_LENGTHS)
        snprintf(length, sizeof length, "%d", p->b->n_target);
    const char *const texts[] = {p->run->model, p->b->mode, length,     name,    informative ? "1" : "0",
                                 v->policy,     v->size,    v->kv_type, v->more, v->id};
    put_texts(d, texts, sizeof texts / sizeof *texts);
    put_cell(d, cell);
    eval_stand_ins_csv(d, p->run->info, task);
    eval_doc_put(d, "\n");
}

static void put_row(struct eval_doc *d, const struct place *p)
{
    const struct eval_block *b = p->b;
    for (int32_t s = 0; s < b->n_strata && b->n_target != EVAL_ALL_LENGTHS; s++) {
        const char *task = p->run->tasks[b->strata[s].task];
        put_line(d, p, task, task, b->strata[s].informative, &p->row->cell[s]);
    }
    for (enum eval_by by = EVAL_BY_DOMAIN; by < EVAL_N_BY; by++)
        for (int32_t i = 0; i < eval_by_n(b, by); i++) {
            char name[48];
            snprintf(name, sizeof name, "macro:%s", eval_by_name(p->run, b, by, i));
            put_line(d, p, NULL, name, true, eval_by_cell(p->row, by, i));
        }
    put_line(d, p, NULL, "macro", b->n_informative > 0, &p->row->macro);
}

void eval_report_csv(struct eval_doc *d, const struct eval_report *r)
{
    const struct eval_cell none = {0};
    struct eval_cell_field fields[EVAL_MAX_CELL_FIELDS];
    const int n = eval_cell_fields(fields, &none);
    eval_doc_put(d, "model,mode,N,task,informative,policy,size,kv_type,more,config,");
    for (int i = 0; i < n; i++)
        eval_doc_put(d, "%s,", fields[i].key);
    eval_doc_put(d, "stand_ins\n");
    for (int32_t i = 0; i < r->runs.n; i++)
        for (int32_t k = 0; k < r->tables[i].n; k++) {
            const struct eval_block *b = &r->tables[i].blocks[k];
            for (int32_t row = 0; row < b->n_rows; row++)
                put_row(d, &(struct place){&r->runs.run[i], b, &b->rows[row]});
        }
}

/* ---- Maps by depth and length: one line for every protocol, task, method, score and cell ---- */

/* The cells of one map. */
static void put_map(struct eval_doc *d, const struct eval_run *run, const struct eval_block *b, int32_t task,
                    int32_t variant, const struct eval_map_score *score)
{
    const struct eval_variant *v = &run->variants[variant];
    const char *const texts[] = {run->model, b->mode,    run->tasks[task], v->policy,
                                 v->size,    v->kv_type, v->more,          v->id};
    struct eval_map h;
    if (!eval_map_make(&h, run, task, variant, score->measure))
        d->no_memory = true;
    for (int32_t k = 0; k < h.n_depths * h.n_lengths; k++) {
        if (h.n[k] == 0)
            continue;
        put_texts(d, texts, sizeof texts / sizeof *texts);
        eval_doc_put(d, "%s,%.0f,%g,%.10g,%d\n", eval_measure_name(score->measure), h.length[k % h.n_lengths],
                     h.depth[k / h.n_lengths], h.value[k], h.n[k]);
    }
    eval_map_clear(&h);
}

static void put_block(struct eval_doc *d, const struct eval_run *run, const struct eval_block *b)
{
    for (int32_t task = 0; task < run->n_tasks; task++)
        for (int32_t i = 0; eval_map_is_on_grid(run->tasks[task]) && i < b->n_rows; i++)
            for (int k = 0; k < EVAL_N_MAP_SCORES; k++)
                put_map(d, run, b, task, b->rows[i].variant, &eval_map_scores[k]);
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
