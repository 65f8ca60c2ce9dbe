/* SPDX-License-Identifier: MIT */
/* What table.c shares with table_cell.c and table_gather.c. */
#ifndef WNW_EVAL_TABLE_IMPL_H
#define WNW_EVAL_TABLE_IMPL_H

#include "eval/results/table.h"

/* Whether a line between a stratum's first and last is one of its lines. */
static inline bool eval_stratum_has(const struct eval_stratum *s, const struct eval_result *r)
{
    return s->bucket == 0 || r->bucket == s->bucket;
}

/* A cell without samples. */
struct eval_cell eval_cell_empty(void);
/* A variant on a stratum; baseline is -1 where there is no full cache. interval: false leaves the interval of the difference
 * out, which takes longest. Returns false if memory runs out. */
bool eval_cell_make(struct eval_cell *c, const struct eval_run *run, const struct eval_stratum *s,
                    int32_t variant, int32_t baseline, bool interval);
/* Sets Wilson's intervals from the numbers of lines. */
void eval_cell_set_shares(struct eval_cell *c);

/* Finds the domains and the buckets of a block, of which its rows will have means. */
void eval_means_find(struct eval_block *b, const struct eval_run *run);
/* Makes a row's means from its cells. Returns false if memory runs out. */
bool eval_means_make(struct eval_row *row, const struct eval_block *b, const struct eval_run *run);

#endif
