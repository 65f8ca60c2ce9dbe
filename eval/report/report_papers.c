/* SPDX-License-Identifier: MIT */
/* Tables of the papers with winnow's numbers next to them. A measured number is comparable with a paper's if the parsed policy, the
 * protocol, the size and the metric are the same. Its run must have a cache of 16-bit entries and no masked heads. */
#include "eval/report/papers.h"
#include "eval/report/report_impl.h"

#include "app/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Our numbers ---- */

/* What a run has of a protocol. */
struct side {
    const char *mode;
    const struct eval_block *b; /* NULL: nothing */
    struct eval_curve *curves;  /* owned */
    int32_t n_curves;
};
/* The last two are where a question is known. */
enum { AGNOSTIC, AWARE_FULL, TASK, AWARE, N_SIDES };

struct finder {
    const struct eval_tables *t;
    struct side side[N_SIDES];
};

/* A number that winnow measured; NaN if there is none. */
struct ours {
    double value;
    double kept; /* share of the full cache's score in per cent; NaN where that is no score */
    bool beyond; /* the loss was never reached, and more could go */
    int32_t variant;
};

static void close_finder(struct finder *f)
{
    for (int i = 0; i < N_SIDES; i++)
        free(f->side[i].curves);
}

static bool open_finder(struct finder *f, const struct eval_tables *t)
{
    static const char *const modes[N_SIDES] = {"agnostic", "aware_full", "task", "aware"};
    bool good = true;
    *f = (struct finder){.t = t};
    for (int i = 0; good && i < N_SIDES; i++) {
        struct side *s = &f->side[i];
        *s = (struct side){.mode = modes[i], .b = eval_tables_all(t, modes[i])};
        good = !s->b || eval_curves_make(&s->curves, &s->n_curves, t, s->b);
    }
    return good;
}

/* Whether a variant is of the policy; plain: read and compressed as by default, else by any rule. */
static bool is_of(const struct finder *f, int32_t variant, const char *canonical, bool plain)
{
    const struct eval_variant *v = &f->t->run->variants[variant];
    return strcmp(v->canonical, canonical) == 0 && strcmp(v->kv_type, "f16") == 0 &&
           (plain ? !v->more[0] : !strstr(v->more, "mask="));
}

static struct ours of_curve(const struct finder *f, const struct side *s, const char *canonical, bool plain,
                            const char *metric)
{
    struct ours o = {.value = NAN, .kept = NAN};
    for (int32_t i = 0; i < s->n_curves; i++) {
        const struct eval_curve *c = &s->curves[i];
        o.variant = s->b->rows[c->first].variant;
        if (!c->has_auc || !is_of(f, o.variant, canonical, plain))
            continue;
        if (strcmp(metric, "auc_one") == 0)
            o.value = c->auc_one;
        for (int k = 0; strncmp(metric, "loss=", 5) == 0 && k < EVAL_N_LOSSES; k++)
            if (fabs(strtod(metric + 5, NULL) - eval_losses[k]) < 1e-9) {
                o.beyond = isinf(c->tolerance[k]);
                o.value = 100.0 * (o.beyond ? c->r[c->n - 1] : c->tolerance[k]);
            }
        return o;
    }
    return o;
}

/* Mean score of a task over its lengths, and of the full cache. */
static void find_task(double *mean, double *full, const struct finder *f, const struct eval_block *b,
                      const struct eval_row *row, const char *task)
{
    struct eval_mean of_row = {0}, of_full = {0};
    for (int32_t k = 0; k < b->n_strata; k++) {
        if (!b->strata[k].scored || row->cell[k].n == 0 ||
            strcmp(f->t->run->tasks[b->strata[k].task], task) != 0)
            continue;
        eval_mean_add(&of_row, row->cell[k].mean);
        eval_mean_add(&of_full, row->cell[k].full);
    }
    *mean = eval_mean_value(&of_row);
    *full = eval_mean_value(&of_full);
}

static struct ours of_rows(const struct finder *f, const struct side *s, const char *canonical, bool plain,
                           const char *task, const char *size)
{
    struct ours o = {.value = NAN, .kept = NAN};
    for (int32_t i = 0; i < s->b->n_rows && isnan(o.value); i++) {
        const struct eval_row *row = &s->b->rows[i];
        const struct eval_variant *v = &f->t->run->variants[row->variant];
        double full = row->macro.full;
        o.variant = row->variant;
        if (!is_of(f, row->variant, canonical, plain) || !(v->full || strcmp(v->size, size) == 0))
            continue;
        o.value = row->macro.mean;
        if (*task)
            find_task(&o.value, &full, f, s->b, row, task);
        o.kept = v->full ? NAN : eval_retention(full, o.value);
    }
    return o;
}

