/* SPDX-License-Identifier: MIT */
/* Cells of a table: a method on the samples of one task at one length, and the means of such cells over all tasks, over those
 * of a domain, and over the samples of a bucket. */
#include "eval/results/table_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whether the full cache answered the sample of line i as well. */
static bool has_partner(const struct eval_run *run, const struct eval_stratum *s, size_t i, int32_t baseline)
{
    const struct eval_result *r = &run->results[i];
    size_t k = i;
    while (k > s->begin && run->results[k - 1].index == r->index && run->results[k - 1].turn == r->turn)
        k--;
    for (; k < s->end && run->results[k].index == r->index && run->results[k].turn == r->turn; k++)
        if (run->results[k].variant == baseline)
            return true;
    return false;
}

/* Means over the lines of a variant that count. */
static void add_means(struct eval_cell *c, const struct eval_run *run, const struct eval_stratum *s,
                      int32_t variant, int32_t baseline)
{
    double sum[EVAL_N_MEASURES] = {0};
    size_t n[EVAL_N_MEASURES] = {0};
    c->binary = true;
    for (size_t i = s->begin; i < s->end; i++) {
        const struct eval_result *r = &run->results[i];
        if (r->variant != variant || !eval_stratum_has(s, r) ||
            (baseline >= 0 && !has_partner(run, s, i, baseline)))
            continue;
        c->n++;
        c->binary = c->binary && (r->m[EVAL_M_SCORE] == 0.0 || r->m[EVAL_M_SCORE] == 1.0);
        for (int m = 0; m < EVAL_N_MEASURES; m++) {
            sum[m] += isnan(r->m[m]) ? 0.0 : r->m[m];
            n[m] += isnan(r->m[m]) ? 0 : 1;
        }
    }
    for (int m = 0; m < EVAL_N_MEASURES; m++)
        c->m[m] = n[m] > 0 ? sum[m] / (double)n[m] : NAN;
    c->mean = 100.0 * c->m[EVAL_M_SCORE];
    c->n_right = (int64_t)(sum[EVAL_M_SCORE] + 0.5);
    c->n_first = (int64_t)n[EVAL_M_FGT];
    c->n_first_same = (int64_t)(sum[EVAL_M_FGT] + 0.5);
    eval_cell_set_shares(c);
}

void eval_cell_set_shares(struct eval_cell *c)
{
    const struct eval_interval w = eval_wilson(c->n_right, (int64_t)c->n);
    c->wilson = (struct eval_interval){100.0 * w.lo, 100.0 * w.hi};
    c->first = eval_wilson(c->n_first_same, c->n_first);
}

static void count_discordant(struct eval_cell *c, const struct eval_gather *g)
{
    for (size_t i = 0; i < g->n; i++) {
        c->discordant.lost += g->d[i] < 0;
        c->discordant.gained += g->d[i] > 0;
    }
    c->discordant.p = eval_sign_test(c->discordant.lost, c->discordant.gained);
}

struct eval_cell eval_cell_empty(void)
{
    struct eval_cell c = {.mean = NAN,
                          .full = NAN,
                          .delta = {.delta = NAN, .over = {NAN, NAN}, .spread = EVAL_SPREAD_FEW},
                          .wilson = {NAN, NAN},
                          .first = {NAN, NAN},
                          .discordant = {.p = NAN}};
    for (int m = 0; m < EVAL_N_MEASURES; m++)
        c.m[m] = NAN;
    return c;
}

bool eval_cell_make(struct eval_cell *c, const struct eval_run *run, const struct eval_stratum *s,
                    int32_t variant, int32_t baseline, bool interval)
{
    struct eval_gather g;
    *c = eval_cell_empty();
    add_means(c, run, s, variant, baseline);
    if (c->n == 0)
        return true;
    bool good = eval_gather(
        &g, &(struct eval_compared){.run = run, .strata = s, .n_strata = 1, .a = variant, .b = baseline});
    c->n_clusters = g.n_clusters;
    c->full = baseline >= 0 && g.n > 0 ? g.sum_b : NAN;
    if (good && baseline >= 0 && variant != baseline) {
        count_discordant(c, &g);
        if (interval)
            good = eval_gather_interval(&c->delta, &g, run, run->tasks[s->task], s->n_target,
                                        run->variants[variant].id);
    }
    eval_gather_clear(&g);
    return good;
}

