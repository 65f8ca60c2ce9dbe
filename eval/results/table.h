/* SPDX-License-Identifier: MIT */
/* Scores of a run as tables: what was measured on the same samples, with intervals. Scores are points of 100. */
#ifndef WNW_EVAL_TABLE_H
#define WNW_EVAL_TABLE_H

#include "eval/base/stats.h"
#include "eval/base/task_names.h"
#include "eval/results/results.h"

#include <math.h>

enum { EVAL_MAX_DOMAINS = 16, EVAL_N_ANSWERS = 2 };
enum { EVAL_MAX_GROUPS = 1 + EVAL_N_ANSWERS + EVAL_MAX_DOMAINS + EVAL_N_BUCKETS };

/* A mean while it is summed up, from {0, 0} on; what is no number is left out. */
struct eval_mean {
    double sum;
    size_t n;
};
static inline void eval_mean_add(struct eval_mean *m, double value)
{
    m->sum += isnan(value) ? 0.0 : value;
    m->n += isnan(value) ? 0 : 1;
}
/* NaN where there was no number. */
static inline double eval_mean_value(const struct eval_mean *m)
{
    return m->n > 0 ? m->sum / (double)m->n : NAN;
}

/* The samples of a task at a length. */
struct eval_stratum {
    int32_t task, n_target;
    const char *domain; /* as its benchmark sorts tasks, NULL = not at all */
    enum eval_answer_kind answer;
    size_t begin, end; /* its lines in run->results */
    bool scored;       /* it has scores and not only other numbers */
    bool informative;  /* it has, and the full cache solves enough of it to distinguish methods */
    size_t n_probes;   /* 0: there were none, and the full cache's answers to the samples themselves decide */
    double probes;     /* mean of the full cache's scores on the probes, in points */
    size_t n_own;      /* the full cache's answers to the samples */
    double own;        /* mean of their scores, in points */
};

/* What a mean over strata is of: all that are informative, those with answers of a kind, those of a domain, or their lines of a
 * bucket (record.h). */
struct eval_group {
    const char *name;             /* "macro" for all */
    enum eval_answer_kind answer; /* EVAL_ANSWER_OTHER = any */
    const char *domain;           /* NULL = any */
    int32_t bucket;               /* 0 = any */
};
/* Whether a stratum counts in a group; in NULL each does. */
bool eval_group_has(const struct eval_group *g, const struct eval_stratum *s);

/* A method on the samples of one stratum or of several. */
struct eval_cell {
    size_t n; /* lines that the method and the full cache have; without a full cache all of the method's */
    size_t n_clusters;        /* texts or contexts that these lines are of; lines of one move together */
    double mean, full;        /* of these lines; full is NaN without a full cache */
    struct eval_paired delta; /* against the full cache; NaN in the full cache's own row */
    /* All scores are 0 or 1; the next three are then of use. They take each line for itself. In means of several tasks they take all lines
     * together, and are of use where that gives the same mean. */
    bool binary;
    int64_t n_right;             /* lines with a score of 1 */
    struct eval_interval wilson; /* of n_right in n, in points */
    struct eval_discordant discordant;
    int64_t n_first,
        n_first_same;           /* lines that say whether the first token is the full cache's; where it is */
    struct eval_interval first; /* Wilson's of these, 0 to 1; NaN where there are none */
    struct eval_interval kl;    /* of the mean divergence from the full cache; NaN where there is none */
    double m[EVAL_N_MEASURES];  /* means of the lines that have the number, NaN where none has */
};

struct eval_row {
    int32_t variant;
    double removed;         /* mean share removed over all strata, NaN where it is not known */
    bool off_target;        /* what was removed differs by more than 0.01 from what was asked for */
    struct eval_cell *cell; /* [n_strata of the block], owned */
    /* Means of the strata's means, each stratum with the same weight. The first is of all informative ones. */
    union {
        struct eval_cell macro;
        struct eval_cell group[EVAL_MAX_GROUPS]; /* [n_groups of the block] */
    };
};

