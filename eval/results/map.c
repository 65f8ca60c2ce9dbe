/* SPDX-License-Identifier: MIT */
/* Maps by depth and length, and scores by question. */
#include "eval/results/map.h"

#include "app/console.h"
#include "eval/base/grow.h"
#include "eval/base/task_names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The needle is the hypothesis, so that recall is a share of the answer. */
#define PACKAGE(n, of, value)                                                            \
    {                                                                                    \
        EVAL_M_ROUGE_PKG + of, NULL, false, "as kvpress reports it, ROUGE-" n ", " value \
    }

const struct eval_map_score eval_map_scores[EVAL_N_MAP_SCORES] = {
    {EVAL_M_SCORE, NULL, true, "score"},
    {EVAL_M_FGT, NULL, true, "first generated token as with the full cache"},
    {EVAL_M_PARTIAL, NULL, true, "partial match"},
    {EVAL_M_CONTAINS, NULL, false, "answers that contain what was hidden"},
    {EVAL_M_WORDSET, NULL, true, "share of the expected words, as CompressKV draws it"},
    {EVAL_M_ROUGE1, NULL, true, "recall of the needle's words"},
    PACKAGE("1", 0, "precision"),
    {EVAL_M_ROUGE_PKG + 1, NULL, true,
     "as kvpress reports it, ROUGE-1, recall: share of the answer's words that the needle has"},
    PACKAGE("1", 2, "F"),
    PACKAGE("2", 3, "precision"),
    PACKAGE("2", 4, "recall"),
    PACKAGE("2", 5, "F"),
    PACKAGE("L", 6, "precision"),
    PACKAGE("L", 7, "recall"),
    {EVAL_M_ROUGE_PKG + 8, "rouge_pkg", false, "as kvpress reports it, ROUGE-L, F"},
};

bool eval_map_shows(const char *name, const struct eval_map_score *score)
{
    return name ? strcmp(name, eval_measure_name(score->measure)) == 0 ||
                      (score->alias && strcmp(name, score->alias) == 0)
                : score->usual;
}

int eval_map_check(const char *name)
{
    for (int i = 0; i < EVAL_N_MAP_SCORES; i++)
        if (eval_map_shows(name, &eval_map_scores[i]))
            return APP_OK;
    return app_fail(APP_BAD_INPUT, "--niah-score '%s' is unknown; use " EVAL_MAP_NAMES, name);
}

/* Depths are distinguished by whole per cents. */
static double depth_of(const struct eval_result *r)
{
    return round(100.0 * r->m[EVAL_M_DEPTH]);
}

static bool counts(const struct eval_result *r, int32_t task, int32_t variant, enum eval_measure m)
{
    return r->task == task && r->variant == variant && !isnan(r->m[m]) && !isnan(r->m[EVAL_M_DEPTH]);
}

/* Inserts a value into an ascending list[*n] unless it is there. */
static void insert(double *list, int32_t *n, double value)
{
    int32_t i = 0;
    while (i < *n && list[i] < value)
        i++;
    if (i < *n && list[i] == value)
        return;
    memmove(list + i + 1, list + i, (size_t)((*n)++ - i) * sizeof *list);
    list[i] = value;
}

static size_t cell_of(const struct eval_map *h, const struct eval_result *r)
{
    size_t i = 0, k = 0;
    while (h->depth[i] != depth_of(r))
        i++;
    while (h->length[k] != r->n_target)
        k++;
    return i * (size_t)h->n_lengths + k;
}

/* Sums up the cells, then divides. */
static void fill(struct eval_map *h, const struct eval_run *run, int32_t task, int32_t variant,
                 enum eval_measure m)
{
    struct eval_mean open = {0}, of_cells = {0};
    double all = 0.0;
    h->binary = true;
    for (size_t i = 0; i < run->n; i++) {
        const struct eval_result *r = &run->results[i];
        if (!counts(r, task, variant, m))
            continue;
        const size_t cell = cell_of(h, r);
        h->value[cell] += 100.0 * r->m[m];
        h->n[cell]++;
        h->n_all++;
        h->binary = h->binary && (r->m[m] == 0.0 || r->m[m] == 1.0);
        all += r->m[m];
        if (r->flags & EVAL_R_PROTECTED)
            h->n_protected++;
        else
            eval_mean_add(&open, 100.0 * r->m[m]);
    }
    for (int32_t i = 0; i < h->n_depths * h->n_lengths; i++) {
        h->value[i] = h->n[i] > 0 ? h->value[i] / h->n[i] : NAN;
        eval_mean_add(&of_cells, h->value[i]);
    }
    h->has_protected = h->n_protected > 0;
    const struct eval_interval share = eval_wilson((int64_t)(all + 0.5), h->n_all);
    h->wilson = (struct eval_interval){100.0 * share.lo, 100.0 * share.hi};
    h->mean = eval_mean_value(&of_cells);
    h->unprotected = eval_mean_value(&open);
}