/* winnow's number for one of a paper's: the first recipe that was measured, by the default eviction rule or else by another one. */
static struct ours find_ours(bool *no_memory, const struct finder *f, const struct eval_paper_number *p)
{
    const char *mode = p->field[EVAL_P_MODE], *metric = p->field[EVAL_P_METRIC],
               *recipes = p->field[EVAL_P_RECIPE];
    const bool known = strcmp(mode, "known") == 0;
    char recipe[EVAL_MAX_RECIPE];
    struct ours o = {.value = NAN, .kept = NAN};
    while (*metric && isnan(o.value) && eval_papers_word(recipe, &recipes)) {
        char *canonical = eval_recipe_canonical(recipe, NULL);
        *no_memory = *no_memory || !canonical;
        for (int i = 0; canonical && i < 2 * N_SIDES && isnan(o.value); i++) {
            const struct side *s = &f->side[i / 2];
            if (!s->b || (known ? i / 2 < TASK : strcmp(s->mode, mode) != 0))
                continue;
            o = strcmp(metric, "score") == 0
                    ? of_rows(f, s, canonical, i % 2 == 0, p->field[EVAL_P_TASK], p->field[EVAL_P_SIZE])
                    : of_curve(f, s, canonical, i % 2 == 0, metric);
        }
        free(canonical);
    }
    return o;
}

/* ---- As JSON ---- */

static bool same(const struct eval_paper_number *a, const struct eval_paper_number *b, int field)
{
    return strcmp(a->field[field], b->field[field]) == 0;
}

static bool same_table(const struct eval_paper_number *a, const struct eval_paper_number *b)
{
    return same(a, b, EVAL_P_PAPER) && same(a, b, EVAL_P_TABLE);
}

/* Whether both are compared with the same measured number. */
static bool same_counterpart(const struct eval_paper_number *a, const struct eval_paper_number *b)
{
    return same(a, b, EVAL_P_MODE) && same(a, b, EVAL_P_METRIC) && same(a, b, EVAL_P_TASK) &&
           same(a, b, EVAL_P_SIZE);
}

static json_t *ours_json(const struct finder *f, const struct eval_paper_number *p, const struct ours *o)
{
    const struct eval_run *run = f->t->run;
    json_t *out = json_pack("{s:s,s:s,s:s,s:s,s:o,s:o,s:b}", "mode", p->field[EVAL_P_MODE], "metric",
                            p->field[EVAL_P_METRIC], "task", p->field[EVAL_P_TASK], "size",
                            p->field[EVAL_P_SIZE], "value", app_json_number(o->value), "kept",
                            app_json_number(o->kept), "beyond", (int)o->beyond);
    if (!isnan(o->value)) {
        app_json_set(&out, "method", eval_label_json(run, &run->variants[o->variant], false));
        app_json_set(&out, "asked", eval_asked_for(run, &run->variants[o->variant]));
    }
    return out;
}

/* A row of a table: p[n] of one method. *any: winnow has a number for a method. */
static json_t *row_json(bool *any, const struct finder *f, const struct eval_paper_number *p, int32_t n)
{
    json_t *cells = json_array(), *list = json_array();
    bool no_memory = false;
    for (int32_t i = 0; i < n; i++) {
        app_json_append(&cells, json_pack("{s:s,s:s}", "column", p[i].field[EVAL_P_COLUMN], "value",
                                          p[i].field[EVAL_P_VALUE]));
        bool had = !p[i].field[EVAL_P_METRIC][0];
        for (int32_t k = 0; k < i; k++)
            had = had || same_counterpart(&p[i], &p[k]);
        if (had)
            continue;
        const struct ours o = find_ours(&no_memory, f, &p[i]);
        *any = *any || (!isnan(o.value) && strcmp(p[i].field[EVAL_P_RECIPE], "full") != 0);
        app_json_append(&list, no_memory ? NULL : ours_json(f, &p[i], &o));
    }
    return json_pack("{s:s,s:s,s:o,s:o}", "method", p->field[EVAL_P_METHOD], "recipe",
                     p->field[EVAL_P_RECIPE], "cells", cells, "ours", list);
}

/* The names of columns in the order in which they come first. */
static json_t *columns_json(const struct eval_paper_number *p, int32_t n)
{
    json_t *list = json_array();
    for (int32_t i = 0; i < n; i++) {
        bool had = false;
        for (int32_t k = 0; k < i && !had; k++)
            had = same(&p[i], &p[k], EVAL_P_COLUMN);
        if (!had)
            app_json_append(&list, json_string(p[i].field[EVAL_P_COLUMN]));
    }
    return list;
}

static json_t *table_json(const struct finder *f, const struct eval_paper_number *p, int32_t n)
{
    json_t *rows = json_array();
    bool any = false;
    for (int32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && same(&p[i], &p[end], EVAL_P_METHOD);)
            end++;
        app_json_append(&rows, row_json(&any, f, &p[i], end - i));
    }
    return json_pack("{s:s,s:s,s:s,s:o,s:o,s:b}", "paper", p->field[EVAL_P_PAPER], "table",
                     p->field[EVAL_P_TABLE], "note", p->field[EVAL_P_NOTE], "columns", columns_json(p, n),
                     "rows", rows, "ours", (int)any);
}

json_t *eval_papers_json(const struct eval_papers *papers, const struct eval_tables *t)
{
    struct finder f;
    json_t *list = json_array();
    const bool good = open_finder(&f, t);
    for (int32_t i = 0, end; good && i < papers->n; i = end) {
        for (end = i + 1; end < papers->n && same_table(&papers->number[i], &papers->number[end]);)
            end++;
        app_json_append(&list, table_json(&f, &papers->number[i], end - i));
    }
    if (!good)
        app_json_append(&list, NULL);
    close_finder(&f);
    return list;
}
