/* SPDX-License-Identifier: MIT */
/* The order of tasks, methods and lines, which does not depend on the order in which lines were written. */
#include "eval/results/results.h"

#include "app/console.h"
#include "eval/base/task_names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tasks ---- */

static int compare_tasks(const void *a, const void *b)
{
    return eval_task_name_compare(*(char *const *)a, *(char *const *)b);
}

/* ---- Methods ---- */

/* The words after a size's "=", as a number; sizes without one are 0. */
static double size_number(const struct eval_variant *c)
{
    const char *equals = strchr(c->size, '=');
    return equals ? strtod(equals + 1, NULL) : 0.0;
}

static int compare_variants(const void *a, const void *b)
{
    const struct eval_variant *x = a, *y = b;
    const double of_x = size_number(x), of_y = size_number(y);
    const int kind = x->full || y->full ? 0 : (int)strcspn(x->size, "=") - (int)strcspn(y->size, "=");
    const int order[] = {strcmp(x->mode, y->mode),       (int)y->full - (int)x->full,
                         strcmp(x->policy, y->policy),   strcmp(x->more, y->more),
                         strcmp(x->kv_type, y->kv_type), kind,
                         (of_x > of_y) - (of_x < of_y),  strcmp(x->id, y->id)};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (order[i] != 0)
            return order[i];
    return 0;
}

/* Whether a value says that something is not done: null, false, 0, "", "end" (of the prompt, which is when everything
 * else is compressed). */
static bool is_plain(const json_t *value)
{
    const char *text = json_string_value(value);
    return json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0.0) ||
           (text && (!*text || strcmp(text, "end") == 0));
}

/* Adds what run.json says about a method next to the members of every line: "evict=chunk:512". Which calibration results it has is
 * left out: in one run they follow from its policy and size. */
static bool read_more(struct eval_variant *c, const json_t *info)
{
    static const char *const known = " id config_id policy recipe mode size kv_type full reference profile ";
    const json_t *list = json_object_get(info, "configs"), *id;
    struct app_text more = {0};
    bool good = app_text_add(&more, "", 0);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *o = json_array_get(list, i), *value;
        const char *key;
        id = json_object_get(o, "config_id") ? json_object_get(o, "config_id") : json_object_get(o, "id");
        if (!json_is_string(id) || strcmp(json_string_value(id), c->id) != 0)
            continue;
        json_object_foreach(o, key, value)
        {
            char word[128];
            snprintf(word, sizeof word, " %.100s ", key);
            if (strstr(known, word) || is_plain(value))
                continue;
            char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
            const size_t len = text ? strlen(text) : 0, quote = json_is_string(value) ? 1 : 0;
            good = good && text &&
                   app_text_put(&more, "%s%s=%.*s", more.len > 0 ? " " : "", key, (int)(len - 2 * quote),
                                text + quote);
            free(text);
        }
        break;
    }
    free(c->more);
    c->more = more.s;
    return good;
}

/* ---- Lines ---- */

static int compare_places(const struct eval_result *x, const struct eval_result *y)
{
    const int32_t of_x[] = {x->task, x->n_target, x->index, x->turn, x->variant};
    const int32_t of_y[] = {y->task, y->n_target, y->index, y->turn, y->variant};
    for (size_t i = 0; i < sizeof of_x / sizeof *of_x; i++)
        if (of_x[i] != of_y[i])
            return of_x[i] < of_y[i] ? -1 : 1;
    return 0;
}

static int compare_results(const void *a, const void *b)
{
    const struct eval_result *x = a, *y = b;
    const int order = compare_places(x, y);
    if (order != 0)
        return order;
    return x->folder != y->folder ? (x->folder > y->folder) - (x->folder < y->folder)
                                  : (x->line > y->line) - (x->line < y->line);
}

/* The depth that a sample on the grid was made for, 0 to 1, not the depth that its evidence really has; NaN if
 * run.json does not have it. */
static double grid_depth(const struct eval_run *run, const struct eval_result *r)
{
    const json_t *depths = json_object_get(run->info, "depths"), *tasks = json_object_get(run->info, "tasks");
    const size_t n_depths = json_array_size(depths);
    if (!eval_task_name_find(run->tasks[r->task])->on_grid || n_depths == 0)
        return NAN;
    for (size_t i = 0; i < json_array_size(tasks); i++) {
        const json_t *task = json_array_get(tasks, i);
        const char *name = json_string_value(json_object_get(task, "task"));
        const json_int_t n_trials = json_integer_value(json_object_get(task, "n_trials"));
        if (!name || strcmp(name, run->tasks[r->task]) != 0 || n_trials < 1)
            continue;
        const size_t at = (size_t)(r->index / n_trials) % n_depths;
        const double depth = json_number_value(json_array_get(depths, at)) / 100.0;
        return depth >= 0 && depth <= 1 ? depth : NAN;
    }
    return NAN;
}

