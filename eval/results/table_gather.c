/* SPDX-License-Identifier: MIT */
/* Differences of two methods on the same samples, in clusters. */
#include "eval/results/table_impl.h"

#include "eval/base/task_names.h"

#include <math.h>
#include <stdlib.h>

struct pair {
    double cluster, a, b;
    size_t order;
};

static int compare(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->cluster != y->cluster)
        return x->cluster < y->cluster ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

/* What moves together with a line when samples are drawn again: a grid's cell, else the context of its turns. */
static double cluster_of(const struct eval_run *run, const struct eval_result *r)
{
    const bool cell = eval_task_name_find(run->tasks[r->task])->on_grid && !isnan(r->m[EVAL_M_DEPTH]);
    return cell ? round(1000.0 * r->m[EVAL_M_DEPTH]) : (double)r->index;
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

static void add_stratum(struct eval_gather *g, const struct pair *pairs, size_t n)
{
    double sum_a = 0.0, sum_b = 0.0;
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
                              .stratum = malloc(((size_t)n_strata + 1) * sizeof *g->stratum)};
    struct pair *pairs = malloc((most + 1) * sizeof *pairs);
    const bool good = g->d && g->cluster && g->stratum && pairs;
    for (int32_t i = 0; good && i < n_strata; i++) {
        const size_t n = eval_group_has(c->group, &strata[i]) ? find_pairs(pairs, c, &strata[i]) : 0;
        if (n > 0)
            add_stratum(g, pairs, n);
    }
    if (good) {
        g->stratum[g->n_strata] = g->n_clusters;
        g->cluster[g->n_clusters] = g->n;
    }
    free(pairs);
    return good;
}

void eval_gather_clear(struct eval_gather *g)
{
    free(g->d);
    free(g->cluster);
    free(g->stratum);
    *g = (struct eval_gather){0};
}

bool eval_gather_interval(struct eval_paired *out, const struct eval_gather *g, const struct eval_run *run,
                          const char *name, int64_t n, const char *id)
{
    char key[4096];
    eval_boot_key(key, sizeof key, name, n, id, run->seed);
    struct eval_random r = eval_random_key(key);
    const struct eval_pairs p = {.d = g->d,
                                 .n = g->n,
                                 .cluster = g->cluster,
                                 .n_clusters = g->n_clusters,
                                 .stratum = g->stratum,
                                 .n_strata = g->n_strata};
    return eval_bootstrap(out, &p, &r);
}

bool eval_gather_group(struct eval_gather *g, struct eval_paired *delta, const struct eval_run *run,
                       const struct eval_block *b, const struct eval_group *group, int32_t variant,
                       int32_t other, const char *id)
{
    const struct eval_compared c = {run, b->strata, b->n_strata, group, variant, other, EVAL_M_SCORE};
    return eval_gather(g, &c) && eval_gather_interval(delta, g, run, group->name,
                                                      b->n_target == EVAL_ALL_LENGTHS ? 0 : b->n_target, id);
}
