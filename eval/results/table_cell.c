/* SPDX-License-Identifier: MIT */
/* Cells of a table. A cell is a method on the samples of one task at one length. Others are means of such cells: over all tasks, over
 * those of a domain, and over the samples of a bucket. */
#include "eval/results/table_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sets Wilson's intervals from the numbers of lines. */
static void set_wilson(struct eval_cell *c)
{
    const struct eval_interval w = eval_wilson(c->n_right, (int64_t)c->n);
    c->wilson = (struct eval_interval){100.0 * w.lo, 100.0 * w.hi};
    c->first = eval_wilson(c->n_first_same, c->n_first);
}

/* Means over the lines of a variant that count. */
static void add_means(struct eval_cell *c, const struct eval_compared *on)
{
    struct eval_mean of[EVAL_N_MEASURES] = {{0}};
    struct eval_pair p = {.next = on->strata->begin};
    c->binary = true;
    while (eval_pair_next(&p, on, on->strata)) {
        const double score = p.a->m[EVAL_M_SCORE];
        c->n++;
        c->binary = c->binary && (score == 0.0 || score == 1.0);
        for (int m = 0; m < EVAL_N_MEASURES; m++)
            eval_mean_add(&of[m], p.a->m[m]);
    }
    for (int m = 0; m < EVAL_N_MEASURES; m++)
        c->m[m] = eval_mean_value(&of[m]);
    c->mean = 100.0 * c->m[EVAL_M_SCORE];
    c->n_right = (int64_t)(of[EVAL_M_SCORE].sum + 0.5);
    c->n_first = (int64_t)of[EVAL_M_FGT].n;
    c->n_first_same = (int64_t)(of[EVAL_M_FGT].sum + 0.5);
    set_wilson(c);
}

static void count_discordant(struct eval_cell *c, const struct eval_gather *g)
{
    for (size_t i = 0; i < g->n; i++) {
        c->discordant.lost += g->d[i] < 0;
        c->discordant.gained += g->d[i] > 0;
    }
    c->discordant.p = eval_sign_test(c->discordant.lost, c->discordant.gained);
}

/* A cell without samples. */
static struct eval_cell empty_cell(void)
{
    struct eval_cell c = {.mean = NAN,
                          .full = NAN,
                          .delta = {.delta = NAN,
                                    .over = {NAN, NAN},
                                    .spread = EVAL_SPREAD_FEW,
                                    .tasks = {NAN, NAN},
                                    .icc = NAN},
                          .wilson = {NAN, NAN},
                          .first = {NAN, NAN},
                          .kl = {NAN, NAN},
                          .discordant = {.p = NAN}};
    for (int m = 0; m < EVAL_N_MEASURES; m++)
        c.m[m] = NAN;
    return c;
}

/* What a variant's divergence from the full cache is compared with: 0. */
static struct eval_compared of_divergence(struct eval_compared c)
{
    c.b = -1;
    c.m = EVAL_M_KL;
    return c;
}

static void kl_id(char out[256], const struct eval_compared *c)
{
    snprintf(out, 256, "%.200s|kl", c->run->variants[c->a].id);
}

/* The interval of the mean divergence from the full cache. */
static bool add_kl(struct eval_cell *c, const struct eval_compared *on)
{
    const struct eval_compared kl = of_divergence(*on);
    struct eval_gather g;
    struct eval_paired p = {.over = {NAN, NAN}};
    char id[256];
    kl_id(id, on);
    const bool good = eval_gather(&g, &kl) &&
                      (g.n == 0 || eval_gather_interval(&p, &g, on->run, on->run->tasks[on->strata->task],
                                                        on->strata->n_target, id));
    c->kl = p.over;
    eval_gather_clear(&g);
    return good;
}