double eval_cell_retention(const struct eval_cell *c)
{
    return eval_retention(c->full, c->mean);
}

const char *eval_cell_verdict(const struct eval_cell *c)
{
    return isnan(c->delta.delta) ? "" : eval_verdict(&c->delta);
}

/* ---- The domains and buckets of a block ---- */

/* Lists the domains of the informative strata. */
static void find_domains(struct eval_block *b)
{
    for (int32_t i = 0; i < b->n_strata; i++) {
        const struct eval_stratum *s = &b->strata[i];
        int32_t k = 0;
        while (k < b->n_domains && s->domain && strcmp(b->domains[k], s->domain) != 0)
            k++;
        if (s->informative && s->domain && k == b->n_domains && k < EVAL_MAX_DOMAINS)
            b->domains[b->n_domains++] = s->domain;
    }
    b->n_domains = b->n_domains > 1 ? b->n_domains : 0;
}

/* Lists the buckets of the informative strata's lines. */
static void find_buckets(struct eval_block *b, const struct eval_run *run)
{
    bool has[EVAL_N_BUCKETS + 1] = {false};
    for (int32_t i = 0; i < b->n_strata; i++)
        for (size_t k = b->strata[i].begin; b->strata[i].informative && k < b->strata[i].end; k++)
            has[run->results[k].bucket] = true;
    for (int32_t i = 1; i <= EVAL_N_BUCKETS; i++)
        if (has[i])
            b->buckets[b->n_buckets++] = i;
    b->n_buckets = b->n_buckets > 1 ? b->n_buckets : 0;
}

void eval_means_find(struct eval_block *b, const struct eval_run *run)
{
    find_domains(b);
    find_buckets(b, run);
}

/* ---- Means ---- */

/* What a mean is of. */
struct part {
    const char *name;
    const char *domain; /* NULL = all */
    int32_t bucket;     /* 0 = all */
};

/* Whether a stratum counts in a mean. */
static bool counts(const struct eval_stratum *s, const struct part *p)
{
    return s->informative && (!p->domain || (s->domain && strcmp(s->domain, p->domain) == 0));
}

/* The difference to the full cache over the strata that count. */
static bool make_delta(struct eval_paired *out, const struct eval_row *row, const struct eval_block *b,
                       const struct eval_run *run, const struct part *p)
{
    struct eval_gather g = {0};
    struct eval_stratum *strata = malloc(((size_t)b->n_strata + 1) * sizeof *strata);
    int32_t n = 0;
    for (int32_t i = 0; strata && i < b->n_strata; i++)
        if (counts(&b->strata[i], p)) {
            strata[n] = b->strata[i];
            strata[n++].bucket = p->bucket;
        }
    const bool good =
        strata &&
        eval_gather(&g,
                    &(struct eval_compared){run, strata, n, true, row->variant, b->baseline, EVAL_M_SCORE}) &&
        eval_gather_interval(out, &g, run, p->name, b->n_target == EVAL_ALL_LENGTHS ? 0 : b->n_target,
                             run->variants[row->variant].id);
    eval_gather_clear(&g);
    free(strata);
    return good;
}

/* Sums of cells, each of which is the mean of a stratum. */
struct sums {
    size_t n_cells, n_of[EVAL_N_MEASURES];
    double mean, full, of[EVAL_N_MEASURES];
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
    for (int m = 0; m < EVAL_N_MEASURES; m++) {
        sums->of[m] += isnan(of->m[m]) ? 0.0 : of->m[m];
        sums->n_of[m] += isnan(of->m[m]) ? 0 : 1;
    }
    c->n += of->n;
    c->n_clusters += of->n_clusters;
    c->binary = c->binary && of->binary;
    c->n_right += of->n_right;
    c->discordant.lost += of->discordant.lost;
    c->discordant.gained += of->discordant.gained;
    c->n_first += of->n_first;
    c->n_first_same += of->n_first_same;
}

