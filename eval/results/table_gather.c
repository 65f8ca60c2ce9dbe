/* SPDX-License-Identifier: MIT */
/* Differences of two methods on the same samples, in clusters. */
#include "eval/results/table_impl.h"

#include "eval/base/task_names.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool eval_group_has(const struct eval_group *g, const struct eval_stratum *s)
{
    return !g || (s->informative && (!g->answer || s->answer == g->answer) &&
                  (!g->domain || (s->domain && strcmp(s->domain, g->domain) == 0)));
}

struct pair {
    uint64_t cluster;
    double a, b;
    size_t order;
};

static int compare(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->cluster != y->cluster)
        return x->cluster < y->cluster ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* What moves together with a line when samples are drawn again: the text that samples share, else the context of its turns. Lines of
 * older versions do not say which text theirs is; of these the trials of one cell of a grid move together. */
static uint64_t cluster_of(const struct eval_run *run, const struct eval_result *r)
{
    const bool cell = eval_task_name_find(run->tasks[r->task])->on_grid && !isnan(r->m[EVAL_M_DEPTH]);
    if (r->text != 0)
        return r->text;
    return (uint64_t)(cell ? llround(1000.0 * r->m[EVAL_M_DEPTH]) : r->index);
}

bool eval_pair_next(struct eval_pair *p, const struct eval_compared *c, const struct eval_stratum *s)
{
    const int32_t bucket = c->group ? c->group->bucket : 0;
    bool found = false;
    while (!found && p->next < s->end) {
        const struct eval_result *first = &c->run->results[p->next];
        p->a = p->b = NULL;
        for (; p->next < s->end; p->next++) {
            const struct eval_result *r = &c->run->results[p->next];
            if (r->index != first->index || r->turn != first->turn)
                break;
            p->a = r->variant == c->a ? r : p->a;
            p->b = r->variant == c->b ? r : p->b;
        }
        found = p->a && (c->b < 0 || p->b) && (bucket == 0 || p->a->bucket == bucket);
    }
    return found;
}

/* Fills in pairs of a measure, of samples for which both variants have it; returns how many. Without b the other of a pair
 * is 0. */
static size_t find_pairs(struct pair *pairs, const struct eval_compared *c, const struct eval_stratum *s)
{
    const double points = c->m == EVAL_M_SCORE ? 100.0 : 1.0;
    struct eval_pair p = {.next = s->begin};
    size_t n = 0;
    while (eval_pair_next(&p, c, s)) {
        const double x = points * p.a->m[c->m], y = p.b ? points * p.b->m[c->m] : 0.0;
        if (isnan(x + y))
            continue;
        pairs[n] = (struct pair){cluster_of(c->run, p.a), x, y, n};
        n++;
    }
    if (n > 1)
        qsort(pairs, n, sizeof *pairs, compare);
    return n;
}

static void add_stratum(struct eval_gather *g, int32_t task, const struct pair *pairs, size_t n)
{
    double sum_a = 0.0, sum_b = 0.0;
    if (g->n_strata == 0 || task != g->last)
        g->task[g->n_tasks++] = g->n_strata;
    g->last = task;
    g->stratum[g->n_strata++] = g->n_clusters;
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || pairs[i].cluster != pairs[i - 1].cluster)
            g->cluster[g->n_clusters++] = g->n;
        g->d[g->n++] = pairs[i].a - pairs[i].b;
        sum_a += pairs[i].a;
        sum_b += pairs[i].b;
    }
    g->sum_a += sum_a / (double)n;
    g->sum_b += sum_b / (double)n;
}

/* What the differences can be at most, of measures that have bounds. */
static void set_bounds(struct eval_gather *g, const struct eval_compared *c)
{
    const double points = c->m == EVAL_M_SCORE ? 100.0 : 1.0;
    double least, most;
    eval_measure_allows(c->m, 0.0, &least, &most);
    if (least < -1 || most > 1)
        return;
    g->least = points * (c->b < 0 ? least : least - most);
    g->most = points * (c->b < 0 ? most : most - least);
}

bool eval_gather(struct eval_gather *g, const struct eval_compared *c)
{
    const struct eval_stratum *strata = c->strata;
    const int32_t n_strata = c->n_strata;
    size_t most = 0, sum = 0;
    for (int32_t i = 0; i < n_strata; i++) {
        const size_t n = strata[i].end - strata[i].begin;
        most = n > most ? n : most;
        sum += n;
    }
    *g = (struct eval_gather){.d = malloc((sum + 1) * sizeof *g->d),
                              .cluster = malloc((sum + 1) * sizeof *g->cluster),
                              .stratum = malloc(((size_t)n_strata + 1) * sizeof *g->stratum),
                              .task = malloc(((size_t)n_strata + 1) * sizeof *g->task)};
    set_bounds(g, c);
    struct pair *pairs = malloc((most + 1) * sizeof *pairs);
    const bool good = g->d && g->cluster && g->stratum && g->task && pairs;
    for (int32_t i = 0; good && i < n_strata; i++) {
        const size_t n = eval_group_has(c->group, &strata[i]) ? find_pairs(pairs, c, &strata[i]) : 0;
        if (n > 0)
            add_stratum(g, strata[i].task, pairs, n);
    }
    if (good) {
        g->stratum[g->n_strata] = g->n_clusters;
        g->cluster[g->n_clusters] = g->n;
        g->task[g->n_tasks] = g->n_strata;
    }
    free(pairs);
    return good;
}

void eval_gather_clear(struct eval_gather *g)
{
    free(g->d);
    free(g->cluster);
    free(g->stratum);
    free(g->task);
    *g = (struct eval_gather){0};
}

struct eval_pairs eval_gather_pairs(const struct eval_gather *g)
{
    return (struct eval_pairs){.d = g->d,
                               .n = g->n,
                               .cluster = g->cluster,
                               .n_clusters = g->n_clusters,
                               .stratum = g->stratum,
                               .n_strata = g->n_strata,
                               .task = g->task,
                               .n_tasks = g->n_tasks,
                               .least = g->least,
                               .most = g->most};
}

bool eval_gather_interval(struct eval_paired *out, const struct eval_gather *g, const struct eval_run *run,
                          const char *name, int64_t n, const char *id)
{
    char key[4096];
    eval_boot_key(key, sizeof key, name, n, id, run->seed);
    struct eval_random r = eval_random_key(key);
    const struct eval_pairs p = eval_gather_pairs(g);
    return eval_bootstrap(out, &p, &r);
}

struct eval_compared eval_group_compared(const struct eval_run *run, const struct eval_block *b,
                                         const struct eval_group *group, int32_t variant, int32_t other)
{
    return (struct eval_compared){run, b->strata, b->n_strata, group, variant, other, EVAL_M_SCORE};
}

bool eval_gather_group(struct eval_gather *g, struct eval_paired *delta, const struct eval_block *b,
                       const struct eval_compared *c, const char *id)
{
    return eval_gather(g, c) &&
           eval_gather_interval(delta, g, c->run, c->group->name,
                                b->n_target == EVAL_ALL_LENGTHS || b->one_length ? 0 : b->n_target, id);
}
