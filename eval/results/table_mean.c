/* SPDX-License-Identifier: MIT */
/* Means over tasks and lengths: of all of them, of a domain's, and of the lines of a bucket. */
#include "eval/results/table_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- What there are means of ---- */

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
        strata && eval_gather(&g, run, strata, n, true, row->variant, b->baseline) &&
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
