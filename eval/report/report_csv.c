/* SPDX-License-Identifier: MIT */
/* Two forms as CSV. The summary: one line for every protocol, length, method and task, one for the
 * mean of each domain or bucket and one for the mean of all. */
#include "eval/report/report_impl.h"
#include "eval/report/sheet.h"
#include "eval/results/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The summary ---- */

/* Whether a list "(a, b)" has the name. */
static bool lists(const char *list, const char *name)
{
    const size_t len = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += len)
        if ((at[-1] == '(' || at[-1] == ' ') && (at[len] == ',' || at[len] == ')'))
            return true;
    return false;
}

/* What stood in for data of a task, without the names of tasks; of any task if it is NULL. */
json_t *eval_substitutes_of(const json_t *list, const char *task)
{
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
    json_t *text = good ? json_stringn(all.s, all.len) : NULL;
    free(all.s);
    return text;
}

static const char *const keys[] = {"model",  "mode", "N",       "task", "informative",
                                   "policy", "size", "kv_type", "more", "config"};
enum { N_KEYS = sizeof keys / sizeof *keys };

/* A row of the report's object, with the objects that contain it. */
struct csv_row {
    const json_t *run, *block, *row;
};

/* Adds a line for a cell, of a task or of a mean over tasks, whose name begins with "macro". */
static void put_line(struct eval_doc *d, const struct csv_row *p, const char *name, bool is_task,
                     bool informative, const json_t *cell)
{
    const char *of_cell[EVAL_MAX_CELL_FIELDS];
    const size_t n = eval_cell_keys(of_cell);
    json_t *own = json_pack("{s:s,s:b}", "task", name, "informative", (int)informative);
    json_t *substitutes = eval_substitutes_of(json_object_get(p->run, "stand_ins"), is_task ? name : NULL);
    const json_t *const objects[] = {own, p->row, p->block, p->run};
    eval_csv_members(d, keys, N_KEYS, objects, sizeof objects / sizeof *objects);
    eval_csv_members(d, of_cell, n, &cell, 1);
    eval_doc_csv(d, substitutes ? json_string_value(substitutes) : "");
    eval_doc_put(d, "\n");
    d->no_memory = d->no_memory || !own || !substitutes;
    json_decref(own);
    json_decref(substitutes);
}

static void put_means(struct eval_doc *d, const struct csv_row *p, const char *in, const char *key)
{
    const json_t *cells = json_object_get(p->row, in);
    for (size_t i = 0; i < json_array_size(cells); i++) {
        char name[48];
        if (eval_member_number(json_array_get(cells, i), "n") == 0)
            continue;
        snprintf(name, sizeof name, "macro:%s", eval_member_text(json_array_get(cells, i), key));
        put_line(d, p, name, false, true, json_array_get(cells, i));
    }
}

static void put_row(struct eval_doc *d, const struct csv_row *p)
{
    const json_t *cells = json_object_get(p->row, "tasks"), *tasks = json_object_get(p->block, "tasks");
    bool any = false;
    for (size_t i = 0; i < json_array_size(tasks); i++) {
        const json_t *task = json_array_get(tasks, i);
        const bool informative = json_is_true(json_object_get(task, "informative"));
        if (!json_is_string(json_object_get(p->block, "N")))
            put_line(d, p, eval_member_text(task, "task"), true, informative, json_array_get(cells, i));
        any = any || informative;
    }
    put_means(d, p, "answers", "answer");
    put_means(d, p, "domains", "domain");
    put_means(d, p, "buckets", "bucket");
    put_line(d, p, "macro", false, any, json_object_get(p->row, "macro"));
}

void eval_report_csv(struct eval_doc *d, const json_t *object)
{
    const json_t *runs = json_object_get(object, "runs");
    const char *of_cell[EVAL_MAX_CELL_FIELDS];
    const size_t n = eval_cell_keys(of_cell);
    eval_csv_keys(d, keys, N_KEYS);
    eval_csv_keys(d, of_cell, n);
    eval_doc_put(d, "stand_ins\n");
    for (size_t i = 0; i < json_array_size(runs); i++) {
        const json_t *run = json_array_get(runs, i), *blocks = json_object_get(run, "blocks");
        for (size_t k = 0; k < json_array_size(blocks); k++) {
            const json_t *block = json_array_get(blocks, k), *rows = json_object_get(block, "rows");
            for (size_t row = 0; row < json_array_size(rows); row++)
                put_row(d, &(struct csv_row){run, block, json_array_get(rows, row)});
        }
    }
}

/* ---- Maps by depth and length: one line for every protocol, task, method, score and cell ---- */

static void put_map(struct eval_doc *d, const struct eval_tables *t, const struct eval_map *m)
{
    const struct eval_block *b = &t->blocks[m->block];
    const struct eval_variant *v = &t->run->variants[b->rows[m->row].variant];
    const char *const texts[] = {
        t->run->model, b->mode, t->run->tasks[m->task], v->policy, v->size, v->kv_type, v->more, v->id};
    for (int32_t k = 0; k < m->n_depths * m->n_lengths; k++) {
        if (m->n[k] == 0)
            continue;
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            eval_doc_csv(d, texts[i]);
            eval_doc_put(d, ",");
        }
        eval_doc_put(d, "%s,%.0f,%g,%.10g,%d\n", eval_measure_name(m->score->measure),
                     m->length[k % m->n_lengths], m->depth[k / m->n_lengths], m->value[k], m->n[k]);
    }
}

void eval_report_maps(struct eval_doc *d, const struct eval_report *r)
{
    for (int32_t i = 0; i < r->runs.n; i++)
        for (int32_t k = 0; k < r->maps[i].n; k++) {
            if (d->text.len == 0)
                eval_doc_put(d,
                             "model,mode,task,policy,size,kv_type,more,config,score,length,depth,value,n\n");
            put_map(d, &r->tables[i], &r->maps[i].map[k]);
        }
}
