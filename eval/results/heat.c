/* SPDX-License-Identifier: MIT */
/* Maps by depth and length. */
#include "eval/results/heat.h"

#include "app/console.h"
#include "eval/tasks/task.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The needle is the hypothesis, so that recall is a share of the answer. */
#define PACKAGE "as kvpress reports it, ROUGE-"

const struct eval_heat_score eval_heat_scores[EVAL_N_HEAT_SCORES] = {
    {EVAL_M_SCORE, NULL, true, "score"},
    {EVAL_M_FGT, NULL, true, "first generated token as with the full cache"},
    {EVAL_M_PARTIAL, NULL, true, "partial match"},
    {EVAL_M_CONTAINS, NULL, false, "answers that contain what was hidden"},
    {EVAL_M_WORDSET, NULL, true, "share of the expected words, as CompressKV draws it"},
    {EVAL_M_ROUGE1, NULL, true, "recall of the needle's words"},
    {EVAL_M_ROUGE_PKG, NULL, false, PACKAGE "1, precision"},
    {EVAL_M_ROUGE_PKG + 1, NULL, true, PACKAGE "1, recall: share of the answer's words that the needle has"},
    {EVAL_M_ROUGE_PKG + 2, NULL, false, PACKAGE "1, F"},
    {EVAL_M_ROUGE_PKG + 3, NULL, false, PACKAGE "2, precision"},
    {EVAL_M_ROUGE_PKG + 4, NULL, false, PACKAGE "2, recall"},
    {EVAL_M_ROUGE_PKG + 5, NULL, false, PACKAGE "2, F"},
    {EVAL_M_ROUGE_PKG + 6, NULL, false, PACKAGE "L, precision"},
    {EVAL_M_ROUGE_PKG + 7, NULL, false, PACKAGE "L, recall"},
    {EVAL_M_ROUGE_PKG + 8, "rouge_pkg", false, PACKAGE "L, F"},
};

bool eval_heat_shows(const char *name, const struct eval_heat_score *score)
{
    return name ? strcmp(name, eval_measure_name(score->measure)) == 0 ||
                      (score->alias && strcmp(name, score->alias) == 0)
                : score->usual;
}

int eval_heat_check(const char *name)
{
    for (int i = 0; i < EVAL_N_HEAT_SCORES; i++)
        if (eval_heat_shows(name, &eval_heat_scores[i]))
            return APP_OK;
    return app_fail(APP_BAD_INPUT, "--niah-score '%s' is unknown; use " EVAL_HEAT_NAMES, name);
}

bool eval_heat_is_on_grid(const char *name)
{
    const struct eval_task *task = eval_task_find(name);
    return task && task->flags & EVAL_ON_GRID;
}

/* Depths are told apart by whole per cents. */
static double depth_of(const struct eval_result *r)
{
    return round(100.0 * r->m[EVAL_M_DEPTH]);
}

static bool counts(const struct eval_result *r, int32_t task, int32_t variant, enum eval_measure m)
{
    return r->task == task && r->variant == variant && !isnan(r->m[m]) && !isnan(r->m[EVAL_M_DEPTH]);
}

bool eval_heat_has(const struct eval_run *run, int32_t task, int32_t variant, enum eval_measure m)
{
    for (size_t i = 0; i < run->n; i++)
        if (counts(&run->results[i], task, variant, m))
            return true;
    return false;
}

/* Inserts a value into an ascending list unless it is there. */
static void insert_depth(struct eval_heat *h, double depth)
{
    int32_t i = 0;
    while (i < h->n_depths && h->depth[i] < depth)
        i++;
    if (i < h->n_depths && h->depth[i] == depth)
        return;
    memmove(h->depth + i + 1, h->depth + i, (size_t)(h->n_depths++ - i) * sizeof *h->depth);
    h->depth[i] = depth;
}

static void insert_length(struct eval_heat *h, int32_t length)
{
    int32_t i = 0;
    while (i < h->n_lengths && h->length[i] < length)
        i++;
    if (i < h->n_lengths && h->length[i] == length)
        return;
    memmove(h->length + i + 1, h->length + i, (size_t)(h->n_lengths++ - i) * sizeof *h->length);
    h->length[i] = length;
}

static size_t cell_of(const struct eval_heat *h, const struct eval_result *r)
{
    size_t i = 0, k = 0;
    while (h->depth[i] != depth_of(r))
        i++;
    while (h->length[k] != r->n_target)
        k++;
    return i * (size_t)h->n_lengths + k;
}

/* Sums up the cells, then divides. */
static void fill(struct eval_heat *h, const struct eval_run *run, int32_t task, int32_t variant,
                 enum eval_measure m)
{
    const size_t n_cells = (size_t)h->n_depths * (size_t)h->n_lengths;
    double sum = 0.0, open = 0.0, all = 0.0;
    int32_t n_filled = 0, n_open = 0;
    h->binary = true;
    for (size_t i = 0; i < run->n; i++) {
        const struct eval_result *r = &run->results[i];
        if (!counts(r, task, variant, m))
            continue;
        h->value[cell_of(h, r)] += 100.0 * r->m[m];
        h->n[cell_of(h, r)]++;
        h->n_all++;
        h->binary = h->binary && (r->m[m] == 0.0 || r->m[m] == 1.0);
        all += r->m[m];
        h->has_protected = h->has_protected || r->flags & EVAL_R_PROTECTED;
        open += r->flags & EVAL_R_PROTECTED ? 0.0 : 100.0 * r->m[m];
        n_open += r->flags & EVAL_R_PROTECTED ? 0 : 1;
    }
    for (size_t i = 0; i < n_cells; i++) {
        h->value[i] = h->n[i] > 0 ? h->value[i] / h->n[i] : NAN;
        sum += h->n[i] > 0 ? h->value[i] : 0.0;
        n_filled += h->n[i] > 0;
    }
    const struct eval_interval share = eval_wilson((int64_t)(all + 0.5), h->n_all);
    h->wilson = (struct eval_interval){100.0 * share.lo, 100.0 * share.hi};
    h->mean = n_filled > 0 ? sum / n_filled : NAN;
    h->unprotected = n_open > 0 ? open / n_open : NAN;
}

bool eval_heat_make(struct eval_heat *h, const struct eval_run *run, int32_t task, int32_t variant,
                    enum eval_measure m)
{
    size_t n = 0;
    *h = (struct eval_heat){.mean = NAN, .unprotected = NAN};
    for (size_t i = 0; i < run->n; i++)
        n += counts(&run->results[i], task, variant, m);
    h->depth = malloc((n + 1) * sizeof *h->depth);
    h->length = malloc((n + 1) * sizeof *h->length);
    for (size_t i = 0; h->depth && h->length && i < run->n; i++)
        if (counts(&run->results[i], task, variant, m)) {
            insert_depth(h, depth_of(&run->results[i]));
            insert_length(h, run->results[i].n_target);
        }
    h->value = calloc((size_t)h->n_depths * (size_t)h->n_lengths + 1, sizeof *h->value);
    h->n = calloc((size_t)h->n_depths * (size_t)h->n_lengths + 1, sizeof *h->n);
    if (!h->depth || !h->length || !h->value || !h->n)
        return false;
    fill(h, run, task, variant, m);
    return true;
}

void eval_heat_clear(struct eval_heat *h)
{
    free(h->depth);
    free(h->length);
    free(h->value);
    free(h->n);
    *h = (struct eval_heat){0};
}