/* Keeps the first of lines with the same key; they must have the same score. */
static int drop_repeated(struct eval_run *run, struct eval_result *list, size_t *n)
{
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++) {
        const struct eval_result *last = kept > 0 ? &list[kept - 1] : NULL;
        if (!last || compare_places(last, &list[i]) != 0) {
            list[kept++] = list[i];
            continue;
        }
        if (isnan(last->m[EVAL_M_SCORE]) != isnan(list[i].m[EVAL_M_SCORE]) ||
            last->m[EVAL_M_SCORE] < list[i].m[EVAL_M_SCORE] ||
            last->m[EVAL_M_SCORE] > list[i].m[EVAL_M_SCORE])
            return app_fail(
                APP_BAD_INPUT,
                "'%s/results.jsonl' line %lld and '%s/results.jsonl' line %lld give the same answer "
                "different scores (%.6g and %.6g); the folders are not of one run, or one was changed",
                run->folders[last->folder], (long long)last->line, run->folders[list[i].folder],
                (long long)list[i].line, last->m[EVAL_M_SCORE], list[i].m[EVAL_M_SCORE]);
        run->n_twice++;
    }
    *n = kept;
    return APP_OK;
}

static void renumber(struct eval_result *list, size_t n, const int32_t *task, const int32_t *variant)
{
    for (size_t i = 0; i < n; i++) {
        list[i].task = task[list[i].task];
        list[i].variant = variant[list[i].variant];
    }
}

static int sort_lines(struct eval_run *run, struct eval_result *list, size_t *n)
{
    if (*n > 1)
        qsort(list, *n, sizeof *list, compare_results);
    const int rc = drop_repeated(run, list, n);
    for (size_t i = 0; i < *n; i++) {
        const double depth = grid_depth(run, &list[i]);
        list[i].m[EVAL_M_DEPTH] = isnan(depth) ? list[i].m[EVAL_M_DEPTH] : depth;
        /* A record does not repeat the task's own metric among the further ones. */
        if (strcmp(eval_task_name_find(run->tasks[list[i].task])->metric, eval_field_name(EVAL_M_CONTAINS)) ==
            0)
            list[i].m[EVAL_M_CONTAINS] = list[i].m[EVAL_M_SCORE];
    }
    for (size_t i = 0; i < *n; i++)
        run->n_bad += (list[i].flags & EVAL_R_BAD) != 0;
    return rc;
}

/* Sorts a list whose elements begin with a pointer that no other one has. Returns the new index of each element, which the
 * caller frees; NULL: out of memory. */
static int32_t *sort_list(void *list, int32_t n, size_t size, int (*order)(const void *, const void *))
{
    char **before = malloc(((size_t)n + 1) * sizeof *before);
    int32_t *rank = before ? malloc(((size_t)n + 1) * sizeof *rank) : NULL;
    for (int32_t i = 0; rank && i < n; i++)
        memcpy(&before[i], (char *)list + (size_t)i * size, sizeof *before);
    if (rank && n > 1)
        qsort(list, (size_t)n, size, order);
    for (int32_t i = 0; rank && i < n; i++)
        for (int32_t k = 0; k < n; k++)
            if (memcmp(&before[i], (char *)list + (size_t)k * size, sizeof *before) == 0)
                rank[i] = k;
    free(before);
    return rank;
}

int eval_results_sort(struct eval_run *run)
{
    bool good = true;
    for (int32_t i = 0; i < run->n_variants; i++)
        good = read_more(&run->variants[i], run->info) && good;
    int32_t *task = sort_list(run->tasks, run->n_tasks, sizeof *run->tasks, compare_tasks);
    int32_t *variant = sort_list(run->variants, run->n_variants, sizeof *run->variants, compare_variants);
    int rc =
        good && task && variant ? APP_OK : app_fail(APP_FAILED, "out of memory for '%s'", run->folders[0]);
    if (rc == APP_OK) {
        renumber(run->results, run->n, task, variant);
        renumber(run->probes, run->n_probes, task, variant);
        rc = sort_lines(run, run->results, &run->n);
    }
    if (rc == APP_OK)
        rc = sort_lines(run, run->probes, &run->n_probes);
    free(task);
    free(variant);
    return rc;
}