bool eval_map_make(struct eval_map *h, const struct eval_run *run, int32_t task, int32_t variant,
                   enum eval_measure m)
{
    size_t n = 0;
    *h = (struct eval_map){.mean = NAN, .unprotected = NAN};
    for (size_t i = 0; i < run->n; i++)
        n += counts(&run->results[i], task, variant, m);
    h->depth = malloc((n + 1) * sizeof *h->depth);
    h->length = malloc((n + 1) * sizeof *h->length);
    for (size_t i = 0; h->depth && h->length && i < run->n; i++)
        if (counts(&run->results[i], task, variant, m)) {
            insert(h->depth, &h->n_depths, depth_of(&run->results[i]));
            insert(h->length, &h->n_lengths, run->results[i].n_target);
        }
    h->value = calloc((size_t)h->n_depths * (size_t)h->n_lengths + 1, sizeof *h->value);
    h->n = calloc((size_t)h->n_depths * (size_t)h->n_lengths + 1, sizeof *h->n);
    if (!h->depth || !h->length || !h->value || !h->n)
        return false;
    fill(h, run, task, variant, m);
    return true;
}

void eval_map_clear(struct eval_map *h)
{
    free(h->depth);
    free(h->length);
    free(h->value);
    free(h->n);
    *h = (struct eval_map){0};
}

/* ---- The maps of a run ---- */

/* Adds the maps of one row of a block. */
static bool add_maps(struct eval_maps *out, const struct eval_tables *t, int32_t block, int32_t task,
                     int32_t row)
{
    for (int k = 0; k < EVAL_N_MAP_SCORES; k++) {
        struct eval_map h;
        const bool good =
            eval_map_make(&h, t->run, task, t->blocks[block].rows[row].variant, eval_map_scores[k].measure) &&
            eval_grow(&out->map, (size_t)out->n, sizeof *out->map);
        if (!good || h.n_depths == 0) {
            eval_map_clear(&h);
            if (!good)
                return false;
            continue;
        }
        h.block = block;
        h.task = task;
        h.row = row;
        h.score = &eval_map_scores[k];
        out->map[out->n++] = h;
    }
    return true;
}

bool eval_maps_make(struct eval_maps *out, const struct eval_tables *t)
{
    *out = (struct eval_maps){0};
    for (int32_t b = 0; b < t->n; b++)
        for (int32_t task = 0; t->blocks[b].n_target == EVAL_ALL_LENGTHS && task < t->run->n_tasks; task++)
            for (int32_t i = 0; eval_task_name_find(t->run->tasks[task])->on_grid && i < t->blocks[b].n_rows;
                 i++)
                if (!add_maps(out, t, b, task, i))
                    return false;
    return true;
}

void eval_maps_clear(struct eval_maps *m)
{
    for (int32_t i = 0; i < m->n; i++)
        eval_map_clear(&m->map[i]);
    free(m->map);
    *m = (struct eval_maps){0};
}

const struct eval_map *eval_maps_of(int32_t *n, const struct eval_maps *m, int32_t block, int32_t task)
{
    int32_t begin = 0, end;
    while (begin < m->n && (m->map[begin].block != block || m->map[begin].task != task))
        begin++;
    for (end = begin; end < m->n && m->map[end].block == block && m->map[end].task == task;)
        end++;
    *n = end - begin;
    return *n > 0 ? &m->map[begin] : NULL;
}

/* ---- Questions on one context ---- */

int32_t eval_turn_means(double mean[EVAL_MAX_TURNS], const struct eval_run *run, const struct eval_block *b,
                        int32_t task, int32_t variant)
{
    struct eval_mean of[EVAL_MAX_TURNS] = {{0}};
    int32_t n_turns = 0;
    for (int32_t k = 0; k < b->n_strata; k++)
        for (size_t i = b->strata[k].begin; b->strata[k].task == task && i < b->strata[k].end; i++) {
            const struct eval_result *r = &run->results[i];
            if (isnan(r->m[EVAL_M_SCORE]))
                continue;
            n_turns = r->turn >= n_turns ? r->turn + 1 : n_turns;
            if (r->turn < EVAL_MAX_TURNS && r->variant == variant)
                eval_mean_add(&of[r->turn], 100.0 * r->m[EVAL_M_SCORE]);
        }
    for (int32_t i = 0; i < EVAL_MAX_TURNS; i++)
        mean[i] = eval_mean_value(&of[i]);
    return n_turns;
}

int32_t eval_turns_shown(int32_t n_turns)
{
    return n_turns < EVAL_MAX_TURNS ? n_turns : EVAL_MAX_TURNS;
}
