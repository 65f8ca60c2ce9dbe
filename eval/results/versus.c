/* SPDX-License-Identifier: MIT */
/* Policies against each other: two that are named, and the best at each size against the others. */
#include "eval/results/versus.h"

#include "app/console.h"
#include "app/values.h"
#include "base/strings.h"
#include "eval/base/grow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Names ---- */

int eval_versus_names(char *names[2], const char *list)
{
    const size_t len = app_recipe_length(list);
    const char *second = list[len] ? list + len + 1 : list + len;
    names[0] = names[1] = NULL;
    if (len == 0 || !*second || second[app_recipe_length(second)])
        return app_fail(APP_BAD_INPUT, "--compare: '%.200s' does not name two policies; write --compare A,B",
                        list);
    names[0] = strndup(list, len);
    names[1] = strdup(second);
    return names[0] && names[1] ? APP_OK : app_fail(APP_FAILED, "out of memory");
}

static int unknown_policy(const struct eval_run *run, const char *name)
{
    const char **names = malloc(((size_t)run->n_variants + 1) * sizeof *names);
    if (!names)
        return eval_no_memory("the names of policies");
    for (int32_t i = 0; i < run->n_variants; i++)
        names[i] = run->variants[i].policy;
    names[run->n_variants] = NULL;
    const char *near = wnw__nearest(name, names);
    const int rc =
        app_fail(APP_BAD_INPUT, "--compare: '%s' has no results of the policy '%.200s'%s%s%s",
                 run->folders[0], name, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    free(names);
    return rc;
}

/* ---- Pairs ---- */

/* The full cache, to which no rule of eviction applies and no heads are masked. */
static bool is_plain_full(const struct eval_variant *v)
{
    return v->full && !v->more[0];
}

static bool same_but_policy(const struct eval_variant *a, const struct eval_variant *b)
{
    return strcmp(a->mode, b->mode) == 0 && (strcmp(a->size, b->size) == 0 || a->full || b->full) &&
           strcmp(a->kv_type, b->kv_type) == 0 &&
           (strcmp(a->more, b->more) == 0 || is_plain_full(a) || is_plain_full(b));
}

struct eval_compared eval_versus_compared(const struct eval_versus *v, const struct eval_run *run)
{
    struct eval_compared c = eval_group_compared(run, v->block, &v->block->groups[0], v->a, v->b);
    c.m = v->of;
    c.group = v->of == EVAL_M_SCORE ? c.group : NULL;
    return c;
}

bool eval_versus_measure(struct eval_versus *v, const struct eval_tables *t)
{
    const struct eval_run *run = t->run;
    const struct eval_block *b = v->block;
    struct eval_gather g;
    char id[256];
    snprintf(id, sizeof id, "%.100s-%.100s", run->variants[v->a].id, run->variants[v->b].id);
    const struct eval_compared c = eval_versus_compared(v, run);
    const bool good =
        c.group ? eval_gather_group(&g, &v->delta, b, &c, id)
                : eval_gather(&g, &c) && eval_gather_interval(&v->delta, &g, run, "kl", b->n_target, id);
    v->n = g.n;
    v->mean_a = g.n_strata > 0 ? g.sum_a / (double)g.n_strata : NAN;
    v->mean_b = g.n_strata > 0 ? g.sum_b / (double)g.n_strata : NAN;
    eval_gather_clear(&g);
    return good;
}

static bool add_pair(struct eval_versus **out, int32_t *n, const struct eval_tables *t,
                     const struct eval_block *block, int32_t a, int32_t b)
{
    if (!eval_grow(out, (size_t)*n, sizeof **out))
        return false;
    (*out)[*n] = (struct eval_versus){.block = block, .a = a, .b = b};
    return eval_versus_measure(&(*out)[(*n)++], t);
}

static bool compare_in_block(struct eval_versus **out, int32_t *n, const struct eval_tables *t,
                             const struct eval_block *block, char *const canonical[2])
{
    for (int32_t i = 0; i < block->n_rows; i++)
        for (int32_t k = 0; k < block->n_rows; k++) {
            const int32_t a = block->rows[i].variant, b = block->rows[k].variant;
            const struct eval_variant *x = &t->run->variants[a], *y = &t->run->variants[b];
            if (a == b || strcmp(x->canonical, canonical[0]) != 0 ||
                strcmp(y->canonical, canonical[1]) != 0 || !same_but_policy(x, y))
                continue;
            if (!add_pair(out, n, t, block, a, b))
                return false;
        }
    return true;
}

int eval_versus_check(const struct eval_run *run, char *const names[2])
{
    int rc = APP_OK;
    for (int k = 0; rc == APP_OK && k < 2; k++) {
        char *canonical = eval_recipe_canonical(names[k], NULL);
        bool any = false;
        for (int32_t i = 0; canonical && i < run->n_variants; i++)
            any = any || strcmp(run->variants[i].canonical, canonical) == 0;
        if (!any)
            rc = canonical ? unknown_policy(run, names[k]) : eval_no_memory("the comparison");
        free(canonical);
    }
    return rc;
}

int eval_versus_make(struct eval_versus **out, int32_t *n, const struct eval_tables *t, char *const names[2])
{
    char *const canonical[2] = {eval_recipe_canonical(names[0], NULL), eval_recipe_canonical(names[1], NULL)};
    bool good = canonical[0] && canonical[1];
    for (int32_t i = 0; good && i < t->n; i++)
        if (!eval_block_is_extra(&t->blocks[i]))
            good = compare_in_block(out, n, t, &t->blocks[i], canonical);
    free(canonical[0]);
    free(canonical[1]);
    return good ? APP_OK : eval_no_memory("the comparison");
}

/* ---- The best at each size ---- */

struct ranked {
    const struct eval_row *row;
    int32_t order;
};

static int compare(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->row->macro.mean != y->row->macro.mean)
        return x->row->macro.mean > y->row->macro.mean ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* Whether a row takes part, and is of the same size and type as another. */
static bool takes_part(const struct eval_run *run, const struct eval_row *row)
{
    return !run->variants[row->variant].full && !isnan(row->macro.mean);
}

static bool same_size(const struct eval_run *run, const struct eval_row *a, const struct eval_row *b)
{
    const struct eval_variant *x = &run->variants[a->variant], *y = &run->variants[b->variant];
    return takes_part(run, b) && strcmp(x->size, y->size) == 0 && strcmp(x->kv_type, y->kv_type) == 0;
}

/* The winner among the rows of the size of row i; ranking[] is room for them. */
static bool make_one(struct eval_winner *w, struct ranked *ranking, const struct eval_tables *t,
                     const struct eval_block *b, int32_t i)
{
    int32_t n = 0;
    bool good = true;
    for (int32_t k = i; k < b->n_rows; k++)
        if (same_size(t->run, &b->rows[i], &b->rows[k])) {
            ranking[n] = (struct ranked){&b->rows[k], k};
            n++;
        }
    qsort(ranking, (size_t)n, sizeof *ranking, compare);
    *w = (struct eval_winner){
        .best = ranking[0].row->variant, .other = calloc((size_t)n, sizeof *w->other), .n_others = n - 1};
    for (int32_t k = 1; w->other && good && k < n; k++) {
        w->other[k - 1] = (struct eval_versus){.block = b, .a = w->best, .b = ranking[k].row->variant};
        good = eval_versus_measure(&w->other[k - 1], t);
    }
    return good && w->other;
}

int eval_winners_make(struct eval_winner **out, int32_t *n, const struct eval_tables *t,
                      const struct eval_block *b)
{
    struct ranked *ranking = malloc(((size_t)b->n_rows + 1) * sizeof *ranking);
    *n = 0;
    *out = calloc((size_t)b->n_rows + 1, sizeof **out);
    bool good = ranking && *out;
    for (int32_t i = 0; good && i < b->n_rows; i++) {
        bool had = !takes_part(t->run, &b->rows[i]);
        for (int32_t k = 0; k < i && !had; k++)
            had = takes_part(t->run, &b->rows[k]) && same_size(t->run, &b->rows[k], &b->rows[i]);
        if (!had)
            good = make_one(&(*out)[(*n)++], ranking, t, b, i);
    }
    free(ranking);
    return good ? APP_OK : eval_no_memory("the comparison");
}

void eval_winners_free(struct eval_winner *winners, int32_t n)
{
    for (int32_t i = 0; winners && i < n; i++)
        free(winners[i].other);
    free(winners);
}