/* One table: a protocol at one length, or at all lengths. Tables of different protocols are never mixed. */
struct eval_block {
    const char *mode;
    int32_t n_target; /* EVAL_ALL_LENGTHS: the strata are of several lengths */
    bool one_length;  /* its protocol has one length, so that the tables of that and of all are the same */
    int32_t baseline; /* variant of the full cache that the others are compared with, -1 = none */
    struct eval_stratum *strata; /* [n_strata], owned */
    int32_t n_strata, n_informative;
    struct eval_group groups
        [EVAL_MAX_GROUPS]; /* [n_groups]: all, the two kinds of answers, domains in the order of strata, buckets */
    int32_t n_groups, n_domains, n_buckets; /* 0 domains or buckets where there would be only one */
    struct eval_row *rows;                  /* [n_rows] in the order of the run's variants, owned */
    int32_t n_rows;
    size_t n_samples;  /* of the informative strata, in the row that has most */
    size_t n_clusters; /* texts or contexts that they are of */
};
enum { EVAL_ALL_LENGTHS = -1 };

struct eval_tables {
    const struct eval_run *run;
    bool no_gate;              /* every task counts as informative */
    struct eval_block *blocks; /* [n]: of each protocol one for each length, then one for all; owned */
    int32_t n;
};

/* Makes the tables of a run. Returns an exit code: APP_FAILED if memory runs out. The caller clears them in any
 * case. */
int eval_tables_make(struct eval_tables *out, const struct eval_run *run, bool no_gate);
void eval_tables_clear(struct eval_tables *tables);
/* The table of a protocol over all lengths; NULL if the protocol has no results. */
const struct eval_block *eval_tables_all(const struct eval_tables *tables, const char *mode);
/* Whether a block repeats another: a protocol with one length needs no table over all lengths. */
bool eval_block_is_extra(const struct eval_block *block);
/* The share of the full cache's score that is left, in per cent. */
double eval_cell_retention(const struct eval_cell *cell);

/* One method minus another on the same samples, over some strata: differences of scores with their clusters. */
struct eval_gather {
    double *d;                        /* [n] in points, owned, like the two that follow */
    size_t *cluster, *stratum, *task; /* as in eval_pairs */
    size_t n, n_clusters, n_strata, n_tasks;
    int32_t last;        /* task of the last stratum */
    double least, most;  /* what differences can be; both 0: anything */
    double sum_a, sum_b; /* over strata: means of the two methods */
};
/* What is compared: a measure of variant a minus that of variant b, or minus 0 where b is -1. */
struct eval_compared {
    const struct eval_run *run;
    const struct eval_stratum *strata; /* [n_strata] */
    int32_t n_strata;
    const struct eval_group *group; /* only what it has; NULL = all */
    int32_t a, b;
    enum eval_measure m; /* scores count in points */
};
/* Gathers what is compared. Strata without common samples are left out. Samples that share a text, and turns of one
 * context, are one cluster. Returns false if memory runs out; the caller clears in any case. */
bool eval_gather(struct eval_gather *out, const struct eval_compared *c);
void eval_gather_clear(struct eval_gather *g);
/* The same as what statistics take; it borrows. */
struct eval_pairs eval_gather_pairs(const struct eval_gather *g);
/* The interval of what was gathered; `name` of the task or group, `n` and `id` make the key of the random stream. */
bool eval_gather_interval(struct eval_paired *out, const struct eval_gather *g, const struct eval_run *run,
                          const char *name, int64_t n, const char *id);
/* What a group of a block is compared by: scores of a variant less those of another. */
struct eval_compared eval_group_compared(const struct eval_run *run, const struct eval_block *b,
                                         const struct eval_group *group, int32_t variant, int32_t other);
/* Gathers what is compared and makes its interval under the name of the block's group. The same rules. */
bool eval_gather_group(struct eval_gather *out, struct eval_paired *delta, const struct eval_block *b,
                       const struct eval_compared *c, const char *id);

#endif