bool eval_cell_make(struct eval_cell *c, const struct eval_compared *on, bool interval)
{
    const struct eval_run *run = on->run;
    struct eval_gather g;
    *c = empty_cell();
    add_means(c, on);
    if (c->n == 0)
        return true;
    bool good = eval_gather(&g, on);
    c->n_clusters = g.n_clusters;
    c->full = on->b >= 0 && g.n > 0 ? g.sum_b : NAN;
    if (good && on->b >= 0 && on->a != on->b) {
        count_discordant(c, &g);
        if (interval)
            good = eval_gather_interval(&c->delta, &g, run, run->tasks[on->strata->task],
                                        on->strata->n_target, run->variants[on->a].id);
    }
    eval_gather_clear(&g);
    return good && (!interval || on->a == on->b || add_kl(c, on));
}

double eval_cell_retention(const struct eval_cell *c)
{
    return eval_retention(c->full, c->mean);
}

/* ---- Groups ---- */

/* Both kinds of answers are there in every table, with nothing where no task has them. */
static void add_answers(struct eval_block *b)
{
    b->groups[b->n_groups++] = (struct eval_group){.name = "short answers", .answer = EVAL_ANSWER_SHORT};
    b->groups[b->n_groups++] = (struct eval_group){.name = "long copies", .answer = EVAL_ANSWER_COPY};
}

static void add_domains(struct eval_block *b)
{
    const int32_t first = b->n_groups;
    for (int32_t i = 0; i < b->n_strata; i++) {
        const char *domain = b->strata[i].informative ? b->strata[i].domain : NULL;
        int32_t k = first;
        while (k < b->n_groups && domain && strcmp(b->groups[k].domain, domain) != 0)
            k++;
        if (domain && k == b->n_groups && k < first + EVAL_MAX_DOMAINS)
            b->groups[b->n_groups++] = (struct eval_group){.name = domain, .domain = domain};
    }
    b->n_domains = b->n_groups - first > 1 ? b->n_groups - first : 0;
    b->n_groups = first + b->n_domains;
}

static void add_buckets(struct eval_block *b, const struct eval_run *run)
{
    const int32_t first = b->n_groups;
    bool has[EVAL_N_BUCKETS + 1] = {false};
    for (int32_t i = 0; i < b->n_strata; i++)
        for (size_t k = b->strata[i].begin; b->strata[i].informative && k < b->strata[i].end; k++)
            has[run->results[k].bucket] = true;
    for (int32_t i = 1; i <= EVAL_N_BUCKETS; i++)
        if (has[i])
            b->groups[b->n_groups++] = (struct eval_group){.name = eval_bucket_name(i), .bucket = i};
    b->n_buckets = b->n_groups - first > 1 ? b->n_groups - first : 0;
    b->n_groups = first + b->n_buckets;
}

void eval_groups_find(struct eval_block *b, const struct eval_run *run)
{
    b->groups[0] = (struct eval_group){.name = "macro"};
    b->n_groups = 1;
    add_answers(b);
    add_domains(b);
    add_buckets(b, run);
}

/* ---- Means ---- */

/* Sums of cells; each cell is the mean of a stratum. */
struct sums {
    size_t n_cells;
    double mean, full;
    struct eval_mean of[EVAL_N_MEASURES];
    int64_t n_first; /* lines of the last cell that say how the first token compares */
    bool uneven;     /* cells have different numbers of such lines */
};

/* Adds the cell of a stratum: its means to the sums, its lines to the numbers of lines. */
static void add_cell(struct sums *sums, struct eval_cell *c, const struct eval_cell *of)
{
    sums->uneven = sums->uneven || (sums->n_cells > 0 && of->n_first != sums->n_first);
    sums->n_first = of->n_first;
    sums->n_cells++;
    sums->mean += of->mean;
    sums->full += of->full;
    for (int m = 0; m < EVAL_N_MEASURES; m++)
        eval_mean_add(&sums->of[m], of->m[m]);
    c->n += of->n;
    c->n_clusters += of->n_clusters;
    c->binary = c->binary && of->binary;
    c->n_right += of->n_right;
    c->discordant.lost += of->discordant.lost;
    c->discordant.gained += of->discordant.gained;
    c->n_first += of->n_first;
    c->n_first_same += of->n_first_same;
}

