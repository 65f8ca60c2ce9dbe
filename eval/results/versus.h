/* SPDX-License-Identifier: MIT */
/* Policies against each other on the same samples and at the same size: two that are named, and which one has the highest
 * mean at a size and which others the samples cannot tell from it. */
#ifndef WNW_EVAL_VERSUS_H
#define WNW_EVAL_VERSUS_H

#include "eval/results/table.h"

struct eval_versus {
    const struct eval_block *block; /* one length, or all */
    int32_t a, b;                   /* variants of the same size, protocol and type of cache */
    enum eval_measure of;           /* score, or KL divergence, which is of all tasks, texts included */
    size_t n;
    double mean_a, mean_b;    /* over the tasks that count, on the samples that both have */
    struct eval_paired delta; /* a minus b */
};

/* The two recipes of "A,B"; an item key=value goes on with the recipe before it. The caller frees both. Returns an
 * exit code: bad input unless there are two. */
int eval_versus_names(char *names[2], const char *list);
/* Fails for a name that the run has no results of. Returns an exit code. */
int eval_versus_check(const struct eval_run *run, char *const names[2]);
/* What a pair compares. */
struct eval_compared eval_versus_compared(const struct eval_versus *v, const struct eval_run *run);
/* Fills in the numbers of a pair whose block and variants are set. Returns false if memory runs out. */
bool eval_versus_measure(struct eval_versus *v, const struct eval_tables *t);
/* Adds to *out[*n] every pair of variants of the two policies. The caller frees *out. Returns an exit code. */
int eval_versus_make(struct eval_versus **out, int32_t *n, const struct eval_tables *t, char *const names[2]);

/* The methods of a protocol that have the same size and type of cache. */
struct eval_winner {
    int32_t best; /* variant with the highest mean over the informative tasks; of equal means the first */
    struct eval_versus *other; /* [n_others] best minus each other, from high means to low; owned */
    int32_t n_others;
};

/* Makes a block's winners in the order of its rows; full caches take no part. Returns an exit code. The caller releases
 * *out with eval_winners_free in any case. */
int eval_winners_make(struct eval_winner **out, int32_t *n, const struct eval_tables *t,
                      const struct eval_block *b);
void eval_winners_free(struct eval_winner *winners, int32_t n);

#endif