/* Adds the cells of all strata that count. Those of a bucket are made for it, because a row has none. */
static bool add_cells(struct sums *sums, struct eval_cell *c, const struct eval_row *row,
                      const struct eval_block *b, const struct eval_run *run, const struct part *p)
{
    for (int32_t i = 0; i < b->n_strata; i++) {
        struct eval_stratum s = b->strata[i];
        struct eval_cell of = row->cell[i];
        if (!counts(&s, p))
            continue;
        s.bucket = p->bucket;
        if (p->bucket != 0 && !eval_cell_make(&of, run, &s, row->variant, b->baseline, false))
            return false;
        if (of.n > 0)
            add_cell(sums, c, &of);
    }
    return true;
}

/* Sets Wilson's intervals, which take all lines together, where that gives the mean of the strata's means. Elsewhere an interval
 * would be of another number than the one that it stands next to. */
static void set_shares(struct eval_cell *c, const struct sums *sums)
{
    eval_cell_set_shares(c);
    c->binary = c->binary && fabs(100.0 * (double)c->n_right / (double)c->n - c->mean) < 1e-6;
    if (sums->uneven)
        c->first = (struct eval_interval){NAN, NAN};
}

/* The mean of the strata's means. */
static bool make_mean(struct eval_cell *c, const struct eval_row *row, const struct eval_block *b,
                      const struct eval_run *run, const struct part *p)
{
    struct sums sums = {0};
    *c = eval_cell_empty();
    c->binary = true;
    if (!add_cells(&sums, c, row, b, run, p))
        return false;
    c->binary = c->binary && sums.n_cells > 0;
    if (sums.n_cells == 0)
        return true;
    c->mean = sums.mean / (double)sums.n_cells;
    c->full = sums.full / (double)sums.n_cells;
    for (int m = 0; m < EVAL_N_MEASURES; m++)
        c->m[m] = sums.n_of[m] > 0 ? sums.of[m] / (double)sums.n_of[m] : NAN;
    set_shares(c, &sums);
    c->discordant.p = eval_sign_test(c->discordant.lost, c->discordant.gained);
    if (b->baseline < 0 || row->variant == b->baseline)
        return true;
    return make_delta(&c->delta, row, b, run, p);
}

bool eval_means_make(struct eval_row *row, const struct eval_block *b, const struct eval_run *run)
{
    bool good = make_mean(&row->macro, row, b, run, &(struct part){.name = "macro"});
    for (int32_t i = 0; good && i < b->n_domains; i++)
        good = make_mean(&row->domain[i], row, b, run,
                         &(struct part){.name = b->domains[i], .domain = b->domains[i]});
    for (int32_t i = 0; good && i < b->n_buckets; i++)
        good = make_mean(&row->bucket[i], row, b, run,
                         &(struct part){.name = eval_bucket_name(b->buckets[i]), .bucket = b->buckets[i]});
    return good;
}

/* ---- Columns of a table of scores ---- */

int32_t eval_by_n(const struct eval_block *b, enum eval_by by)
{
    return by == EVAL_BY_TASK ? b->n_strata : by == EVAL_BY_DOMAIN ? b->n_domains : b->n_buckets;
}

const char *eval_by_name(const struct eval_run *run, const struct eval_block *b, enum eval_by by, int32_t k)
{
    return by == EVAL_BY_TASK     ? run->tasks[b->strata[k].task]
           : by == EVAL_BY_DOMAIN ? b->domains[k]
                                  : eval_bucket_name(b->buckets[k]);
}

const struct eval_cell *eval_by_cell(const struct eval_row *row, enum eval_by by, int32_t k)
{
    return by == EVAL_BY_TASK ? &row->cell[k] : by == EVAL_BY_DOMAIN ? &row->domain[k] : &row->bucket[k];
}

bool eval_by_counts(const struct eval_block *b, enum eval_by by, int32_t k)
{
    return by != EVAL_BY_TASK || b->strata[k].informative;
}