/* Adds the cells of a group's strata. Those of a bucket are made for it, because a row has none. */
static bool add_cells(struct sums *sums, struct eval_cell *c, const struct eval_row *row,
                      const struct eval_block *b, const struct eval_run *run, const struct eval_group *g)
{
    for (int32_t i = 0; i < b->n_strata; i++) {
        const struct eval_compared on = {run, &b->strata[i], 1, g, row->variant, b->baseline, EVAL_M_SCORE};
        struct eval_cell of = row->cell[i];
        if (!eval_group_has(g, &b->strata[i]))
            continue;
        if (g->bucket != 0 && !eval_cell_make(&of, &on, false))
            return false;
        if (of.n > 0)
            add_cell(sums, c, &of);
    }
    return true;
}

/* Sets Wilson's intervals. They pool all lines, so they are set only if the pooled mean equals the mean of the strata's means.
 * Otherwise the interval would belong to another number than the one printed. */
static void set_shares(struct eval_cell *c, const struct sums *sums)
{
    set_wilson(c);
    c->binary = c->binary && fabs(100.0 * (double)c->n_right / (double)c->n - c->mean) < 1e-6;
    if (sums->uneven)
        c->first = (struct eval_interval){NAN, NAN};
}

/* The mean of the strata's means. */
static bool make_mean(struct eval_cell *c, const struct eval_row *row, const struct eval_block *b,
                      const struct eval_run *run, const struct eval_group *g)
{
    struct sums sums = {0};
    *c = empty_cell();
    c->binary = true;
    if (!add_cells(&sums, c, row, b, run, g))
        return false;
    c->binary = c->binary && sums.n_cells > 0;
    if (sums.n_cells == 0)
        return true;
    c->mean = sums.mean / (double)sums.n_cells;
    c->full = sums.full / (double)sums.n_cells;
    for (int m = 0; m < EVAL_N_MEASURES; m++)
        c->m[m] = eval_mean_value(&sums.of[m]);
    set_shares(c, &sums);
    c->discordant.p = eval_sign_test(c->discordant.lost, c->discordant.gained);
    if (b->baseline < 0 || row->variant == b->baseline)
        return true;
    const struct eval_compared score = eval_group_compared(run, b, g, row->variant, b->baseline),
                               kl = of_divergence(score);
    struct eval_gather gather;
    struct eval_paired divergence = {.over = {NAN, NAN}};
    char id[256];
    bool good = eval_gather_group(&gather, &c->delta, b, &score, run->variants[row->variant].id);
    eval_gather_clear(&gather);
    kl_id(id, &score);
    if (good && !isnan(c->m[EVAL_M_KL])) {
        good = eval_gather_group(&gather, &divergence, b, &kl, id);
        eval_gather_clear(&gather);
    }
    c->kl = divergence.over;
    return good;
}

/* Whether a group has all that the first has. */
static bool has_all(const struct eval_block *b, const struct eval_group *g)
{
    bool all = g->bucket == 0;
    for (int32_t i = 0; all && i < b->n_strata; i++)
        all = eval_group_has(g, &b->strata[i]) == eval_group_has(&b->groups[0], &b->strata[i]);
    return all;
}

bool eval_means_make(struct eval_row *row, const struct eval_block *b, const struct eval_run *run)
{
    bool good = make_mean(&row->group[0], row, b, run, &b->groups[0]);
    for (int32_t i = 1; good && i < b->n_groups; i++)
        if (has_all(b, &b->groups[i]))
            row->group[i] = row->group[0];
        else
            good = make_mean(&row->group[i], row, b, run, &b->groups[i]);
    return good;
}
